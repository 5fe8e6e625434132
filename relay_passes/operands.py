"""Read the operands of Relax calls: constants on either side, one-element values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm

from tvmpass.core.constants import make_constant
from tvmpass.core.site import FunctionView, op_name


def call_of(view: FunctionView, expr, *operators: str):
    """Return the call behind ``expr`` if it is to one of ``operators``, else None."""
    value = view.value(expr)
    return value if op_name(value) in operators else None


def array_of(view: FunctionView, expr) -> np.ndarray | None:
    """Return the constant behind ``expr`` as an array, else None."""
    value = view.value(expr)
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def uniform_of(view: FunctionView, expr) -> np.generic | None:
    """Return the one value that all elements of a constant share, bit for bit, else None."""
    array = array_of(view, expr)
    if array is None or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    return first if array.size == 1 or _same_bits(array) else None


def number_of(view: FunctionView, expr) -> float | None:
    """Return a constant whose elements are all equal as a Python float, else None."""
    value = uniform_of(view, expr)
    return None if value is None else float(value)


def either_order(call) -> Iterator[tuple]:
    """Yield the two operands of a binary call in both orders."""
    first, second = call.args
    yield first, second
    yield second, first


def with_number(view: FunctionView, expr, operator: str) -> tuple | None:
    """Return ``(operand, number)`` of a commutative call with one uniform constant."""
    call = call_of(view, expr, operator)
    if call is None:
        return None
    for operand, constant in either_order(call):
        number = number_of(view, constant)
        if number is not None:
            return operand, number
    return None


def with_divisor(view: FunctionView, expr) -> tuple | None:
    """Return ``(dividend, number)`` of a division by a uniform constant."""
    call = call_of(view, expr, "relax.divide")
    if call is None:
        return None
    number = number_of(view, call.args[1])
    return None if number is None else (call.args[0], number)


def constant(array: np.ndarray, dtype: str | None = None):
    """Return a Relax constant of exactly ``dtype`` (the array's by default)."""
    return make_constant(np.asarray(array).astype(dtype or array.dtype, copy=False))


def axes_of(axes, rank: int) -> tuple[int, ...]:
    """Return reduction axes as sorted non-negative ints; None means all."""
    if axes is None:
        return tuple(range(rank))
    return tuple(sorted(int(a) % rank for a in axes))


def axes_of_transpose(call) -> list[int]:
    """Return the axes of a ``permute_dims``; without any it reverses them."""
    rank = call.args[0].ty.ndim
    axes = call.attrs.axes
    return [int(a) % rank for a in axes] if axes is not None else list(range(rank))[::-1]


def _same_bits(array: np.ndarray) -> bool:
    """Return True where all elements are equal bit for bit: NaN equals itself, zeros differ by sign."""
    rows = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
    return bool((rows[-1] == rows[0]).all() and (rows == rows[0]).all())
