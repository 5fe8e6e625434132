"""The legalisation map: NaN, integer division, reductions, norms, indices, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tests.frontends.models import run
from tvmpass.compile.legalize import legalize_map
from tvmpass.core.constants import make_constant
from tvmpass.core.options import Options

op = relax.op
NAN, INF = np.nan, np.inf


def _module(body, *arrays, symbolic: bool = False) -> tvm.IRModule:
    """Return a module of ``body(*parameters)``; ``symbolic`` opens the first dim."""
    bb = relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    params = []
    for i, array in enumerate(arrays):
        shape = list(array.shape)
        if symbolic and shape:
            shape[0] = n
        params.append(relax.Var(f"x{i}", relax.TensorType(shape, str(array.dtype))))
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(body(*params))
        bb.emit_func_output(result)
    return bb.get()


def _check(body, arrays, expected, rtol: float = 0.0, atol: float = 0.0, **keywords):
    """Run static and with a symbolic first dim; compare dtype, shape and values."""
    expected = np.asarray(expected)
    for symbolic in (False, True):
        (got,) = run(_module(body, *arrays, symbolic=symbolic), *arrays, canonical=False, **keywords)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)


A = np.array([NAN, 1, NAN, 0, -2, INF, -INF, 3], "float32")
B = np.array([1, NAN, NAN, 0, 5, -INF, 2, NAN], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_nan_of_two_tensors(dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    _check(op.maximum, [a, b], np.maximum(a, b))
    _check(op.minimum, [a, b], np.minimum(a, b))


@pytest.mark.parametrize("bound", [0.0, -1.5, NAN])
def test_nan_with_a_number(bound):
    c = relax.const(bound, "float32")
    _check(lambda x: op.maximum(x, c), [A], np.maximum(A, np.float32(bound)))
    _check(lambda x: op.minimum(c, x), [A], np.minimum(A, np.float32(bound)))


def test_nan_of_activations():
    _check(op.nn.relu, [A], np.maximum(A, np.float32(0)))
    _check(op.sign, [A], np.sign(A))
    _check(lambda x: op.clip(x, 0, 6), [A], np.clip(A, np.float32(0), np.float32(6)))


def test_relu_with_a_number_is_one_comparison():
    mod = _module(op.nn.relu, np.zeros(64, "float32"))
    lowered = relax.transform.LegalizeOps(legalize_map(Options(), None))(mod).script()
    assert lowered.count("T.max(T.float32(0.0), ") == 1 and "T.Select" not in lowered
    assert "isnan" not in lowered


def test_fast_math_drops_the_nan_forms():
    made = legalize_map(Options(fast_math=True), None)
    assert "relax.maximum" not in made
    assert "relax.divide" in made
    x = np.array([1, 5, 2], "float32")
    (got,) = run(_module(lambda v: op.max(v, [0]), x), x, options=Options(fast_math=True))
    assert got == 5


@pytest.mark.parametrize("shapes", [((3, 1), (4,)), ((2, 3, 4), (3, 1)), ((1,), (2, 2)), ((), (3,))])
def test_broadcasting(shapes):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in shapes)
    (got,) = run(_module(op.maximum, a, b), a, b, canonical=False)
    assert np.array_equal(got, np.maximum(a, b))


@pytest.mark.parametrize("place", range(4))
def test_reductions_keep_nan(place):
    x = np.array([2, 1, 7, 4], "float32")
    x[place] = NAN
    x = np.stack([x, [5, -INF, 3, 3]]).astype("float32")
    _check(lambda v: op.max(v, [1]), [x], x.max(1))
    _check(lambda v: op.min(v, [1]), [x], x.min(1))
    _check(lambda v: op.argmax(v, 1), [x], x.argmax(1))
    _check(lambda v: op.argmin(v, 1), [x], x.argmin(1))


def test_first_of_two_nans_and_of_equals_wins():
    x = np.array([[1, NAN, NAN, 9], [3, 3, 3, 3], [-INF, -INF, -INF, -INF]], "float32")
    _check(lambda v: op.argmax(v, 1), [x], [1, 0, 0])
    _check(lambda v: op.argmin(v, 1), [x], [1, 0, 0])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_reductions_of_numbers(axis, keepdims, dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(-20, 20, (3, 4, 5)).astype(dtype)
    axes = None if axis is None else [axis]
    _check(lambda v: op.max(v, axes, keepdims), [x], x.max(axis, keepdims=keepdims))
    _check(lambda v: op.min(v, axes, keepdims), [x], x.min(axis, keepdims=keepdims))
    _check(lambda v: op.argmax(v, axis, keepdims), [x], x.argmax(axis, keepdims=keepdims))
    _check(lambda v: op.sum(v, axes, keepdims), [x], x.sum(axis, keepdims=keepdims, dtype=dtype))
    if dtype == "float32":
        _check(
            lambda v: op.mean(v, axes, keepdims), [x], x.mean(axis, keepdims=keepdims), rtol=1e-6, atol=1e-6
        )


def test_half_precision_sums_are_kept_in_single():
    x = np.full((1, 4096), 1.0, "float16")
    _check(lambda v: op.sum(v, [1]), [x], np.array([4096], "float16"))
    _check(lambda v: op.mean(v, [1]), [x * 100], np.array([100], "float16"))


@pytest.mark.parametrize(
    ("name", "value"), [("sum", 0), ("prod", 1), ("max", -INF), ("min", INF), ("mean", NAN)]
)
def test_empty_axis_gives_the_identity(name, value):
    x = np.zeros((2, 0, 3), "float32")
    for axis, shape in (([1], (2, 3)), (None, ())):
        (got,) = run(_module(lambda v, a=axis: getattr(op, name)(v, a), x), x, canonical=False)
        assert got.shape == shape
        assert np.array_equal(got, np.full(shape, value, "float32"), equal_nan=True)


def test_empty_axis_of_integers_gives_the_extreme():
    x = np.zeros((2, 0), "int8")
    assert run(_module(lambda v: op.max(v, [1]), x), x)[0].tolist() == [-128, -128]
    assert run(_module(lambda v: op.min(v, [1]), x), x)[0].tolist() == [127, 127]


@pytest.mark.parametrize("name", ["group_norm", "instance_norm"])
def test_normalising_nothing(name):
    x, scale = np.zeros((1, 4, 0, 3), "float32"), np.ones(4, "float32")
    groups = {"num_groups": 2} if name == "group_norm" else {}

    def body(value, weight):
        return getattr(op.nn, name)(value, weight, weight, channel_axis=1, axes=[2, 3], **groups)

    (got,) = run(_module(body, x, scale), x, scale, canonical=False)
    assert got.shape == x.shape


DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_division_never_traps(name, dtype):
    lowest = np.iinfo(dtype).min
    a = np.array([7, -7, 7, -7, 5, 0, lowest, lowest, lowest], dtype)
    b = np.array([2, 2, -2, -2, 0, 0, -1, 0, 1], dtype)
    expected = {
        "divide": [3, -3, -3, 3, 0, 0, lowest, 0, lowest],
        "floor_divide": [3, -4, -4, 3, 0, 0, lowest, 0, lowest],
        "mod": [1, -1, 1, -1, 0, 0, 0, 0, 0],
        "floor_mod": [1, 1, -1, -1, 0, 0, 0, 0, 0],
    }[name]
    _check(getattr(op, name), [a, b], np.array(expected, dtype))


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_of_unsigned(name):
    a, b = np.array([7, 255, 5], "uint8"), np.array([2, 10, 0], "uint8")
    expected = [3, 25, 0] if "divide" in name else [1, 5, 0]
    _check(getattr(op, name), [a, b], np.array(expected, "uint8"))


@pytest.mark.parametrize("divisor", [0, -1, 3])
def test_division_by_a_number(divisor):
    a = np.array([7, -7, -(2**31)], "int32")
    c = relax.const(divisor, "int32")
    expected = {0: [0, 0, 0], -1: [-7, 7, -(2**31)], 3: [2, -2, -715827882]}[divisor]
    _check(lambda x: op.divide(x, c), [a], np.array(expected, "int32"))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_floats_over_the_number_zero(zero):
    a = np.array([1, -2, 0, -0.0, NAN, INF, -INF], "float32")
    with np.errstate(all="ignore"):
        expected = a / np.float32(zero)
    _check(lambda x: op.divide(x, relax.const(zero, "float32")), [a], expected)


def test_a_number_divided():
    b = np.array([0, -1, 3], "int32")
    _check(lambda x: op.divide(relax.const(20, "int32"), x), [b], np.array([0, -20, 6], "int32"))


def test_shifts_beyond_the_width():
    a, b = np.array([1, 1, -8, -8], "int32"), np.array([3, 40, 1, 33], "int32")
    _check(op.left_shift, [a, b], np.array([8, 0, -16, 0], "int32"))
    _check(op.right_shift, [a, b], np.array([0, 0, -4, -1], "int32"))


def _softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis):
    x = np.random.default_rng(2).standard_normal((3, 4, 5)).astype("float32") * 30
    _check(lambda v: op.nn.softmax(v, axis), [x], _softmax(x, axis), rtol=1e-5, atol=1e-7)
    wide = x.astype("float64")
    logs = (wide - wide.max(axis, keepdims=True)) - np.log(
        np.exp(wide - wide.max(axis, keepdims=True)).sum(axis, keepdims=True)
    )
    _check(lambda v: op.nn.log_softmax(v, axis), [x], logs.astype("float32"), rtol=1e-5, atol=1e-5)


def test_softmax_of_nan_and_infinity():
    x = np.array([[1, NAN, 2], [-INF, 0, -INF], [INF, 0, 1]], "float32")
    with np.errstate(invalid="ignore"):
        expected = _softmax(x, 1)
    _check(lambda v: op.nn.softmax(v, 1), [x], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm_of_a_large_mean(dtype):
    rng = np.random.default_rng(3)
    shift = 3000 if dtype == "float32" else 100
    x = (rng.standard_normal((4, 6, 8)) + shift).astype(dtype)
    gamma, beta = (rng.standard_normal((6, 8)).astype(dtype) for _ in range(2))
    wide = x.astype("float64")
    centred = wide - wide.mean((1, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((1, 2), keepdims=True) + 1e-5) * gamma + beta
    tolerance = 2e-3 if dtype == "float32" else 2e-2
    _check(
        lambda v: op.nn.layer_norm(v, make_constant(gamma), make_constant(beta), [1, 2], 1e-5),
        [x],
        expected.astype(dtype),
        atol=tolerance,
    )


def test_activations():
    x = np.array([-100, -3, -0.5, 0, 0.5, 3, 100, NAN], "float32")
    with np.errstate(over="ignore"):
        logistic = 1 / (1 + np.exp(-x))
        _check(op.sigmoid, [x], logistic, rtol=1e-6, atol=1e-7)
        _check(op.nn.silu, [x], x * logistic, rtol=1e-6, atol=1e-6)


def test_an_index_out_of_range_is_clamped():
    x = np.arange(12, dtype="float32").reshape(3, 4)
    index = np.array([1, 9, -5], "int64")
    _check(lambda v: op.take(v, make_constant(index), axis=1), [x], x[:, [1, 3, 0]])
    _check(lambda v: op.take(v, relax.const(9, "int64"), axis=1), [x], x[:, 3])
    (got,) = run(_module(lambda v, i: op.take(v, i, axis=0), x, index), x, index)
    assert np.array_equal(got, x[[1, 2, 0]])
    each = np.array([[1, 9, -5]] * 3, "int64")
    (got,) = run(_module(lambda v, i: op.gather_elements(v, i, axis=-1), x, each), x, each)
    assert np.array_equal(got, x[:, [1, 3, 0]])
    pairs = np.array([[2, 9], [-1, 1]], "int64")
    (got,) = run(_module(op.gather_nd, x, pairs), x, pairs)
    assert got.tolist() == [11.0, 1.0]


def test_inside_a_primitive_function():
    bb = relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    with bb.function("group", [x], attrs={"Primitive": True}, private=True):
        with bb.dataflow():
            y = bb.emit(op.nn.softmax(x, -1))
            y = bb.emit_output(op.maximum(y, relax.const(0.25, "float32")))
        bb.emit_func_output(y)
    group = bb.get().get_global_var("group")
    m = tirx.Var("m", "int64")
    z = relax.Var("z", relax.TensorType([m, 4], "float32"))
    with bb.function("main", [z]):
        with bb.dataflow():
            r = bb.emit_output(relax.Call(group, [z]))
        bb.emit_func_output(r)
    mod = relax.transform.LegalizeOps(legalize_map(Options(), None))(bb.get())
    mod = relax.transform.FuseTIR()(mod)
    built = tvm.compile(mod, "llvm", relax_pipeline=relax.pipeline.default_build_pipeline())
    data = np.random.default_rng(4).standard_normal((3, 4)).astype("float32")
    got = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
    np.testing.assert_allclose(got, np.maximum(_softmax(data, 1), 0.25), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 0), (0, 4)])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("operator", [op.cumsum, op.cumprod])
def test_scans_of_nothing(shape, axis, operator):
    x = np.zeros(shape, "float32")
    _check(lambda v: operator(v, axis=axis), [x], np.cumsum(x, axis))


def test_nothing_to_scatter():
    x = np.arange(24, dtype="float32").reshape(4, 6)
    for shape, operator in (((0, 1), op.scatter_nd), ((0, 6), op.scatter_elements)):
        index, update = np.zeros(shape, "int64"), np.zeros((0, 6), "float32")
        (got,) = run(_module(operator, x, index, update), x, index, update)
        assert np.array_equal(got, x)


def test_a_write_out_of_range_is_clamped():
    x, update = np.zeros((3, 4), "float32"), np.array([[1, 2, 3]], "float32")
    index = np.array([[0, 9, -9]], "int64")
    (got,) = run(
        _module(lambda d, i, u: op.scatter_elements(d, i, u, axis=1), x, index, update), x, index, update
    )
    assert got[0].tolist() == [3.0, 0.0, 0.0, 2.0] and not got[1:].any()
    pairs, values = np.array([[1, 1], [7, -8], [-1, 2]], "int64"), np.array([5, 6, 7], "float32")
    (got,) = run(_module(lambda d, i, u: op.scatter_nd(d, i, u), x, pairs, values), x, pairs, values)
    assert got[1, 1] == 5.0 and got[2, 0] == 6.0 and got[0, 2] == 7.0 and np.count_nonzero(got) == 3


def test_nan_differs_from_everything():
    a, b = np.array([NAN, 1, NAN, 2], "float32"), np.array([NAN, 1, 3, NAN], "float32")
    _check(op.not_equal, [a, b], a != b)
    _check(op.equal, [a, b], a == b)
    _check(lambda x: op.not_equal(x, relax.const(1.0, "float32")), [a], a != 1)


def test_truth_values_compare():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    _check(op.not_equal, [a, b], a != b)
    _check(op.equal, [a, b], a == b)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_and_instance_norm_of_a_large_mean(groups):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((2, 6, 3, 4)) + 2000).astype("float32")
    gamma, beta = (rng.standard_normal(6).astype("float32") for _ in range(2))
    wide = x.astype("float64").reshape(2, groups, 6 // groups, 3, 4)
    centred = wide - wide.mean((2, 3, 4), keepdims=True)
    normed = centred / np.sqrt((centred**2).mean((2, 3, 4), keepdims=True) + 1e-5)
    expected = normed.reshape(x.shape) * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1)
    g, b = make_constant(gamma), make_constant(beta)
    _check(
        lambda v: op.nn.group_norm(v, g, b, groups, 1, [2, 3], 1e-5),
        [x],
        expected.astype("float32"),
        atol=2e-3,
    )
    if groups == 6:
        _check(
            lambda v: op.nn.instance_norm(v, g, b, 1, [2, 3], 1e-5),
            [x],
            expected.astype("float32"),
            atol=2e-3,
        )


def test_rms_norm():
    x = np.random.default_rng(6).standard_normal((3, 8)).astype("float32")
    weight = np.arange(8, dtype="float32")
    expected = x / np.sqrt((x.astype("float64") ** 2).mean(1, keepdims=True) + 1e-5) * weight
    _check(
        lambda v: op.nn.rms_norm(v, make_constant(weight), [-1], 1e-5),
        [x],
        expected.astype("float32"),
        rtol=1e-5,
    )


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
def test_integer_mean_keeps_its_dtype_and_rounds_towards_zero(dtype):
    x = np.array([[1, 2, 5], [-1, -2, -5], [100, 101, 102]] * 2).astype(dtype)
    expected = np.trunc(x.astype("float64").mean(1)).astype(dtype)
    _check(lambda v: op.mean(v, 1), [x], expected)
    _check(lambda v: op.mean(v, 0), [x], np.trunc(x.astype("float64").mean(0)).astype(dtype))
