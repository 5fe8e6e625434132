"""What the types of values say: dtypes, shapes and axes, as converters need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from ..table import CannotConvert

Dim = Any
"""A size: an int where it is known, else a symbolic expression."""


def dtype_of(value) -> str:
    """Return the dtype of a tensor."""
    return str(value.ty.dtype)


def shape_of(value) -> list[Dim]:
    """Return the shape of a tensor, known sizes as int.

    Raises `CannotConvert` where not even its rank is known.
    """
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise CannotConvert("an operand's shape is not known")
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in shape.values]


def static_shape(value) -> list[int] | None:
    """Return the shape of a tensor where every size is known, else None."""
    shape = shape_of(value)
    return None if any(not isinstance(dim, int) for dim in shape) else [int(dim) for dim in shape]


def rank_of(value) -> int:
    """Return the number of axes of a tensor."""
    return len(shape_of(value))


def is_float(dtype: str) -> bool:
    """Return True for floating point dtypes, bfloat16 among them."""
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Return True for signed and unsigned integers; bool is none."""
    return dtype.startswith(("int", "uint"))


def is_unsigned(dtype: str) -> bool:
    """Return True for unsigned integers."""
    return dtype.startswith("uint")


def integer_limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer dtype."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def require_float(value) -> None:
    """Raise `CannotConvert` where a tensor is not floating point."""
    if not is_float(dtype_of(value)):
        raise CannotConvert(f"it is not defined on {dtype_of(value)}")


def require_bool(*values) -> None:
    """Raise `CannotConvert` where a tensor is not of dtype bool."""
    for value in values:
        if dtype_of(value) != "bool":
            raise CannotConvert(f"it needs operands of dtype bool, not {dtype_of(value)}")


def normal_axis(axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front; raises `CannotConvert` where there is no such axis."""
    if not -rank <= axis < rank:
        raise CannotConvert(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from the front, in ascending order, each once."""
    return sorted({normal_axis(axis, rank) for axis in axes})


def product(dims: Sequence[Dim]) -> Dim:
    """Return the product of sizes, an int where all are known."""
    result: Dim = 1
    for dim in dims:
        result = dim if isinstance(result, int) and result == 1 else result * dim
    return result


def as_shape(dims: Sequence[Dim]) -> relax.ShapeExpr:
    """Return sizes as the shape argument of a Relax operator."""
    return relax.ShapeExpr([tirx.IntImm("int64", dim) if isinstance(dim, int) else dim for dim in dims])
