"""Products of matrices: dense, matmul, batch_matmul, packed weights."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import dtype_of, product, rank_of, shape_of
from .layouts import require_number
from .shapes import require_same, reshaped

TABLE = Table()


def _swapped(emit: Emitter, x):
    """Return ``x`` with its last two axes swapped."""
    *outer, rows, columns = range(rank_of(x))
    return emit(relax.op.permute_dims(x, [*outer, columns, rows]))


def _product(emit: Emitter, attrs: Attrs, a, b):
    """Return the product in the stated dtype; without one the accumulator is of ``a``'s, as in Relay."""
    out_dtype = attrs.word("out_dtype") or dtype_of(a)
    require_number(out_dtype)
    return relax.op.matmul(a, b, out_dtype=out_dtype)


def _check_units(attrs: Attrs, found) -> None:
    units = attrs.ints("units")
    if units and isinstance(found, int) and units != [found]:
        raise CannotConvert(f"units={units[0]}, but the weight makes {found}")


@TABLE.operator("nn.dense")
def dense(emit: Emitter, attrs: Attrs, x, weight):
    """Convert ``x`` times the transpose of the weight (units, inputs)."""
    if rank_of(weight) != 2:
        raise CannotConvert(f"a weight of rank {rank_of(weight)}, 2 is needed")
    _check_units(attrs, shape_of(weight)[0])
    return _product(emit, attrs, x, _swapped(emit, weight))


@TABLE.operator("nn.matmul")
def matmul(emit: Emitter, attrs: Attrs, a, b):
    """Convert a product by a matrix, either side of it transposed or not."""
    if rank_of(b) != 2:
        raise CannotConvert(f"a second operand of rank {rank_of(b)}, 2 is needed")
    a = _swapped(emit, a) if attrs.transpose_a else a
    b = _swapped(emit, b) if attrs.transpose_b else b
    _check_units(attrs, shape_of(b)[1])
    return _product(emit, attrs, a, b)


@TABLE.operator("nn.batch_matmul")
def batch_matmul(emit: Emitter, attrs: Attrs, a, b):
    """Convert products of stacks of matrices; a stack of one goes with every other.

    Releases before 0.8 had no flags and always transposed ``b``: where a text
    states neither flag and the shapes fit only that, it is meant so.
    """
    if rank_of(a) != 3 or rank_of(b) != 3:
        raise CannotConvert(f"operands of ranks {rank_of(a)} and {rank_of(b)}, 3 is needed")
    transpose_a, transpose_b = bool(attrs.transpose_a), bool(attrs.transpose_b)
    if not attrs.stated & {"transpose_a", "transpose_b"}:
        left: list[Any] = shape_of(a)
        right: list[Any] = shape_of(b)
        mismatch = isinstance(left[2], int) and isinstance(right[1], int) and left[2] != right[1]
        transpose_b = mismatch and left[2] == right[2]
    a = _swapped(emit, a) if transpose_a else a
    b = _swapped(emit, b) if transpose_b else b
    if 1 not in (shape_of(a)[0], shape_of(b)[0]):
        require_same(shape_of(a)[0], shape_of(b)[0], "the batches of the operands")
    return _product(emit, attrs, a, b)


@TABLE.operator("nn.contrib_dense_pack")
def dense_pack(emit: Emitter, attrs: Attrs, x, weight):
    """Convert a dense whose weight is stored in blocks of units: (units / n, inputs, n), ``NC8n``."""
    if rank_of(weight) != 3:
        raise CannotConvert(
            f"a weight of rank {rank_of(weight)}; Relay computes NC8n and the like, of rank 3"
        )
    blocks, inputs, block = shape_of(weight)
    units = product([blocks, block])
    _check_units(attrs, units)
    matrix = emit(relax.op.permute_dims(weight, [1, 0, 2]))
    return _product(emit, attrs, x, reshaped(emit, matrix, [inputs, units]))
