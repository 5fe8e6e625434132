"""Operators that write by index."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..table import CannotConvert, Emitter, Table
from .facts import dtype_of, is_float, is_integer, normal_axis, rank_of, shape_of
from .shapes import cast, is_empty, require_same, transposed, wide_indices

op = relax.op
TABLE = Table()

_ELEMENT_MODES = ("update", "add", "mul", "mean", "min", "max")
_TUPLE_MODES = ("update", "add", "mul", "min", "max")


def _checked(emit: Emitter, x: Any, indices: Any, updates: Any) -> Any:
    if not is_integer(dtype_of(indices)):
        raise CannotConvert(f"indices of dtype {dtype_of(indices)}")
    if dtype_of(updates) != dtype_of(x):
        raise CannotConvert(f"updates of dtype {dtype_of(updates)} for a tensor of {dtype_of(x)}")
    return wide_indices(emit, indices)


def _along_axis(emit: Emitter, attrs, x: Any, indices: Any, updates: Any, mode: str) -> Any:
    shape, index_shape = shape_of(x), shape_of(indices)
    axis = normal_axis(int(attrs.get("axis") or 0), len(shape))
    if mode not in _ELEMENT_MODES:
        raise CannotConvert(f"reduction {mode!r} is not known")
    if mode == "mean" and not is_float(dtype_of(x)):
        raise CannotConvert(f"a mean of {dtype_of(x)}")
    if not len(shape) == len(index_shape) == rank_of(updates):
        raise CannotConvert(
            f"tensor, indices and updates of rank {len(shape)}, {len(index_shape)}, {rank_of(updates)}"
        )
    for i, (one, other) in enumerate(zip(index_shape, shape_of(updates))):
        require_same(one, other, f"the sizes of axis {i} of indices and updates")
    indices = _checked(emit, x, indices, updates)
    if is_empty(index_shape) or is_empty(shape):
        return x
    for i, (one, other) in enumerate(zip(index_shape, shape)):
        fits = isinstance(one, int) and isinstance(other, int) and one <= other
        if i != axis and not fits:
            require_same(one, other, f"the sizes of axis {i} of indices and tensor")
    return op.scatter_elements(x, indices, updates, axis, mode)


@TABLE.operator("scatter_elements")
def scatter_elements(emit, attrs, x, indices, updates):
    return _along_axis(emit, attrs, x, indices, updates, attrs.word("reduction") or "update")


@TABLE.operator("scatter")
def scatter(emit, attrs, x, indices, updates):
    return _along_axis(emit, attrs, x, indices, updates, "update")


@TABLE.operator("scatter_add")
def scatter_add(emit, attrs, x, indices, updates):
    return _along_axis(emit, attrs, x, indices, updates, "add")


@TABLE.operator("scatter_nd")
def scatter_nd(emit, attrs, x, indices, updates):
    """Convert from index tuples along the first axis to index tuples along the last."""
    shape, index_shape, mode = shape_of(x), shape_of(indices), attrs.word("mode") or "update"
    if mode not in _TUPLE_MODES:
        raise CannotConvert(f"mode {mode!r} is not known")
    count = index_shape[0] if index_shape else None
    if not isinstance(count, int) or not 1 <= count <= len(shape):
        raise CannotConvert(f"index tuples of {count} for a tensor of rank {len(shape)}")
    expected = [*index_shape[1:], *shape[count:]]
    if len(expected) != rank_of(updates):
        raise CannotConvert(f"updates of rank {rank_of(updates)} where {len(expected)} is needed")
    for i, (one, other) in enumerate(zip(expected, shape_of(updates))):
        require_same(one, other, f"the sizes of axis {i} of the updates and what they replace")
    indices = cast(emit, _checked(emit, x, indices, updates), "int64")
    if is_empty(expected) or is_empty(shape):
        return x
    return op.scatter_nd(x, transposed(emit, indices, [*range(1, len(index_shape)), 0]), updates, mode)
