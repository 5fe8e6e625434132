"""Forms of the ``dyn`` operators whose shape comes in when the program runs.

The sizes become symbols of the converted program.  Where a shape is known, the
plain converters are used instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ..table import CannotConvert
from .facts import Dim, as_shape, dtype_of, is_float, is_integer, rank_of, shape_of
from .shapes import cast, measured, positions, product, reshaped

op = relax.op


def is_known(emit: Any, operands: tuple) -> bool:
    """Say whether the values of all operands are known now."""
    return all(emit.array(operand) is not None for operand in operands)


def _is_number(dtype: str) -> bool:
    return is_integer(dtype) or is_float(dtype)


def _sizes(emit: Any, asked: Any) -> Any:
    """Return a vector of sizes as int64; Relay takes floats as well, and truncates them."""
    if rank_of(asked) != 1 or not _is_number(dtype_of(asked)):
        raise CannotConvert(f"sizes of dtype {dtype_of(asked)} and rank {rank_of(asked)}")
    return cast(emit, asked, "int64")


def _shape_vector(emit: Any, dims: list[Dim]) -> Any:
    """Return sizes as an int64 vector, a constant where all are known."""
    if all(isinstance(dim, int) for dim in dims):
        return emit.const(np.array(dims), "int64")
    return emit(op.shape_to_tensor(as_shape(dims)))


def reshape(emit: Any, x: Any, asked: Any, allow_zero: bool) -> Any:
    """Reshape to sizes that are computed: positive ones, 0 to copy, -3 to merge two, one -1 to infer."""
    sizes = _sizes(emit, asked)
    rank, old = shape_of(sizes)[0], shape_of(x)
    if not isinstance(rank, int):
        raise CannotConvert("the rank of the new shape is not known")
    if rank == 0:
        return reshaped(emit, x, [])
    one, none = emit.const(1, "int64"), emit.const(0, "int64")
    merges = emit(op.equal(sizes, emit.const(-3, "int64")))
    # Each -3 uses up two old sizes: what stands behind it belongs to old sizes further on.
    before = emit.const(np.tri(rank, k=-1), "int64")
    skipped = emit(op.sum(emit(op.multiply(before, cast(emit, merges, "int64"))), 1))
    source = emit(op.add(emit.const(np.arange(rank), "int64"), skipped))
    dims = _shape_vector(emit, (old + [1] * (2 * rank + 1))[: 2 * rank + 1])
    copied = emit(op.take(dims, source, 0))
    if not allow_zero:
        sizes = emit(op.where(emit(op.equal(sizes, none)), copied, sizes))
    pairs = emit(op.multiply(copied, emit(op.take(dims, emit(op.add(source, one)), 0))))
    sizes = emit(op.where(merges, pairs, sizes))
    total = product(old)
    whole = (
        emit.const(total, "int64")
        if isinstance(total, int)
        else reshaped(emit, _shape_vector(emit, [total]), [])
    )
    # With one -1 among the sizes their product is minus that of the others.
    others = emit(op.maximum(emit(op.negative(emit(op.prod(sizes)))), one))
    inferred = emit(op.floor_divide(whole, others))
    sizes = emit(op.where(emit(op.less(sizes, none)), inferred, sizes))
    return emit(op.reshape(x, as_shape(measured(emit, sizes, "size"))))


def broadcast(emit: Any, x: Any, asked: Any) -> Any:
    """Broadcast to sizes that are computed."""
    wanted = measured(emit, _sizes(emit, asked), "size")
    old = shape_of(x)
    if len(old) > len(wanted):
        raise CannotConvert(f"a tensor of rank {len(old)} is not broadcast to rank {len(wanted)}")
    lead = len(wanted) - len(old)
    # A size that is known and not 1 stays as it is.
    shape = [size if i < lead or old[i - lead] == 1 else old[i - lead] for i, size in enumerate(wanted)]
    return emit(op.broadcast_to(x, as_shape(shape)))


def tile(emit: Any, x: Any, asked: Any) -> Any:
    """Repeat a tensor as often as is computed: a new axis before each, spread and merged."""
    counts = measured(emit, _sizes(emit, asked), "count")
    old = shape_of(x)
    rank = max(len(old), len(counts))
    old = [1] * (rank - len(old)) + old
    counts = [1] * (rank - len(counts)) + counts
    apart: list[Dim] = [dim for size in old for dim in (1, size)]
    spread: list[Dim] = [dim for pair in zip(counts, old) for dim in pair]
    x = emit(op.reshape(x, as_shape(apart)))
    x = emit(op.broadcast_to(x, as_shape(spread)))
    return emit(op.reshape(x, as_shape([count * size for count, size in zip(counts, old)])))


def sliced(emit: Any, x: Any, bounds: tuple, mode: str) -> Any:
    """Slice by bounds that are computed, one for each of the first axes: a take along each."""
    shape = shape_of(x)
    begin, end, strides = (_sizes(emit, bound) for bound in bounds[:3])
    count = shape_of(begin)[0]
    if (
        not isinstance(count, int)
        or count > len(shape)
        or [count] != shape_of(end)
        or [count] != shape_of(strides)
    ):
        raise CannotConvert(f"bounds of {count} axes for a tensor of rank {len(shape)}")
    dims, one, zero = _shape_vector(emit, shape[:count]), emit.const(1, "int64"), emit.const(0, "int64")
    if mode == "size":
        end = emit(op.where(emit(op.less(end, zero)), dims, emit(op.add(begin, end))))
        strides = emit.const(np.ones(count), "int64")
    backwards = emit(op.less(strides, zero))
    low = emit(op.where(backwards, emit.const(-1, "int64"), zero))
    high = emit(op.where(backwards, emit(op.subtract(dims, one)), dims))

    def inside(bound):
        bound = emit(op.where(emit(op.less(bound, zero)), emit(op.add(bound, dims)), bound))
        return emit(op.minimum(emit(op.maximum(bound, low)), high))

    begin, end = inside(begin), inside(end)
    ahead = emit(op.subtract(end, begin))
    span = emit(op.maximum(emit(op.where(backwards, emit(op.negative(ahead)), ahead)), zero))
    step = emit(op.maximum(emit(op.maximum(strides, emit(op.negative(strides)))), one))
    counts = emit(op.floor_divide(emit(op.subtract(emit(op.add(span, step)), one)), step))
    for axis, length in enumerate(measured(emit, counts, "length")):
        first, stride = (emit(op.strided_slice(v, [0], [axis], [axis + 1])) for v in (begin, strides))
        places = emit(op.add(first, emit(op.multiply(positions(emit, length, "int64"), stride))))
        x = emit(op.take(x, places, axis, mode="clip"))
    return x


def count_of(emit: Any, asked: Any, length: Dim) -> Dim:
    """Return how many of ``length`` elements are asked for, as a symbol; less than 1 is all."""
    if not _is_number(dtype_of(asked)):
        raise CannotConvert(f"a number of elements of dtype {dtype_of(asked)}")
    asked = reshaped(emit, cast(emit, asked, "int64"), [1])
    every = _shape_vector(emit, [length])
    some = emit(op.minimum(asked, every))
    return measured(emit, emit(op.where(emit(op.less(asked, emit.const(1, "int64"))), every, some)), "count")[
        0
    ]
