"""What numpy folds is what the built kernel would have given."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.frontends.models import run
from tvmpass.core.constants import _NUMPY_BINARY, _NUMPY_UNARY, constant_array, fold, make_constant

FLOATS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.7, 88.0, np.inf, -np.inf, np.nan], np.float32)
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, 100, -(2**31), 2**31 - 1], np.int32)
TRUTHS = np.array([True, False])
# Their float results come from different approximations.
TOLERANCE = {"float32": 2e-6}


def _samples(name: str) -> list[np.ndarray]:
    if name.startswith("logical"):
        return [TRUTHS]
    if name.startswith("bitwise"):
        return [INTEGERS]
    if name in (
        "isnan",
        "isinf",
        "isfinite",
        "ceil",
        "floor",
        "round",
        "trunc",
        "power",
        "erf",
        "rsqrt",
        "sqrt",
    ):
        return [FLOATS]
    if name in ("exp", "log", "cos", "sin", "tanh", "sigmoid"):
        return [FLOATS[np.abs(np.nan_to_num(FLOATS, nan=0)) <= 88]]
    return [FLOATS, INTEGERS]


def _compare(name: str, arrays: list[np.ndarray]):
    operator = tvm.ir.Op.get(f"relax.{name}")
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(relax.Call(operator, params))
        bb.emit_func_output(result)
    (built,) = run(bb.get(), *arrays)
    call = relax.BlockBuilder().normalize(relax.Call(operator, [make_constant(a) for a in arrays]))
    folded = constant_array(fold(call, lambda value: value))
    assert folded.dtype == built.dtype
    if built.dtype.kind == "f":
        # One rounding apart at most, and NaN and infinity at the same places.
        np.testing.assert_allclose(folded, built, rtol=TOLERANCE["float32"], atol=1e-7, equal_nan=True)
    else:
        assert np.array_equal(folded, built)


@pytest.mark.parametrize("name", sorted(_NUMPY_UNARY))
def test_unary(name):
    for sample in _samples(name):
        if sample.dtype.kind == "i" and name == "rsqrt":
            continue
        _compare(name, [sample])


@pytest.mark.parametrize("name", sorted(_NUMPY_BINARY))
def test_binary(name):
    for sample in _samples(name):
        left, right = (grid.reshape(-1) for grid in np.meshgrid(sample, sample))
        if name in ("mod", "floor_mod") and sample.dtype.kind == "f":
            left, right = left[np.isfinite(left)], right[np.isfinite(left)]
            left, right = left[np.isfinite(right) & (right != 0)], right[np.isfinite(right) & (right != 0)]
        _compare(name, [np.ascontiguousarray(left), np.ascontiguousarray(right)])
