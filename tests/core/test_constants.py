"""Numpy evaluation of Relax calls: values, dtypes, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx

from tvmpass.core.constants import constant_array, evaluate, fold, make_constant

op = relax.op


def _fold(expr) -> np.ndarray | None:
    """Normalise a call on constants (nested calls are folded first) and fold it."""
    if isinstance(expr, relax.Call):
        args = [_inner(arg) for arg in expr.args]
        call = relax.BlockBuilder().normalize(relax.Call(expr.op, args, expr.attrs, list(expr.ty_args)))
        folded = fold(call, lambda value: value)
        return None if folded is None else constant_array(folded)
    return constant_array(expr)


def _inner(arg):
    return make_constant(_fold(arg)) if isinstance(arg, relax.Call) else arg


def const(values, dtype: str = "float32"):
    return make_constant(np.array(values, dtype))


F = np.array([[1.5, np.nan, -3.0], [0.0, -0.0, np.inf]], np.float32)
I = np.array([[7, -7, 5], [-5, 0, 9]], np.int32)  # noqa: E741


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
def test_make_constant_keeps_dtype_and_shape(dtype):
    for shape in ((), (1,), (2, 0), (2, 3)):
        array = np.ones(shape, dtype)
        made = make_constant(array)
        assert str(made.ty.dtype) == dtype
        assert constant_array(made).shape == shape


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: op.reshape(x, [3, 2]), lambda a: a.reshape(3, 2)),
        (lambda x: op.permute_dims(x), lambda a: a.T),
        (lambda x: op.expand_dims(x, [0, 3]), lambda a: a[None, :, :, None]),
        (lambda x: op.squeeze(op.expand_dims(x, 0)), lambda a: a),
        (lambda x: op.broadcast_to(x, [2, 2, 3]), lambda a: np.broadcast_to(a, (2, 2, 3))),
        (lambda x: op.concat([x, x], axis=1), lambda a: np.concatenate([a, a], 1)),
        (lambda x: op.strided_slice(x, [1], [2], [-9], [-1]), lambda a: a[:, ::-1]),
        (lambda x: op.strided_slice(x, [0, 1], [0, 1], [1, 3]), lambda a: a[0:1, 1:3]),
        (lambda x: op.take(x, const([2, 0], "int64"), axis=1), lambda a: a[:, [2, 0]]),
        (lambda x: op.maximum(x, const(0.0)), lambda a: np.maximum(a, np.float32(0))),
        (lambda x: op.where(op.isnan(x), const(9.0), x), lambda a: np.where(np.isnan(a), np.float32(9), a)),
        (lambda x: op.clip(x, -1, 1), lambda a: np.clip(a, np.float32(-1), np.float32(1))),
        (lambda x: op.nn.relu(x), lambda a: np.maximum(a, np.float32(0))),
        (lambda x: op.max(x, [1]), lambda a: a.max(1)),
        (lambda x: op.sum(x, [0], keepdims=True), lambda a: a.sum(0, keepdims=True)),
        (lambda x: op.flip(x, 1), lambda a: a[:, ::-1]),
        (lambda x: op.tile(x, [2, 1]), lambda a: np.tile(a, (2, 1))),
        (lambda x: op.full_like(x, const(2.0)), lambda a: np.full_like(a, 2)),
    ],
)
def test_same_as_numpy(call, expected):
    result = _fold(call(make_constant(F)))
    wanted = expected(F)
    assert result.dtype == wanted.dtype
    assert np.array_equal(result, wanted, equal_nan=True)


def test_negative_zero_survives():
    assert np.signbit(_fold(op.reshape(const([-0.0]), [1, 1])))[0, 0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integer_division_never_traps(dtype):
    lowest = np.iinfo(dtype).min
    a, b = const([7, -7, 7, 5, lowest], dtype), const([2, 2, -2, 0, -1], dtype)
    assert _fold(op.divide(a, b)).tolist() == [3, -3, -3, 0, lowest]
    assert _fold(op.floor_divide(a, b)).tolist() == [3, -4, -4, 0, lowest]
    assert _fold(op.mod(a, b)).tolist() == [1, -1, 1, 0, 0]
    assert _fold(op.floor_mod(a, b)).tolist() == [1, 1, -1, 0, 0]


@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "uint8", "float64"])
def test_arithmetic_keeps_the_dtype(dtype):
    a = const([100, 3], dtype)
    for call in (op.add(a, a), op.multiply(a, a), op.subtract(a, a), op.divide(a, a)):
        assert str(_fold(call).dtype) == dtype


def test_casts():
    assert _fold(op.astype(make_constant(I), "float16")).dtype == np.float16
    assert _fold(op.astype(const([1.9, -1.9]), "int32")).tolist() == [1, -1]
    # What the result would be is not fixed by anything.
    assert _fold(op.astype(const([np.nan]), "int32")) is None
    assert _fold(op.astype(const([3e9]), "int32")) is None
    assert _fold(op.astype(const([300.0]), "uint8")) is None


def test_shape_to_tensor_needs_numbers():
    bb = relax.BlockBuilder()
    known = bb.normalize(op.shape_to_tensor(relax.ShapeExpr([2, 3])))
    assert evaluate(known, [None]).tolist() == [2, 3]
    n = tirx.Var("n", "int64")
    open_shape = bb.normalize(op.shape_to_tensor(relax.ShapeExpr([n, 3])))
    assert evaluate(open_shape, [None]) is None


def test_index_out_of_range_is_left_alone():
    assert _fold(op.take(make_constant(F), const([3], "int64"), axis=1)) is None
    assert _fold(op.take(make_constant(F), const([-1], "int64"), axis=1)) is None


def test_empty_extremes_are_left_alone():
    empty = const(np.zeros((2, 0)))
    assert _fold(op.max(empty, [1])) is None
    assert _fold(op.sum(empty, [1])).tolist() == [0.0, 0.0]


def test_memory_is_bounded():
    small = const([1.0])
    assert _fold(op.broadcast_to(small, [100])).shape == (100,)
    assert _fold(op.broadcast_to(small, [1 << 20, 1 << 20])) is None
    large = make_constant(np.zeros((1 << 16,), np.float32))
    assert _fold(op.add(large, const(1.0))) is not None
    assert _fold(op.broadcast_to(large, [64, 1 << 16])) is None


def test_unknown_operators_and_variables_are_left_alone():
    x = relax.Var("x", relax.TensorType([2], "float32"))
    call = relax.BlockBuilder().normalize(op.add(x, const([1.0, 2.0])))
    assert fold(call, lambda value: value) is None
    assert _fold(op.cumsum(const([1.0, 2.0]))) is None
