"""Operators that read by index, and masks by position; `scatter` has those that write.

Indices out of range are clipped where Relay clips them.  Where Relay reads
outside of the tensor instead (``gather``, mode ``fast``), any value is as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ..table import CannotConvert, Emitter, Table, merged
from . import scatter
from .facts import Dim, as_shape, dtype_of, is_float, is_integer, normal_axis, product, rank_of, shape_of
from .shapes import (
    cast,
    is_empty,
    measured,
    positions,
    require_same,
    reshaped,
    same,
    transposed,
    wide_indices,
)
from .transform import joined, spread

op = relax.op
_OWN = Table()


def _require_indices(*indices: Any) -> None:
    for index in indices:
        if not is_integer(dtype_of(index)):
            raise CannotConvert(f"indices of dtype {dtype_of(index)}")


@_OWN.operator("take")
def take(emit, attrs, x, indices):
    _require_indices(indices)
    batch, mode = int(attrs.batch_dims or 0), attrs.word("mode") or "clip"
    if mode not in ("clip", "wrap", "fast"):
        raise CannotConvert(f"mode {mode!r} is not known")
    if attrs.axis is None:
        x = reshaped(emit, x, [product(shape_of(x))])
        axis, batch = 0, 0
    else:
        axis = normal_axis(int(attrs.axis), rank_of(x))
    indices = wide_indices(emit, indices)
    length = shape_of(x)[axis]
    if mode == "wrap":
        if batch:
            raise CannotConvert("mode wrap with batch_dims")
        indices = _wrapped(emit, indices, length)
    if batch:
        return _batched_take(emit, x, indices, axis, batch)
    shape = [*shape_of(x)[:axis], *shape_of(indices), *shape_of(x)[axis + 1 :]]
    if is_empty(shape):
        return op.zeros(as_shape(shape), dtype_of(x))
    if isinstance(length, int) and length == 0:
        raise CannotConvert("it takes elements of an axis that has none")
    return op.take(x, indices, axis, mode="clip")


def _wrapped(emit: Emitter, indices: Any, length: Dim) -> Any:
    """Return indices counted around an axis, negative ones from its end."""
    if not isinstance(length, int):
        raise CannotConvert("mode wrap needs an axis of known size; give it by --shape")
    if length == 0:
        return indices
    return emit(op.floor_mod(indices, emit.const(length, dtype_of(indices))))


def clipped(emit: Emitter, indices: Any, length: Dim) -> Any:
    """Return indices moved to the nearest place of an axis."""
    dtype = dtype_of(indices)
    if not isinstance(length, int):
        # The reading operator clips as well: only this form states it in the program.
        return indices
    low = emit(op.maximum(indices, emit.const(0, dtype)))
    return emit(op.minimum(low, emit.const(max(length - 1, 0), dtype)))


def _batched_take(emit: Emitter, x: Any, indices: Any, axis: int, batch: int) -> Any:
    """Take where the first ``batch`` axes of tensor and indices run together."""
    shape, index_shape = shape_of(x), shape_of(indices)
    if not 0 < batch <= min(axis, len(index_shape)):
        raise CannotConvert(f"batch_dims {batch} for axis {axis} and indices of rank {len(index_shape)}")
    for i in range(batch):
        require_same(shape[i], index_shape[i], f"the sizes of batch axis {i}")
    between = axis - batch
    x = transposed(emit, x, [*range(batch), axis, *(i for i in range(batch, len(shape)) if i != axis)])
    indices = cast(emit, clipped(emit, indices, shape[axis]), "int64")
    taken = emit(op.gather_nd(x, emit(op.expand_dims(indices, len(index_shape))), batch))
    inner = len(index_shape) - batch
    first, middle = list(range(batch)), [batch + inner + i for i in range(between)]
    rest = range(batch + inner + between, rank_of(taken))
    return transposed(emit, taken, [*first, *middle, *range(batch, batch + inner), *rest])


@_OWN.operator("gather")
def gather(emit, attrs, x, indices):
    _require_indices(indices)
    shape, index_shape = shape_of(x), shape_of(indices)
    axis = normal_axis(int(attrs.axis or 0), len(shape))
    if len(shape) != len(index_shape):
        raise CannotConvert(f"indices of rank {len(index_shape)} for a tensor of rank {len(shape)}")
    for i, (one, other) in enumerate(zip(shape, index_shape)):
        if i != axis:
            require_same(one, other, f"the sizes of axis {i} of tensor and indices")
    if is_empty(index_shape):
        return op.zeros(as_shape(index_shape), dtype_of(x))
    return op.gather_elements(x, wide_indices(emit, indices), axis)


@_OWN.operator("gather_nd")
def gather_nd(emit, attrs, x, indices):
    """Convert from index tuples along the first axis to index tuples along the last."""
    if is_float(dtype_of(indices)):
        indices = cast(emit, indices, "int32")
    _require_indices(indices)
    index_shape, batch = shape_of(indices), int(attrs.batch_dims or 0)
    count = index_shape[0] if index_shape else None
    if (
        not isinstance(count, int)
        or not 1 <= count <= rank_of(x) - batch
        or not 0 <= batch < len(index_shape)
    ):
        raise CannotConvert(
            f"index tuples of {count} for a tensor of rank {rank_of(x)} with batch_dims {batch}"
        )
    for i in range(batch):
        require_same(shape_of(x)[i], index_shape[i + 1], f"the sizes of batch axis {i}")
    shape = [*index_shape[1:], *shape_of(x)[batch + count :]]
    if is_empty(shape):
        return op.zeros(as_shape(shape), dtype_of(x))
    indices = cast(emit, indices, "int64")
    return op.gather_nd(x, transposed(emit, indices, [*range(1, len(index_shape)), 0]), batch)


@_OWN.operator("adv_index")
def adv_index(emit, attrs, inputs):
    """Convert indexing of the first axes by tensors that broadcast to one shape."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) < 2:
        raise CannotConvert("it needs a tensor and indices")
    x, *indices = inputs
    _require_indices(*indices)
    if len(indices) > rank_of(x):
        raise CannotConvert(f"{len(indices)} indices for a tensor of rank {rank_of(x)}")
    shape = common_shape([shape_of(index) for index in indices])
    whole = [*shape, *shape_of(x)[len(indices) :]]
    if is_empty(whole):
        return op.zeros(as_shape(whole), dtype_of(x))
    if len(indices) == 1:
        return op.take(x, wide_indices(emit, indices[0]), 0, mode="clip")
    parts = [spread(emit, cast(emit, index, "int64"), shape) for index in indices]
    return op.gather_nd(
        x, joined(emit, [emit(op.expand_dims(part, len(shape))) for part in parts], len(shape))
    )


