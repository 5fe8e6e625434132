"""What load_onnx keeps, folds and names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper
from tvm import relax

from tests.frontends.models import model, node, run, value
from tvmpass.core.site import op_name
from tvmpass.core.source import origin
from tvmpass.frontends.onnx import load_onnx


def _bindings(mod):
    return [b for block in mod["main"].body.blocks for b in block.bindings]


def _operators(mod) -> list[str]:
    return [name for b in _bindings(mod) if (name := op_name(b.value))]


def _conv_bn():
    rng = np.random.default_rng(0)
    channel = [rng.random(4).astype("float32") + 0.5 for _ in range(4)]
    constants = {"w": rng.standard_normal((4, 3, 3, 3)).astype("float32")}
    constants |= dict(zip(["scale", "bias", "mean", "var"], channel))
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"], "norm"),
    ]
    return model(nodes, [value("x", [1, 3, 8, 8])], ["y"], constants)


def test_batch_norm_and_repeated_nodes_reach_relax():
    mod = load_onnx(_conv_bn())
    assert "relax.nn.batch_norm" in _operators(mod)
    twice = [
        node("Exp", ["x"], ["a"], "one"),
        node("Exp", ["x"], ["b"], "two"),
        node("Add", ["a", "b"], ["y"]),
    ]
    mod = load_onnx(model(twice, [value("x", [4])], ["y"]))
    assert _operators(mod).count("relax.exp") == 2


def test_every_call_carries_its_node():
    mod = load_onnx(_conv_bn())
    for binding in _bindings(mod):
        if isinstance(binding.value, relax.Call):
            expected = "norm" if "batch_norm" in op_name(binding.value) else "conv"
            assert origin(binding.value) == (expected,)


def test_a_nameless_node_is_named_after_its_output():
    mod = load_onnx(model([node("Relu", ["x"], ["result"])], [value("x", [2])], ["result"]))
    assert origin(_bindings(mod)[0].value) == ("result",)


def test_nodes_of_a_function_carry_the_name_of_the_call():
    body = [node("Exp", ["a"], ["e"]), node("Neg", ["e"], ["r"])]
    function = helper.make_function("local", "Twist", ["a"], ["r"], body, [helper.make_opsetid("", 18)])
    nodes = [node("Relu", ["x"], ["h"], "before"), node("Twist", ["h"], ["y"], "call", domain="local")]
    made = model(nodes, [value("x", [2])], ["y"], functions=[function])
    made.opset_import.append(helper.make_opsetid("local", 1))
    mod = load_onnx(made)
    calls = [b.value for b in _bindings(mod) if isinstance(b.value, relax.Call)]
    assert [origin(call) for call in calls] == [("before",), ("call",), ("call",)]


def test_names_and_frozen_inputs():
    nodes = [node("Add", ["in.put", "w"], ["out:0"])]
    made = model(
        nodes,
        [value("in.put", [2]), value("w", [2]), value("unused", [3])],
        ["out:0"],
        {"w": np.ones(2, "float32")},
    )
    mod = load_onnx(made)
    attrs = mod["main"].attrs
    assert json.loads(attrs["tvmpass.inputs"]) == ["in.put", "unused"]
    assert json.loads(attrs["tvmpass.outputs"]) == ["out:0"]
    assert len(mod["main"].params) == 2


@pytest.mark.parametrize("dtype", ["int64", "float64", "int8", "bool", "float16"])
def test_constants_keep_their_dtype(dtype):
    constant = np.array([1, 0, 1], dtype)
    nodes = [node("Gather", ["w", "x"], ["y"])]
    mod = load_onnx(model(nodes, [value("x", [2], "int64")], ["y"], {"w": constant}))
    assert str(mod["main"].ret_ty.dtype) == dtype


def test_shape_arithmetic_folds_with_a_symbolic_batch():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["s32"], to=6),
        node("Gather", ["s32", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["first"]),
        node("Concat", ["first", "rest"], ["target"], axis=0),
        node("Cast", ["target"], ["target64"], to=7),
        node("Reshape", ["x", "target64"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1], np.int32)}
    mod = load_onnx(model(nodes, [value("x", ["n", 3, 4])], ["y"], constants), {"x": ("n", 3, 4)})
    assert _operators(mod) == ["relax.reshape"]
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    (y,) = run(mod, x)
    assert np.array_equal(y, x.reshape(2, 12))


def test_symbolic_sizes_as_data():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=1),
        node("ReduceProd", ["f"], ["y"], keepdims=0),
    ]
    mod = load_onnx(model(nodes, [value("x", ["n", 3])], ["y", value("s", None, "int64")]), {"x": ("n", 3)})
    y, s = run(mod, np.zeros((5, 3), "float32"))
    assert y == 15.0
    assert s.dtype == np.int64 and s.tolist() == [5, 3]


@pytest.mark.parametrize(
    ("shape", "target", "allow_zero", "expected"),
    [
        ((2, 6), [3, 4], 0, (3, 4)),
        ((2, 6), [-1, 4], 0, (3, 4)),
        ((2, 6), [0, -1, 2], 0, (2, 3, 2)),
        ((2, 6), [12], 0, (12,)),
        ((2, 0), [0, 3], 1, (0, 3)),
    ],
)
def test_run_time_reshape(shape, target, allow_zero, expected):
    nodes = [node("Reshape", ["x", "s"], ["y"], allowzero=allow_zero)]
    inputs = [value("x", list(shape)), value("s", [len(target)], "int64")]
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    (y,) = run(load_onnx(model(nodes, inputs, ["y"])), x, np.array(target, np.int64))
    assert y.shape == expected
    assert np.array_equal(y.ravel(), x.ravel())


def test_run_time_expand():
    nodes = [node("Expand", ["x", "s"], ["y"])]
    mod = load_onnx(model(nodes, [value("x", [3, 1]), value("s", [3], "int64")], ["y"]))
    x = np.arange(3, dtype="float32").reshape(3, 1)
    (y,) = run(mod, x, np.array([2, 1, 4], np.int64))
    assert np.array_equal(y, np.broadcast_to(x, (2, 3, 4)))


def test_a_constant_that_would_be_huge_is_not_folded():
    nodes = [node("Expand", ["w", "shape"], ["big"]), node("Add", ["x", "big"], ["y"])]
    constants = {"w": np.ones(1, "float32"), "shape": np.array([1 << 16, 1 << 12])}
    mod = load_onnx(model(nodes, [value("x", [1])], ["y"], constants))
    assert "relax.broadcast_to" in _operators(mod)


def test_nothing_is_printed(capfd):
    load_onnx(_conv_bn())
    with pytest.raises(RuntimeError):
        load_onnx(
            model([node("CumSum", ["x", "a"], ["y"])], [value("x", [2]), value("a", [], "int64")], ["y"])
        )
    assert capfd.readouterr() == ("", "")
