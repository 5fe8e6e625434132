"""Sparse matrices: compressed rows of elements or blocks, and lists of coordinates."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from ..table import CannotConvert, Table
from .create import iota
from .facts import as_shape, dtype_of, product, rank_of, shape_of, static_shape
from .shapes import cast, is_empty, numbers, reshaped

TABLE = Table()


def _sizes(value, what: str) -> list[int]:
    sizes = static_shape(value)
    if sizes is None:
        raise CannotConvert(f"the size of {what} is not known")
    return sizes


def _rows(emit, starts, count: int):
    """Return for each of ``count`` stored elements the row it stands in, as int64."""
    ends = emit(relax.op.astype(starts, "int64"))
    rows = _sizes(starts, "the row starts")[0] - 1
    known = emit.array(starts)
    if known is not None:
        lengths = np.diff(np.asarray(known).astype("int64"))
        if known[0] == 0 and (lengths >= 0).all() and lengths.sum() == count:
            return emit.const(np.repeat(np.arange(rows), lengths), "int64")
        raise CannotConvert("its row starts do not fit the stored elements")
    ends = emit(relax.op.strided_slice(ends, [0], [1], [rows + 1]))
    # An element's row is the number of rows that end at or before it.
    before = emit(relax.op.less_equal(reshaped(emit, ends, [rows, 1]), iota(emit, count, 1, 2, "int64")))
    return emit(relax.op.sum(emit(relax.op.astype(before, "int64")), [0]))


def _sum_by_row(emit, values, rows, count: int):
    """Sum slices along axis 0 into ``count`` rows."""
    sizes = shape_of(values)
    zero = emit(relax.op.zeros(as_shape([count, *sizes[1:]]), dtype_of(values)))
    if is_empty(sizes):
        return zero
    spread = reshaped(emit, rows, [sizes[0]] + [1] * (len(sizes) - 1))
    index = emit(relax.op.broadcast_to(spread, as_shape(sizes)))
    return emit(relax.op.scatter_elements(zero, index, values, axis=0, reduction="add"))


def _product(emit, dense, data, indices, starts):
    """Return the transposed product of ``dense``, (m, k), and a sparse (n, k), as (n, m)."""
    if dtype_of(dense) != dtype_of(data) or rank_of(dense) != 2 or rank_of(data) not in (1, 3):
        raise CannotConvert("it takes a matrix and stored elements or blocks of one dtype")
    m, k = shape_of(dense)
    stored, *block = _sizes(data, "the stored elements")
    groups = _sizes(starts, "the row starts")[0] - 1
    rows = _rows(emit, starts, stored)
    columns = emit(relax.op.permute_dims(dense, [1, 0]))
    if not block:
        picked = emit(relax.op.take(columns, indices, axis=0, mode="clip"))
        scale = reshaped(emit, data, [stored, 1])
        return _sum_by_row(emit, emit(relax.op.multiply(picked, scale)), rows, groups)
    height, width = block
    if not isinstance(k, int) or k % width:
        raise CannotConvert(f"blocks of {width} columns do not divide {k}")
    columns = reshaped(emit, columns, [k // width, width, m])
    picked = emit(relax.op.take(columns, indices, axis=0, mode="clip"))
    partial = emit(relax.op.matmul(data, picked, out_dtype=dtype_of(dense)))
    total = _sum_by_row(emit, partial, rows, groups)
    return reshaped(emit, total, [groups * height, m])


@TABLE.operator("nn.sparse_dense", "nn.internal.sparse_dense_padded")
def sparse_dense(emit, attrs, dense, data, indices, starts):
    """Multiply a matrix with a transposed sparse one, or with ``sparse_lhs`` the other way round."""
    result = _product(emit, dense, data, indices, starts)
    return result if attrs.sparse_lhs else relax.op.permute_dims(result, [1, 0])


@TABLE.operator("nn.sparse_conv2d")
def sparse_conv2d(emit, attrs, x, data, indices, starts):
    """Convolve with sparse filters of size 1 by 1."""
    if any(size != 1 for size in attrs.ints("kernel_size") or [1]):
        raise CannotConvert("its filters are larger than 1 by 1")
    if attrs.layout not in ("NHWC", "NCHW") or rank_of(x) != 4 or rank_of(data) not in (2, 3):
        raise CannotConvert(f"it takes blocks and images in NHWC or NCHW, not {attrs.layout}")
    if rank_of(data) == 2:
        data = emit(relax.op.expand_dims(data, 2))
    if attrs.layout == "NCHW":
        x = emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
    *pixels, channels = shape_of(x)
    flat = reshaped(emit, x, [product(pixels), channels])
    filtered = _product(emit, flat, data, indices, starts)
    filters = shape_of(filtered)[0]
    image = reshaped(emit, filtered, [filters, *pixels])
    return relax.op.permute_dims(image, [1, 2, 3, 0] if attrs.layout == "NHWC" else [1, 0, 2, 3])


@TABLE.operator("nn.sparse_add")
def sparse_add(emit, attrs, dense, data, indices, starts):
    """Add a sparse matrix to a dense one."""
    height, width = _sizes(dense, "an operand")
    (stored,) = _sizes(data, "the stored elements")
    rows = _rows(emit, starts, stored)
    position = emit(relax.op.multiply(rows, emit.const(width, "int64")))
    position = emit(relax.op.add(position, cast(emit, indices, "int64")))
    flat = reshaped(emit, dense, [height * width])
    total = emit(relax.op.scatter_elements(flat, position, data, axis=0, reduction="add"))
    return reshaped(emit, total, [height, width])


@TABLE.operator("nn.sparse_transpose")
def sparse_transpose(emit, attrs, data, indices, starts):
    """Transpose a square sparse matrix; the elements of a row are in ascending order of columns."""
    (stored,) = _sizes(data, "the stored elements")
    size = _sizes(starts, "the row starts")[0] - 1
    rows = _rows(emit, starts, stored)
    # A stable order: elements stand by row, and keep that order within a column.
    key = emit(relax.op.multiply(cast(emit, indices, "int64"), emit.const(size, "int64")))
    order = emit(relax.op.argsort(emit(relax.op.add(key, rows)), axis=0, dtype="int64"))
    columns = reshaped(emit, cast(emit, indices, "int64"), [1, stored])
    before = emit(relax.op.less(columns, iota(emit, size + 1, 0, 2, "int64")))
    counts = emit(relax.op.sum(emit(relax.op.astype(before, "int64")), [1]))
    return (
        emit(relax.op.take(data, order, axis=0, mode="clip")),
        cast(emit, emit(relax.op.take(rows, order, axis=0, mode="clip")), dtype_of(indices)),
        cast(emit, counts, dtype_of(starts)),
    )


@TABLE.operator("sparse_to_dense", "dyn.sparse_to_dense")
def sparse_to_dense(emit, attrs, indices, values, default, *shape):
    """Write values at coordinates into a tensor of a default; of equal coordinates the last wins.

    Coordinates outside the tensor are passed over.
    """
    sizes = numbers(emit, shape[0], "its shape") if shape else attrs.ints("output_shape") or []
    dtype, total = dtype_of(values), math.prod(sizes)
    coordinates = _sizes(indices, "its coordinates")
    count, last = (coordinates[0] if coordinates else 1), (coordinates[-1] if coordinates else 1)
    if (rank_of(indices) < 2 and len(sizes) != 1) or (rank_of(indices) == 2 and last != len(sizes)):
        raise CannotConvert(
            f"coordinates of shape {static_shape(indices)} do not fit a result of shape {sizes}"
        )
    if count == 0:
        return relax.op.full(as_shape(sizes), cast(emit, default, dtype), dtype)
    places = reshaped(emit, cast(emit, indices, "int64"), [count, len(sizes)])
    fits = emit.const(np.ones((count,), "bool"), "bool")
    flat = emit.const(np.zeros((count,), "int64"), "int64")
    for axis, size in enumerate(sizes):
        place = reshaped(emit, emit(relax.op.strided_slice(places, [1], [axis], [axis + 1])), [count])
        inside = relax.op.logical_and(
            emit(relax.op.greater_equal(place, emit.const(0, "int64"))),
            emit(relax.op.less(place, emit.const(size, "int64"))),
        )
        fits = emit(relax.op.logical_and(fits, emit(inside)))
        flat = emit(relax.op.add(emit(relax.op.multiply(flat, emit.const(size, "int64"))), place))
    # What does not fit goes to one element more, which is cut off.
    flat = emit(relax.op.where(fits, flat, emit.const(total, "int64")))
    blank = emit(relax.op.full(as_shape([total + 1]), cast(emit, default, dtype), dtype))
    written = emit(relax.op.broadcast_to(values, as_shape([count])))
    filled = emit(relax.op.scatter_elements(blank, flat, written, axis=0, reduction="update"))
    return reshaped(emit, emit(relax.op.strided_slice(filled, [0], [0], [total])), sizes)


@TABLE.operator("sparse_reshape")
def sparse_reshape(emit, attrs, indices, old, new):
    """Return the coordinates of a sparse tensor's elements in a new shape, and that shape without -1."""
    count, rank = _sizes(indices, "its coordinates")
    new_rank = _sizes(new, "its new shape")[0]

    def element(vector, axis: int):
        return emit(relax.op.strided_slice(emit(relax.op.astype(vector, "int64")), [0], [axis], [axis + 1]))

    def times(a, b):
        return emit(relax.op.multiply(a, b))

    one, unknown = emit.const(np.array([1]), "int64"), emit.const(-1, "int64")
    place, total = emit.const(np.zeros((count,)), "int64"), one
    for axis in range(rank):
        column = emit(relax.op.strided_slice(cast(emit, indices, "int64"), [1], [axis], [axis + 1]))
        size = element(old, axis)
        place = emit(relax.op.add(times(place, size), reshaped(emit, column, [count])))
        total = times(total, size)
    stated = [element(new, axis) for axis in range(new_rank)]
    free = [emit(relax.op.equal(size, unknown)) for size in stated]
    known = one
    for size, is_free in zip(stated, free):
        known = times(known, emit(relax.op.where(is_free, one, size)))
    rest = emit(relax.op.divide(total, known))
    sizes = [emit(relax.op.where(is_free, rest, size)) for size, is_free in zip(stated, free)]
    columns: list = []
    for size in reversed(sizes[1:]):
        columns.insert(0, emit(relax.op.floor_mod(place, size)))
        place = emit(relax.op.floor_divide(place, size))
    columns.insert(0, place)
    moved = emit(relax.op.stack(columns, axis=1))
    shape = emit(relax.op.concat(sizes, axis=0))
    if new_rank == rank:
        # Relay leaves coordinates as they are in an equal shape, those outside of it too.
        equal = emit(relax.op.equal(shape, emit(relax.op.astype(old, "int64"))))
        same = cast(emit, emit(relax.op.min(cast(emit, equal, "int64"))), "bool")
        moved = emit(relax.op.where(same, cast(emit, indices, "int64"), moved))
    return cast(emit, moved, dtype_of(indices)), cast(emit, shape, dtype_of(new))


@TABLE.operator("sparse_fill_empty_rows")
def sparse_fill_empty_rows(emit, attrs, indices, values, shape, default):
    """Give each empty row one element of a default; the size of the result must be known.

    Returns coordinates, values and which rows were empty, all as int64, as Relay computes it.
    """
    arrays = [emit.array(value) for value in (indices, values, shape, default)]
    if any(array is None for array in arrays):
        raise CannotConvert("the size of its result is known at run time only")
    places, stored, sizes, filler = (np.asarray(array).astype("int64") for array in arrays)
    rows = int(sizes.reshape(-1)[0])
    empty = np.setdiff1d(np.arange(rows), places[:, 0])
    added = np.zeros((len(empty), places.shape[1]), "int64")
    added[:, 0] = empty
    order = np.argsort(np.concatenate([places[:, 0], empty]), kind="stable")
    made = np.concatenate([stored, np.full(len(empty), filler.reshape(-1)[0])])
    return (
        emit.const(np.concatenate([places, added])[order], "int64"),
        emit.const(made[order], "int64"),
        emit.const(np.isin(np.arange(rows), empty), "int64"),
    )
