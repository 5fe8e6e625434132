"""Operators whose stock conversion is wrong, narrow or missing, against ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tests.frontends.models import model, node, run, value
from tvmpass.core.errors import TvmpassError
from tvmpass.frontends.onnx import load_onnx

RNG = np.random.default_rng(0)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 30.0, -30.0, 100.0, -100.0], np.float32)


def _check(one, arrays, constants=None, outputs: int = 1, opset: int = 18, rtol=1e-5, atol=1e-6):
    """Import a model of one node, run it, and compare every output with the reference."""
    inputs = [value(name, list(a.shape), str(a.dtype)) for name, a in arrays.items()]
    names = [f"out{i}" for i in range(outputs)]
    made = model([one], inputs, names, constants, opset=opset)
    expected = ReferenceEvaluator(made).run(None, arrays)
    got = run(load_onnx(made), *arrays.values())
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected):
        theirs = np.asarray(theirs)
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, equal_nan=True)


ACTIVATIONS = [
    ("Elu", {"alpha": 0.5}),
    ("Celu", {"alpha": 2.0}),
    ("Selu", {}),
    ("ThresholdedRelu", {"alpha": 1.0}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("Shrink", {"lambd": 1.0, "bias": 0.25}),
    ("Softplus", {}),
    ("Mish", {}),
    ("HardSwish", {}),
]


@pytest.mark.parametrize(("operator", "attributes"), ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_activations(operator, attributes, dtype):
    x = SPECIAL[5:] if operator == "HardSwish" else SPECIAL
    if operator in ("Celu", "Mish"):
        x = x[np.isfinite(x)]  # the reference's own formula meets inf - inf
    x = x.astype(dtype)
    tolerance = 1e-5 if dtype == "float32" else 3e-3
    with np.errstate(all="ignore"):
        _check(node(operator, ["x"], ["out0"], **attributes), {"x": x}, rtol=tolerance, atol=tolerance)


def test_mish_of_small_values_keeps_its_digits():
    x = np.linspace(-20, 0, 50, dtype=np.float32)
    (got,) = run(load_onnx(model([node("Mish", ["x"], ["y"])], [value("x", [50])], ["y"])), x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got, wide * np.tanh(np.log1p(np.exp(wide))), rtol=1e-5)


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_elementwise_over_several_inputs(operator, count):
    arrays = {n: RNG.normal(size=s).astype("float32") for n, s in zip("abc", [(2, 4, 3), (4, 1), (3,)])}
    names = list(arrays)[:count]
    _check(node(operator, names, ["out0"]), {n: arrays[n] for n in names})


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
def test_several_inputs_with_a_symbolic_batch_stay_elementwise(operator):
    made = model([node(operator, ["a", "b"], ["y"])], [value("a", ["n", 3]), value("b", ["n", 1])], ["y"])
    text = load_onnx(made).script()
    assert "stack" not in text and "broadcast_to" not in text


@pytest.mark.parametrize("bounds", [("low", "high"), ("", "high"), ("low", "")])
def test_clip(bounds):
    constants = {"low": np.float32(-1), "high": np.float32(2)}
    _check(node("Clip", ["x", *bounds], ["out0"]), {"x": SPECIAL}, {n: constants[n] for n in bounds if n})


def test_clip_by_nan_is_no_bound():
    constants = {"low": np.float32(np.nan), "high": np.float32(2)}
    made = model([node("Clip", ["x", "low", "high"], ["y"])], [value("x", [2])], ["y"], constants)
    assert run(load_onnx(made), np.array([-9, 9], np.float32))[0].tolist() == [-9.0, 2.0]


def test_clip_of_old_opset():
    made = model([node("Clip", ["x"], ["y"], min=0.0, max=6.0)], [value("x", [3])], ["y"], opset=6)
    assert run(load_onnx(made), np.array([-1, 3, 9], np.float32))[0].tolist() == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("which", [{"detect_positive": 0}, {"detect_negative": 0}, {}])
def test_is_inf(which):
    _check(node("IsInf", ["x"], ["out0"], **which), {"x": SPECIAL}, opset=20)


@pytest.mark.parametrize("fmod", [0, 1])
def test_float_remainder(fmod):
    a = np.array([7, -7, 7, -7, 5.3, 0, np.inf, 3], np.float32)
    b = np.array([3, 3, -3, -3, -1.5, 2, 2, np.nan], np.float32)
    if fmod:
        with np.errstate(invalid="ignore"):
            _check(node("Mod", ["a", "b"], ["out0"], fmod=1), {"a": a, "b": b})
        return
    made = model([node("Mod", ["a", "b"], ["y"])], [value("a", [8]), value("b", [8])], ["y"])
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(run(load_onnx(made), a, b)[0], np.mod(a, b), rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(axis, outputs, bias):
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    scale = RNG.standard_normal(x.shape[axis:]).astype("float32")
    inputs = ["x", "scale"] + ["bias"] * bias
    one = node("LayerNormalization", inputs, [f"out{i}" for i in range(outputs)], axis=axis)
    constants = {"scale": scale, "bias": scale * 2} if bias else {"scale": scale}
    _check(one, {"x": x}, constants, outputs=outputs, rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training():
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    stats = {n: RNG.random(3).astype("float32") + 0.5 for n in ("scale", "bias", "mean", "var")}
    one = node("BatchNormalization", ["x", *stats], ["out0", "out1", "out2"], training_mode=1, momentum=0.7)
    _check(one, {"x": x}, stats, outputs=3, rtol=1e-4, atol=1e-5)


def test_batch_norm_of_half_precision():
    x = RNG.standard_normal((2, 3, 4)).astype("float16")
    stats = {n: RNG.random(3).astype("float16") + np.float16(0.5) for n in ("scale", "bias", "mean", "var")}
    _check(node("BatchNormalization", ["x", *stats], ["out0"]), {"x": x}, stats, rtol=5e-3, atol=5e-3)


def test_lp_normalization():
    x = RNG.standard_normal((3, 4)).astype("float32")
    x[0] = 0
    for order in (1, 2):
        made = model([node("LpNormalization", ["x"], ["y"], axis=1, p=order)], [value("x", [3, 4])], ["y"])
        norm = np.linalg.norm(x, order, axis=1, keepdims=True)
        norm[0] = 1
        np.testing.assert_allclose(run(load_onnx(made), x)[0], x / norm, rtol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode):
    x = RNG.standard_normal((2, 5)).astype("float32")
    one = node("Pad", ["x", "pads"], ["out0"], mode=mode)
    _check(one, {"x": x}, {"pads": np.array([1, 2, 0, 3])}, opset=19)


def test_pad_crops_and_takes_axes():
    x = RNG.standard_normal((2, 5)).astype("float32")
    constants = {"pads": np.array([-1, 2]), "fill": np.float32(7), "axes": np.array([-1])}
    nodes = [node("Pad", ["x", "pads", "fill", "axes"], ["y"])]
    (got,) = run(load_onnx(model(nodes, [value("x", [2, 5])], ["y"], constants)), x)
    assert np.array_equal(got, np.pad(x[:, 1:], [(0, 0), (0, 2)], constant_values=7))


@pytest.mark.parametrize("shape", [[3, 1], [1, 3, 4], [2, 1, 1]])
def test_expand_both_ways(shape):
    x = RNG.standard_normal((3, 4)).astype("float32")
    _check(node("Expand", ["x", "s"], ["out0"]), {"x": x}, {"s": np.array(shape)})


@pytest.mark.parametrize("extra", [{}, {"reverse": 1}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}])
def test_cumsum(extra):
    x = RNG.standard_normal((3, 4)).astype("float32")
    _check(node("CumSum", ["x", "a"], ["out0"], **extra), {"x": x}, {"a": np.array(-1)})


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij, bjk -> bik", "ii->i", "ij->"])
def test_einsum(equation):
    terms = equation.split("->")[0].split(",")
    arrays = {
        f"x{i}": RNG.standard_normal([3] * len(t.strip())).astype("float32") for i, t in enumerate(terms)
    }
    _check(node("Einsum", list(arrays), ["out0"], equation=equation), arrays)


def test_tile_and_space_to_depth():
    x = RNG.standard_normal((1, 2, 4, 6)).astype("float32")
    _check(node("Tile", ["x", "r"], ["out0"]), {"x": x}, {"r": np.array([1, 2, 1, 3])})
    _check(node("SpaceToDepth", ["x"], ["out0"], blocksize=2), {"x": x})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1]},
        {"pads": [1, 0, 1, 2]},
        {"dilations": [1, 2]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    ],
)
def test_col2im(attributes):
    image, block = np.array([5, 6]), np.array([2, 3])
    steps, spread = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0, 0, 0, 0])
    counts = [
        (image[i] + pads[i] + pads[i + 2] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1 for i in range(2)
    ]
    x = RNG.standard_normal((2, 3 * 6, counts[0] * counts[1])).astype("float32")
    one = node("Col2Im", ["x", "image", "block"], ["out0"], **attributes)
    _check(one, {"x": x}, {"image": image, "block": block}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
def test_transposed_convolution_with_an_output_shape(auto_pad):
    x, w = (
        RNG.standard_normal((1, 2, 3, 3)).astype("float32"),
        RNG.standard_normal((2, 4, 3, 3)).astype("float32"),
    )
    one = node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 2], output_shape=[10, 8], auto_pad=auto_pad)
    (got,) = run(load_onnx(model([one], [value("x", list(x.shape))], ["y"], {"w": w})), x)
    assert got.shape == (1, 4, 10, 8)


def test_constant_of_shape_is_not_stored():
    nodes = [node("ConstantOfShape", ["s"], ["big"]), node("Add", ["x", "big"], ["y"])]
    mod = load_onnx(model(nodes, [value("x", [1])], ["y"], {"s": np.array([1 << 20, 1 << 14])}))
    assert "R.full" in mod.script()


def test_constant_of_a_run_time_shape():
    made = model([node("ConstantOfShape", ["s"], ["y"])], [value("s", [2], "int64")], ["y"])
    (got,) = run(load_onnx(made), np.array([2, 3]))
    assert np.array_equal(got, np.zeros((2, 3), "float32"))


def test_standard_attention_is_expanded():
    q = RNG.standard_normal((1, 2, 3, 4)).astype("float32")
    _check(node("Attention", ["x", "x", "x"], ["out0"]), {"x": q}, opset=23, rtol=1e-4, atol=1e-5)


def test_a_run_time_limit_is_refused_not_ignored():
    inputs = [value("b", [1, 4, 4]), value("s", [1, 1, 4]), value("k", [], "int64")]
    made = model([node("NonMaxSuppression", ["b", "s", "k"], ["y"], "nms")], inputs, ["y"])
    with pytest.raises(TvmpassError, match="node 'nms'"):
        load_onnx(made)


COORDINATES = "coordinate_transformation_mode"
RESIZES = [
    ({"mode": "nearest"}, "scales", [1, 1, 2, 3]),
    ({"mode": "nearest", "nearest_mode": "ceil", COORDINATES: "asymmetric"}, "scales", [1, 1, 0.6, 1]),
    ({"mode": "linear"}, "scales", [1, 1, 0.6, 0.6]),
    ({"mode": "linear", COORDINATES: "align_corners"}, "sizes", [1, 2, 7, 9]),
    ({"mode": "linear", COORDINATES: "half_pixel_symmetric"}, "scales", [1, 1, 0.7, 2.1]),
    ({"mode": "linear", "antialias": 1}, "scales", [1, 1, 0.5, 0.4]),
    ({"mode": "cubic"}, "scales", [1, 1, 0.8, 1.3]),
    ({"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, "scales", [1, 1, 1.5, 0.8]),
    ({"mode": "cubic", "antialias": 1}, "scales", [1, 1, 0.6, 0.6]),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "kind", "numbers"), RESIZES)
def test_resize(attributes, kind, numbers):
    x = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
    array = np.array(numbers, np.float32 if kind == "scales" else np.int64)
    inputs = ["x", "", kind] if kind == "scales" else ["x", "", "", kind]
    _check(
        node("Resize", inputs, ["out0"], **attributes),
        {"x": x},
        {kind: array},
        opset=19,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_of_some_axes(policy):
    x = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
    one = node(
        "Resize", ["x", "", "", "s"], ["out0"], mode="nearest", axes=[3, 2], keep_aspect_ratio_policy=policy
    )
    made = model([one], [value("x", list(x.shape))], ["out0"], {"s": np.array([9, 10])}, opset=19)
    factors = {"stretch": (2.0, 1.5), "not_larger": (1.5, 1.5), "not_smaller": (2.0, 2.0)}[policy]
    (got,) = run(load_onnx(made), x)
    expected = x
    for axis, factor in zip((2, 3), factors):
        length = x.shape[axis]
        where = (np.arange(int(length * factor + 0.5)) + 0.5) / factor - 0.5
        expected = np.take(expected, np.clip(np.ceil(where - 0.5), 0, length - 1).astype(int), axis)
    assert np.array_equal(got, expected)


def test_old_upsample():
    x = RNG.standard_normal((1, 1, 2, 3)).astype("float32")
    nodes = [node("Upsample", ["x", "s"], ["y"], mode="nearest")]
    made = model(nodes, [value("x", [1, 1, 2, 3])], ["y"], {"s": np.array([1, 1, 2, 3], np.float32)}, opset=9)
    assert np.array_equal(run(load_onnx(made), x)[0], x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    indices = np.array([[1, -1, 9], [0, 3, -9]], np.int64)
    constants = {"depth": np.array(4), "values": np.array([2.0, 5.0], np.float32)}
    made = model(
        [node("OneHot", ["i", "depth", "values"], ["y"], axis=axis)],
        [value("i", [2, 3], "int64")],
        ["y"],
        constants,
    )
    positions = np.arange(4)
    hit = np.where(indices < 0, indices + 4, indices)[..., None] == positions
    expected = np.moveaxis(np.where(hit, 5.0, 2.0), -1, axis).astype(np.float32)
    assert np.array_equal(run(load_onnx(made), indices)[0], expected)


@pytest.mark.parametrize(("base", "power"), [("float32", "int64"), ("int64", "float32"), ("int32", "int32")])
def test_pow_of_mixed_types(base, power):
    arrays = {"a": np.array([1, 2, 3], base), "b": np.array([4, 5, 6], power)}
    made = model([node("Pow", ["a", "b"], ["y"])], [value("a", [3], base), value("b", [3], power)], ["y"])
    (got,) = run(load_onnx(made), *arrays.values())
    assert got.dtype == base and got.tolist() == [1, 32, 729]


def test_split_with_an_empty_part():
    x = np.arange(6, dtype=np.float32)
    one = node("Split", ["x", "s"], ["a", "b", "c"])
    made = model([one], [value("x", [6])], ["a", "b", "c"], {"s": np.array([2, 0, 4])})
    assert [part.tolist() for part in run(load_onnx(made), x)] == [[0, 1], [], [2, 3, 4, 5]]


def test_suppression_keeps_a_box_at_the_threshold():
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.5]]], np.float32)
    scores = np.array([[[0.9, 0.8]]], np.float32)
    constants = {"k": np.array(5), "iou": np.array([0.5], np.float32), "s": np.array([0.0], np.float32)}
    one = node("NonMaxSuppression", ["b", "c", "k", "iou", "s"], ["y"])
    made = model([one], [value("b", [1, 2, 4]), value("c", [1, 1, 2])], ["y"], constants)
    assert run(load_onnx(made), boxes, scores)[0].tolist() == [[0, 0, 0], [0, 0, 1]]


def test_cumulative_product_hardmax_and_reversed_sequences():
    x = RNG.standard_normal((3, 4)).astype("float32")
    made = model([node("Hardmax", ["x"], ["y"])], [value("x", [3, 4])], ["y"])
    assert np.array_equal(run(load_onnx(made), x)[0], np.eye(4, dtype="float32")[x.argmax(1)])
    nodes = [node("ReverseSequence", ["x", "n"], ["y"], time_axis=1, batch_axis=0)]
    made = model(nodes, [value("x", [3, 4])], ["y"], {"n": np.array([1, 3, 4])})
    expected = np.stack([np.concatenate([row[:n][::-1], row[n:]]) for row, n in zip(x, [1, 3, 4])])
    assert np.array_equal(run(load_onnx(made), x)[0], expected)


@pytest.mark.parametrize("element", ["FLOAT8E4M3FN", "INT4"])
def test_element_types_without_exact_storage_are_refused(element):
    kind = getattr(TensorProto, element)
    one = node("Cast", ["x"], ["q"], "squeeze", to=kind)
    made = model([one, node("Cast", ["q"], ["y"], to=1)], [value("x", [2])], ["y"], opset=21)
    with pytest.raises(
        TvmpassError, match=f"element types that are not supported: {element.lower()} .squeeze."
    ):
        load_onnx(made)


def test_roi_align_of_the_maximum_is_refused():
    inputs = [value("x", [1, 1, 4, 4]), value("rois", [1, 4]), value("b", [1], "int64")]
    one = node("RoiAlign", ["x", "rois", "b"], ["y"], "pool", mode="max")
    with pytest.raises(TvmpassError, match="node 'pool' .RoiAlign. cannot be imported: .*mode max"):
        load_onnx(model([one], inputs, ["y"]))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_log_sum_exp_of_infinities(keepdims):
    x = np.array(
        [[1, np.inf, 2], [-np.inf] * 3, [1, 2, np.nan], [500, 501, 502], [-np.inf, 0, 0]], np.float32
    )
    one = node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=keepdims)
    made = model([one], [value("x", [5, 3])], ["y"], {"axes": np.array([1])})
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.reduce(x.astype("float64"), axis=1, keepdims=bool(keepdims))
    (got,) = run(load_onnx(made), x)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("padding", ["SAME_LOWER", "SAME_UPPER"])
@pytest.mark.parametrize(("kernel", "stride"), [([4, 4], [3, 3]), ([2, 3], [2, 1]), ([1, 2], [2, 3])])
def test_max_pool_of_the_same_size(padding, kernel, stride):
    x = RNG.normal(size=(1, 2, 13, 11)).astype("float32")
    one = node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=stride, auto_pad=padding)
    (got,) = run(load_onnx(model([one], [value("x", x.shape)], ["y"])), x)
    out = [-(-n // s) for n, s in zip(x.shape[2:], stride)]
    totals = [max((o - 1) * s + k - n, 0) for o, s, k, n in zip(out, stride, kernel, x.shape[2:])]
    first = [t - t // 2 if padding == "SAME_LOWER" else t // 2 for t in totals]
    widths = [(0, 0), (0, 0), *((f, t - f) for f, t in zip(first, totals))]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, widths, constant_values=-np.inf), kernel, axis=(2, 3)
    )
    np.testing.assert_array_equal(got, windows[:, :, :: stride[0], :: stride[1]].max(axis=(-2, -1)))


@pytest.mark.parametrize(
    ("start", "end", "step"), [(2, 1, 1), (3, 3, 1), (1, 4, -1), (9, 12, 1), (-1, -3, 1)]
)
def test_a_slice_that_takes_nothing(start, end, step):
    bounds = {
        "s": np.array([start, 1]),
        "e": np.array([end, 4]),
        "a": np.array([0, -1]),
        "t": np.array([step, 2]),
    }
    x = RNG.normal(size=(6, 7)).astype("float32")
    _check(node("Slice", ["x", "s", "e", "a", "t"], ["out0"]), {"x": x}, bounds)


@pytest.mark.parametrize("fixed", [["b"], ["a", "b"]])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers_over_a_constant_with_zeros(fixed, dtype):
    arrays = {"a": np.array([7, -7, 5, 0, -9], dtype), "b": np.array([2, 2, 0, 0, -1], dtype)}
    inputs = [value(name, [5], dtype) for name in arrays if name not in fixed]
    nodes = [node("Div", ["a", "b"], ["q"]), node("Add", ["q", "z"], ["y"])]
    made = model(nodes, [*inputs, value("z", [5], dtype)], ["y"], {name: arrays[name] for name in fixed})
    given = [arrays[name] for name in arrays if name not in fixed]
    (got,) = run(load_onnx(made), *given, np.zeros(5, dtype))
    assert got.dtype == dtype and got.tolist() == [3, -3, 0, 0, 9]
