"""Tensors made from numbers, shapes and other tensors' types."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, topi

from ..table import CannotConvert, Table
from .facts import (
    Dim,
    as_shape,
    dtype_of,
    integer_limits,
    is_integer,
    product,
    rank_of,
    shape_of,
    static_shape,
)
from .reduce import number
from .shapes import cast, measured, numbers, positions, reshaped

TABLE = Table()

# A range up to this length is a constant, a longer one is computed.
_CONSTANT_RANGE = 1 << 16
# TVM makes ranges of known length ahead of time, in memory.
_LONGEST_RANGE = 1 << 30
_FAR = (1 << 31) - 1


def stated_shape(emit, attrs, name: str, operands: tuple) -> list[Dim]:
    """Return a shape given as an attribute, or in older programs and ``dyn`` forms as an operand.

    Sizes that are computed when the program runs become symbols.
    """
    if operands:
        value = emit.array(operands[0])
        if value is None:
            return measured(emit, operands[0], "size")
        return [int(size) for size in np.ravel(value)]
    sizes = attrs.ints(name)
    if sizes is None:
        raise CannotConvert("it states no shape")
    return list(sizes)


def _filled(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name, f"dyn.{name}")
    def convert(emit, attrs, *shape):
        return function(as_shape(stated_shape(emit, attrs, "shape", shape)), attrs.word("dtype") or "float32")


def _filled_like(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        return function(x)


for _name in ("zeros", "ones"):
    _filled(_name)
    _filled_like(f"{_name}_like")


@TABLE.operator("full", "dyn.full")
def full(emit, attrs, value, *shape):
    """Fill a shape with a scalar, in its dtype where none is stated."""
    dtype = attrs.word("dtype") or dtype_of(value)
    sizes = stated_shape(emit, attrs, "shape", shape)
    return relax.op.full(as_shape(sizes), cast(emit, value, dtype), dtype)


@TABLE.operator("full_like")
def full_like(emit, attrs, x, value):
    """Fill the shape of a tensor with a scalar, in the tensor's dtype."""
    dtype = dtype_of(x)
    return relax.op.full(as_shape(shape_of(x)), cast(emit, value, dtype), dtype)


@TABLE.operator("arange")
def arange(emit, attrs, start, stop, step):
    """Return ``start + step * i`` for all i of a range; each product and sum is rounded in the dtype."""
    dtype = attrs.word("dtype") or dtype_of(start)
    bounds = [emit.array(value) for value in (start, stop, step)]
    if any(bound is None for bound in bounds):
        return _computed_range(emit, start, stop, step, dtype)
    first, end, stride = (np.asarray(bound).astype(dtype) for bound in bounds)
    if float(stride) == 0:
        raise CannotConvert("its step is 0")
    count = math.ceil((float(end) - float(first)) / float(stride))
    if count <= 0:
        raise CannotConvert("it is empty")
    if count > _LONGEST_RANGE:
        raise CannotConvert(f"a range of {count} steps is too long")
    if count <= _CONSTANT_RANGE:
        return emit.const(first + stride * np.arange(count).astype(dtype), dtype)
    steps = cast(emit, emit(relax.op.arange(0, count, 1, "int64")), dtype)
    return relax.op.add(emit.const(first, dtype), emit(relax.op.multiply(steps, emit.const(stride, dtype))))


def _computed_range(emit, start, stop, step, dtype: str):
    """Return a range of integers whose bounds are computed when the program runs."""
    if not is_integer(dtype):
        raise CannotConvert("its bounds are not known, and they are no integers")
    first, end, stride = (cast(emit, value, "int64") for value in (start, stop, step))
    # The quotient rounded up is minus the opposite one rounded down.
    back = emit(relax.op.subtract(first, end))
    count = emit(relax.op.negative(emit(relax.op.floor_divide(back, stride))))
    count = emit(relax.op.maximum(count, emit.const(0, "int64")))
    (length,) = measured(emit, reshaped(emit, count, [1]), "length")
    steps = emit(relax.op.multiply(positions(emit, length, "int64"), stride))
    return cast(emit, emit(relax.op.add(first, steps)), dtype)


def iota(emit, size: int, axis: int, rank: int, dtype: str):
    """Return 0, 1, 2, ... along one axis of a tensor of ``rank`` axes, the others of size 1."""
    shape = [size if i == axis else 1 for i in range(rank)]
    return emit.const(np.arange(size).astype(dtype).reshape(shape), dtype)


@TABLE.operator("one_hot", "dyn.one_hot")
def one_hot(emit, attrs, indices, on, off, *size):
    """Return ``on`` where an index is met along a new axis, elsewhere ``off``."""
    if size and emit.array(size[0]) is None:
        return _one_hot_of_computed_depth(emit, attrs, indices, on, off, size[0])
    depth = numbers(emit, size[0], "its depth")[0] if size else int(attrs.depth)
    rank = rank_of(indices) + 1
    axis = rank - 1 if attrs.axis == -1 else int(attrs.axis)
    if not 0 <= axis < rank or depth <= 0:
        raise CannotConvert(f"depth {depth} at axis {attrs.axis} of rank {rank} is out of range")
    dtype = attrs.word("dtype") or dtype_of(on)
    index_dtype = dtype_of(indices)
    if (is_integer(index_dtype) and depth - 1 > integer_limits(index_dtype)[1]) or index_dtype == "bool":
        index_dtype = "int64"
    indices = cast(emit, indices, index_dtype)
    met = relax.op.equal(
        emit(relax.op.expand_dims(indices, axis)), iota(emit, depth, axis, rank, index_dtype)
    )
    return relax.op.where(emit(met), cast(emit, on, dtype), cast(emit, off, dtype))


