"""What quantised operators share: scales, zero points, saturation, rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..table import CannotConvert
from .elementwise import round_half_away
from .facts import dtype_of, integer_limits, normal_axis, rank_of, static_shape
from .shapes import cast

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
"""The dtypes that a quantised tensor may have."""


def axis_in(axis: int, rank: int) -> int:
    """Return a channel axis counted from the front; a scalar and a vector have axis 0 only."""
    if rank <= 1 and axis in (-1, 0):
        return 0
    return normal_axis(axis, rank)


def along(emit, expr, rank: int, axis: int):
    """Return a scalar or a vector of channels in a shape that broadcasts along ``axis`` of ``rank``."""
    value = emit.array(expr)
    size = value.size if value is not None else elements(expr)
    if size == 1 or rank == 0:
        shape: list[int] = []
    elif rank_of(expr) != 1 and size is None:
        raise CannotConvert("a scale or zero point is neither a scalar nor a vector of channels")
    else:
        shape = [1] * rank
        shape[axis] = size if size is not None else -1
    if value is not None:
        return emit.const(value.reshape(shape), str(value.dtype))
    if rank_of(expr) == len(shape) and len(shape) <= 1:
        return expr
    return emit(relax.op.reshape(expr, shape))


def elements(expr) -> int | None:
    """Return the number of elements of a tensor, None where it is not known now."""
    shape = static_shape(expr)
    return None if shape is None else math.prod(shape)


def scalar(emit, expr, what: str) -> float:
    """Return the value of a scale that Relay needs to know; it is one number."""
    value = emit.array(expr)
    if value is None or value.size != 1:
        raise CannotConvert(f"{what} must be one constant")
    return float(value.reshape(()))


def scales(emit, expr, what: str) -> np.ndarray:
    """Return a constant scale, a scalar or one value per channel, as float32 of rank 0 or 1."""
    value = emit.array(expr)
    if value is None:
        raise CannotConvert(f"{what} must be constant")
    return value.astype("float32").reshape(() if value.size == 1 else (-1,))


def is_zero(emit, expr) -> bool:
    """Return True where a zero point is known to be 0 throughout."""
    value = emit.array(expr)
    return value is not None and not value.any()


def shifted(emit, expr, zero_point, dtype: str, axis: int = -1):
    """Return ``expr - zero_point`` in ``dtype``, the zero point along ``axis`` where it is a vector."""
    result = cast(emit, expr, dtype)
    if is_zero(emit, zero_point):
        return result
    rank = rank_of(expr)
    point = cast(emit, along(emit, zero_point, rank, axis_in(axis, rank)), dtype)
    return emit(relax.op.subtract(result, point))


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest value of a quantised dtype."""
    if dtype not in INTEGERS:
        raise CannotConvert(f"{dtype} is no dtype of quantised values; known are {', '.join(INTEGERS)}")
    return integer_limits(dtype)


def saturated(emit, expr, dtype: str):
    """Return an int32 tensor clipped to the range of ``dtype`` and cast to it."""
    low, high = limits(dtype)
    if dtype == "int32":
        return expr
    least = emit(relax.op.maximum(expr, emit.const(low, "int32")))
    return cast(emit, emit(relax.op.minimum(least, emit.const(high, "int32"))), dtype)


def saturated_float(emit, expr, dtype: str):
    """Return a float tensor clipped to the range of ``dtype`` and cast to it.

    By comparison and selection, as Relay's clip is compiled: NaN becomes the
    greatest value, where a cast of NaN to an integer would be anything.
    """
    low, high = (emit.const(value, dtype_of(expr)) for value in limits(dtype))
    below = emit(relax.op.where(emit(relax.op.less(expr, high)), expr, high))
    inside = emit(relax.op.where(emit(relax.op.greater(below, low)), below, low))
    return cast(emit, inside, dtype)


def rounded(emit, expr):
    """Return a float tensor rounded to whole numbers, half away from zero."""
    return emit(round_half_away(emit, None, expr))


def same(emit, pairs: Sequence[tuple]) -> bool:
    """Return True where the two of each pair are constants with equal values."""
    for a, b in pairs:
        left, right = emit.array(a), emit.array(b)
        if left is None or right is None or left.size != 1 or right.size != 1:
            return False
        if left.reshape(()) != right.reshape(()):
            return False
    return True
