"""Max pooling against numpy windows: NaN, infinities, padding, dilation, layouts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import tvmpass
from tests.frontends.models import run
from tvmpass.compile.legalize import legalize_map
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options

op = relax.op
RNG = np.random.default_rng(0)


def _module(shape, dtype="float32", symbolic=False, **attributes) -> tvm.IRModule:
    bb = relax.BlockBuilder()
    dims = [tirx.Var("n", "int64"), *shape[1:]] if symbolic else list(shape)
    x = relax.Var("x", relax.TensorType(dims, dtype))
    with bb.function("main", [x]):
        with bb.dataflow():
            result = bb.emit_output(getattr(op.nn, f"max_pool{len(shape) - 2}d")(x, **attributes))
        bb.emit_func_output(result)
    return bb.get()


def _expected(x, pool_size, strides, padding=None, dilation=None, ceil_mode=False):
    """Return the pooled channels-first array, window by window."""
    rank = len(pool_size)
    padding, dilation = padding or [0] * 2 * rank, dilation or [1] * rank
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    reach = [d * (k - 1) + 1 for k, d in zip(pool_size, dilation)]
    spare = [x.shape[2 + i] + padding[i] + padding[i + rank] - reach[i] for i in range(rank)]
    counts = [(s + (t - 1 if ceil_mode else 0)) // t + 1 for s, t in zip(spare, strides)]
    widths = [(padding[i], padding[i + rank] + strides[i]) for i in range(rank)]
    padded = np.pad(x, [(0, 0), (0, 0), *widths], constant_values=low)
    out = np.empty((*x.shape[:2], *counts), x.dtype)
    for place in np.ndindex(*counts):
        window = [slice(p * t, p * t + r, d) for p, t, r, d in zip(place, strides, reach, dilation)]
        out[(..., *place)] = padded[(..., *window)].max(axis=tuple(range(2, 2 + rank)))
    return out


CASES = {
    "plain": {"pool_size": [3, 3], "strides": [1, 1]},
    "padded": {"pool_size": [3, 3], "strides": [2, 2], "padding": [1, 1, 1, 1]},
    "uneven": {"pool_size": [3, 2], "strides": [2, 1], "padding": [0, 1, 2, 0]},
    "dilated": {"pool_size": [2, 3], "strides": [1, 1], "dilation": [2, 3]},
    "ceil": {"pool_size": [3, 2], "strides": [2, 3], "ceil_mode": True},
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_nan_and_infinities(name, symbolic):
    x = RNG.normal(size=(2, 3, 9, 11)).astype("float32")
    x[0, 0, 4, 4], x[0, 1] = np.nan, -np.inf
    made = _module(x.shape, symbolic=symbolic, **CASES[name])
    np.testing.assert_array_equal(run(made, x, canonical=False)[0], _expected(x, **CASES[name]))


def test_channels_last():
    x = RNG.normal(size=(1, 9, 11, 4)).astype("float32")
    x[0, 0, 0, 1] = np.nan
    made = _module(x.shape, layout="NHWC", **CASES["padded"])
    expected = _expected(x.transpose(0, 3, 1, 2), **CASES["padded"]).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(run(made, x, canonical=False)[0], expected)


@pytest.mark.parametrize("spatial", [(7,), (5, 4, 6)])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_other_ranks_and_dtypes(spatial, dtype):
    x = (RNG.normal(size=(1, 2, *spatial)) * 9 - 20).astype(dtype)
    rank = len(spatial)
    attributes = {"pool_size": [2] * rank, "strides": [2] * rank, "padding": [1] * 2 * rank}
    made = _module(x.shape, dtype, **attributes)
    np.testing.assert_array_equal(run(made, x, canonical=False)[0], _expected(x, **attributes))


@pytest.mark.parametrize("fast_math", [False, True])
def test_kernels_are_poolings(fast_math):
    made = _module((1, 9, 11, 4), layout="NHWC", **CASES["padded"])
    options = Options(fast_math=fast_math)
    lowered = relax.transform.LegalizeOps(legalize_map(options, tvm.target.Target("llvm")))(made)
    (kernel,) = [f for f in lowered.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert classify(kernel).kind == "pool"


def test_ceil_mode_starts_no_window_beyond_the_input():
    x = RNG.normal(size=(1, 2, 13)).astype("float32")
    made = _module(x.shape, pool_size=[2], strides=[5], ceil_mode=True)
    expected = _expected(x, [2], [5])
    (got,) = run(made, x, canonical=False)
    assert got.shape == (1, 2, 3)
    np.testing.assert_array_equal(got[..., :2], expected[..., :2])


def test_axes_in_another_order():
    x = RNG.normal(size=(2, 3, 6, 7)).astype("float32")
    mod = _module((7, 2, 6, 3), pool_size=[3, 2], strides=[2, 1], layout="WNHC")
    made = relax.transform.LegalizeOps(legalize_map(Options(), None))(mod)
    (got,) = run(made, x.transpose(3, 0, 2, 1).copy(), canonical=False)
    np.testing.assert_array_equal(got, _expected(x, [3, 2], [2, 1]).transpose(3, 0, 2, 1))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_averages_of_integers_truncate_in_their_dtype(dtype, include):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 2, 4, 4], dtype))
    with bb.function("main", [x]):
        with bb.dataflow():
            attributes = {"strides": [2, 2], "padding": [1, 1, 1, 1], "count_include_pad": include}
            result = bb.emit_output(op.nn.avg_pool2d(x, [2, 2], **attributes))
        bb.emit_func_output(result)
    data = RNG.integers(-50, 50, (1, 2, 4, 4)).astype(dtype)
    total = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(1, 2, 3, 2, 3, 2).sum((3, 5))
    count = np.full((3, 3), 4) if include else np.outer([1, 2, 1], [1, 2, 1])
    (found,) = run(bb.get(), data)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.sign(total) * (np.abs(total) // count))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_dilated_averages_count_what_lies_in_the_input(dtype, layout):
    x = (RNG.normal(size=(1, 2, 8)) * 9).astype(dtype)
    bb = relax.BlockBuilder()
    stored = x if layout == "NCW" else x.transpose(0, 2, 1).copy()
    v = relax.Var("x", relax.TensorType(stored.shape, dtype))
    with bb.function("main", [v]):
        with bb.dataflow():
            pooled = op.nn.avg_pool1d(v, [4], [4], [2, 1], [2], layout=layout, count_include_pad=False)
            result = bb.emit_output(pooled)
        bb.emit_func_output(result)
    got = tvmpass.build(bb.get(), target="llvm").run(x=stored)[0]
    # Windows 0 and 1 hold elements 0, 2, 4 and 2, 4, 6.
    expected = np.stack([x[..., :5:2].sum(-1) / 3, x[..., 2:7:2].sum(-1) / 3], axis=-1)
    expected = np.trunc(expected) if dtype == "int32" else expected
    expected = expected if layout == "NCW" else expected.transpose(0, 2, 1)
    np.testing.assert_allclose(got, expected.astype(dtype), rtol=1e-6)