def _one_hot_of_computed_depth(emit, attrs, indices, on, off, depth):
    """Compare with a range whose length is a symbol, in int64: no depth is too large for it."""
    rank, dtype = rank_of(indices) + 1, attrs.word("dtype") or dtype_of(on)
    axis = rank - 1 if attrs.axis == -1 else int(attrs.axis)
    if not 0 <= axis < rank:
        raise CannotConvert(f"axis {attrs.axis} of rank {rank} is out of range")
    (length,) = measured(emit, reshaped(emit, cast(emit, depth, "int64"), [1]), "depth")
    places = positions(emit, length, "int64")
    places = reshaped(emit, places, [length if i == axis else 1 for i in range(rank)])
    indices = emit(relax.op.expand_dims(cast(emit, indices, "int64"), axis))
    met = emit(relax.op.equal(indices, places))
    return relax.op.where(met, cast(emit, on, dtype), cast(emit, off, dtype))


@TABLE.operator("meshgrid")
def meshgrid(emit, attrs, tensors):
    """Spread vectors (or scalars) over a common grid, one axis each; "xy" swaps the first two."""
    if attrs.indexing not in ("ij", "xy"):
        raise CannotConvert(f"indexing={attrs.indexing!r} is neither ij nor xy")
    if any(rank_of(tensor) > 1 for tensor in tensors):
        raise CannotConvert("it takes scalars and vectors only")
    order = list(range(len(tensors)))
    if attrs.indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    sizes: list[Dim] = [1] * len(order)
    for tensor, axis in zip(tensors, order):
        sizes[axis] = product(shape_of(tensor))
    grids = []
    for tensor, axis in zip(tensors, order):
        line = reshaped(emit, tensor, [size if i == axis else 1 for i, size in enumerate(sizes)])
        grids.append(emit(relax.op.broadcast_to(line, as_shape(sizes))))
    return tuple(grids)


@TABLE.operator("shape_of", "vm.shape_of")
def shape_as_tensor(emit, attrs, x):
    """Return the shape of a tensor as a vector."""
    dtype, sizes = attrs.word("dtype") or "int32", static_shape(x)
    if sizes is not None:
        return emit.const(np.array(sizes, dtype), dtype)
    tensor = emit(relax.op.shape_to_tensor(emit(as_shape(shape_of(x)))))
    return cast(emit, tensor, dtype)


@TABLE.operator("ndarray_size")
def ndarray_size(emit, attrs, x):
    """Return the number of elements of a tensor as a scalar."""
    return number(emit, product(shape_of(x)), attrs.word("dtype") or "int32")


@TABLE.operator("trilu")
def trilu(emit, attrs, x, k):
    """Keep the elements on one side of the k-th diagonal of the last two axes, set the others to 0."""
    rank = rank_of(x)
    if rank < 2:
        raise CannotConvert("it needs at least two axes")
    known = emit.array(k)
    if known is not None:
        function: Callable = relax.op.triu if attrs.upper else relax.op.tril
        # A diagonal past the corners is as good as the corner's neighbour; TVM's has 32 bits.
        return function(x, min(max(int(np.asarray(known).item()), -_FAR), _FAR))
    sizes = shape_of(x)[-2:]
    if not all(isinstance(size, int) for size in sizes):
        raise CannotConvert("neither its sizes nor its diagonal are known")
    rows = iota(emit, sizes[0], 0, 2, "int64")
    columns = iota(emit, sizes[1], 1, 2, "int64")
    diagonal = emit(relax.op.subtract(columns, cast(emit, k, "int64")))
    compare = relax.op.less_equal if attrs.upper else relax.op.greater_equal
    kept = emit(compare(rows, diagonal))
    return relax.op.where(kept, x, emit.const(0, dtype_of(x)))


@TABLE.operator("matrix_set_diag")
def matrix_set_diag(emit, attrs, x, diagonal):
    """Replace diagonals k1 to k2 of the last two axes."""
    low, high = int(attrs.k1), int(attrs.k2)
    if low > high or rank_of(diagonal) != rank_of(x) - (low == high):
        raise CannotConvert(
            f"diagonals {low} to {high} do not fit tensors of ranks {rank_of(x)} and {rank_of(diagonal)}"
        )
    align = "_".join(
        "RIGHT" if right else "LEFT" for right in (attrs.super_diag_right_align, attrs.sub_diag_right_align)
    )
    return emit.te(
        lambda data, values: topi.matrix_set_diag(data, values, (low, high), align),
        x,
        diagonal,
        name="matrix_set_diag",
    )