def common_shape(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """Return the shape that several broadcast to."""
    made: list[Dim] = []
    for shape in shapes:
        rank = max(len(made), len(shape))
        one = [1] * (rank - len(made)) + made
        other = [1] * (rank - len(shape)) + list(shape)
        made = []
        for a, b in zip(one, other):
            if isinstance(a, int) and a == 1:
                made.append(b)
            else:
                if not (isinstance(b, int) and b == 1) and not same(a, b):
                    require_same(a, b, "the sizes of what is broadcast")
                made.append(a)
    return made


@_OWN.operator("unravel_index")
def unravel_index(emit, attrs, indices, shape):
    _require_indices(indices, shape)
    if rank_of(indices) > 1 or rank_of(shape) != 1 or not isinstance(shape_of(shape)[0], int):
        raise CannotConvert(f"indices of rank {rank_of(indices)}, a shape of rank {rank_of(shape)}")
    rank, dtype = int(shape_of(shape)[0]), dtype_of(indices)
    left = cast(emit, indices, "int64")
    sizes = cast(emit, shape, "int64")
    rows: list[Any] = []
    for axis in reversed(range(rank)):
        size = emit(op.squeeze(emit(op.strided_slice(sizes, [0], [axis], [axis + 1])), [0]))
        rows.insert(0, emit(op.expand_dims(emit(op.floor_mod(left, size)), 0)))
        left = emit(op.floor_divide(left, size))
    return cast(emit, joined(emit, rows, 0), dtype)


@_OWN.operator("sequence_mask")
def sequence_mask(emit, attrs, x, lengths):
    shape, axis = shape_of(x), int(attrs.axis or 0)
    if axis not in (0, 1) or len(shape) < 2 or rank_of(lengths) != 1:
        raise CannotConvert(
            f"axis {axis} of a tensor of rank {len(shape)}, lengths of rank {rank_of(lengths)}"
        )
    require_same(shape_of(lengths)[0], shape[1 - axis], "the number of lengths and the batch")
    rank = len(shape)
    at = positions(emit, shape[axis], dtype_of(lengths))
    at = reshaped(emit, at, [shape[axis] if i == axis else 1 for i in range(rank)])
    ends = reshaped(emit, lengths, [shape[1 - axis] if i == 1 - axis else 1 for i in range(rank)])
    value = float(attrs.mask_value or 0)
    value = value if is_float(dtype_of(x)) else int(value)
    return op.where(op.greater_equal(at, ends), emit.const(np.asarray(value), dtype_of(x)), x)


@_OWN.operator("invert_permutation")
def invert_permutation(emit, attrs, x):
    _require_indices(x)
    if rank_of(x) != 1:
        raise CannotConvert(f"a permutation of rank {rank_of(x)}")
    length, dtype = shape_of(x)[0], dtype_of(x)
    places = positions(emit, length, dtype)
    return op.scatter_elements(places, wide_indices(emit, x), places, 0, "update")


@_OWN.operator("argwhere")
def argwhere(emit, attrs, condition):
    """Convert to a table of all positions, those that hold first, and a slice of as many."""
    known, shape = emit.array(condition), shape_of(condition)
    if not shape:
        raise CannotConvert("a scalar has no positions")
    if known is not None:
        return emit.const(np.argwhere(known != 0), "int32")
    if is_empty(shape):
        return op.zeros(as_shape([0, len(shape)]), "int32")
    if not all(isinstance(dim, int) for dim in shape):
        raise CannotConvert("it needs the sizes of its operand; give them by --shape")
    sizes = [int(dim) for dim in shape]
    total = math.prod(sizes)
    flat = reshaped(emit, condition, [total])
    if dtype_of(flat) != "bool":
        flat = emit(op.not_equal(flat, emit.const(0, dtype_of(flat))))
    ranks = emit(op.cumsum(cast(emit, flat, "int32"), 0, "int32"))
    last = emit.const(total, "int32")
    # What does not hold is written behind the last place, which is cut off.
    place = emit(op.where(flat, emit(op.subtract(ranks, emit.const(1, "int32"))), last))
    every = emit.const(np.arange(total), "int32")
    found = emit(op.scatter_elements(emit.const(np.zeros(total + 1), "int32"), place, every, 0, "update"))
    count = measured(emit, emit(op.strided_slice(ranks, [0], [total - 1], [total])), "count")[0]
    found = emit(op.strided_slice(found, [0], [0], [count], assume_inbound=True))
    columns = []
    for axis, size in enumerate(sizes):
        inner = math.prod(sizes[axis + 1 :])
        index = emit(op.floor_divide(found, emit.const(inner, "int32"))) if inner > 1 else found
        index = emit(op.floor_mod(index, emit.const(size, "int32"))) if axis else index
        columns.append(emit(op.expand_dims(index, 1)))
    return joined(emit, columns, 1)


TABLE = Table(merged([_OWN, scatter.TABLE]))
