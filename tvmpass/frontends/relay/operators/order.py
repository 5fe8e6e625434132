"""Operators that depend on order: sorting, searching, running sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, topi

from ..table import CannotConvert, Emitter, Table
from . import dynamic
from .facts import as_shape, dtype_of, normal_axis, product, rank_of, shape_of
from .shapes import cast, is_empty, positions, require_same, reshaped

op = relax.op
TABLE = Table()

_SORTED = ("float32", "float64", "int32", "int64")
_WIDER = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    "uint32": "int64",
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
}
"""What the sorting functions do not take is sorted as a dtype that holds the same values."""


def _sortable(emit: Emitter, x: Any) -> Any:
    dtype = dtype_of(x)
    if dtype in _SORTED:
        return x
    if dtype not in _WIDER:
        raise CannotConvert(f"{dtype} is not sorted")
    return cast(emit, x, _WIDER[dtype])


def _index_dtype(attrs, default: str = "int32") -> tuple[str, str]:
    """Return the dtype that the sorting functions give positions in, and the one asked for."""
    asked = attrs.word("dtype") or default
    return (asked if asked in _SORTED else "int32"), asked


def _sort_axis(x: Any, axis: Any) -> int:
    if rank_of(x) == 0:
        raise CannotConvert("a scalar is not sorted")
    return normal_axis(int(-1 if axis is None else axis), rank_of(x))


@TABLE.operator("sort")
def sort(emit, attrs, x):
    axis = _sort_axis(x, attrs.axis)
    if is_empty(shape_of(x)):
        return x
    made = emit(op.sort(_sortable(emit, x), axis, descending=not attrs.is_ascend))
    return cast(emit, made, dtype_of(x))


@TABLE.operator("argsort")
def argsort(emit, attrs, x):
    axis, (made_in, asked) = _sort_axis(x, attrs.axis), _index_dtype(attrs)
    if is_empty(shape_of(x)):
        return op.zeros(as_shape(shape_of(x)), asked)
    made = emit(op.argsort(_sortable(emit, x), axis, descending=not attrs.is_ascend, dtype=made_in))
    return cast(emit, made, asked)


@TABLE.operator("topk")
def topk(emit, attrs, x):
    return _largest(emit, attrs, x, int(1 if attrs.k is None else attrs.k))


@TABLE.operator("dyn.topk")
def dyn_topk(emit, attrs, x, count):
    """Convert with ``k`` as an operand: where it is computed all are sorted and the first kept."""
    known = emit.array(count)
    if known is not None:
        return _largest(emit, attrs, x, int(known.reshape(-1)[0]))
    axis = _sort_axis(x, attrs.axis)
    size = dynamic.count_of(emit, count, shape_of(x)[axis])

    def cut(value):
        return emit(op.strided_slice(value, [axis], [0], [size], assume_inbound=True))

    made = _largest(emit, attrs, x, 0)
    return tuple(cut(value) for value in made) if isinstance(made, tuple) else cut(made)


def _largest(emit: Emitter, attrs, x: Any, k: int) -> Any:
    """Return the ``k`` largest or smallest elements, their positions, or both; all where ``k`` is 0."""
    axis, (made_in, asked) = _sort_axis(x, attrs.axis), _index_dtype(attrs)
    wanted = attrs.word("ret_type") or "both"
    if wanted not in ("both", "values", "indices"):
        raise CannotConvert(f"ret_type {wanted!r} is not known")
    shape = shape_of(x)
    length = shape[axis]
    if isinstance(length, int) and k > length:
        raise CannotConvert(f"an axis of {length} has no {k} largest elements")
    shape[axis] = k if k > 0 else length
    if is_empty(shape):
        values, places = (emit(op.zeros(as_shape(shape), dtype)) for dtype in (dtype_of(x), asked))
    else:
        pair = emit(op.topk(_sortable(emit, x), max(k, 0), axis, "both", not attrs.is_ascend, made_in))
        values = cast(emit, emit(relax.TupleGetItem(pair, 0)), dtype_of(x))
        places = cast(emit, emit(relax.TupleGetItem(pair, 1)), asked)
    return {"both": (values, places), "values": values, "indices": places}[wanted]


@TABLE.operator("cumsum")
def cumsum(emit, attrs, x):
    return _scan(emit, attrs, x, op.cumsum)


@TABLE.operator("cumprod")
def cumprod(emit, attrs, x):
    return _scan(emit, attrs, x, op.cumprod)


def _scan(emit: Emitter, attrs, x: Any, operator) -> Any:
    dtype = attrs.word("dtype") or dtype_of(x)
    if dtype == "bool":
        raise CannotConvert("a running sum or product of dtype bool")
    if attrs.axis is None:
        x = reshaped(emit, x, [product(shape_of(x))])
        axis = 0
    else:
        axis = normal_axis(int(attrs.axis), rank_of(x))
    if is_empty(shape_of(x)):
        return op.zeros(as_shape(shape_of(x)), dtype)
    return operator(cast(emit, x, dtype), axis, dtype, bool(attrs.exclusive))


@TABLE.operator("searchsorted")
def searchsorted(emit, attrs, ordered, values):
    asked, right = attrs.word("dtype") or "int32", bool(attrs.right)
    made_in = asked if asked in ("int32", "int64") else "int32"
    shape, value_shape = shape_of(ordered), shape_of(values)
    if dtype_of(ordered) != dtype_of(values):
        raise CannotConvert(f"values of {dtype_of(values)} in a sequence of {dtype_of(ordered)}")
    if dtype_of(values) == "bool":
        ordered, values = cast(emit, ordered, "int32"), cast(emit, values, "int32")
    if len(shape) == 0 or (len(shape) > 1 and len(shape) != len(value_shape)):
        raise CannotConvert(f"values of rank {len(value_shape)} in sequences of rank {len(shape)}")
    for i, (one, other) in enumerate(zip(shape[:-1], value_shape[:-1])):
        require_same(one, other, f"the sizes of axis {i} of sequences and values")
    if is_empty(value_shape) or is_empty(shape):
        return op.zeros(as_shape(value_shape), asked)
    if len(shape) == 1:
        made = emit(op.bucketize(values, ordered, out_int32=made_in == "int32", right=right))
    else:

        def search(sequences, wanted):
            return topi.searchsorted(sequences, wanted, right, made_in)

        made = emit.te(search, ordered, values, name="searchsorted")
    return cast(emit, made, asked)


@TABLE.operator("unique")
def unique(emit, attrs, x):
    """Convert to sort, compare with the neighbour, count: every result is as long as ``x``.

    Where there are fewer distinct values the rest is undefined in Relay, save
    for the indices, which are the length; here it is 0.
    """
    if rank_of(x) != 1:
        raise CannotConvert(f"a tensor of rank {rank_of(x)}")
    length = shape_of(x)[0]
    if not isinstance(length, int) or length == 0:
        raise CannotConvert("it needs a length that is known and not 0; give it by --shape")
    wide = _sortable(emit, x)
    ordered = emit(op.sort(wide, 0))
    order = emit(op.argsort(wide, 0, dtype="int32"))
    run = _runs(emit, ordered, length)
    many = emit.const(np.full(length, length), "int32")
    zeros = emit.const(np.zeros(length), "int32")
    # The place of the first of each run: equal elements keep their order.
    first = emit(op.scatter_elements(many, run, order, 0, "min"))
    inverse = emit(op.scatter_elements(zeros, order, run, 0, "update"))
    counts = emit(op.scatter_elements(zeros, run, emit.const(np.ones(length), "int32"), 0, "add"))
    if not attrs.sorted:
        by_place = emit(op.argsort(first, 0, dtype="int32"))
        rank = emit(op.scatter_elements(zeros, by_place, positions(emit, length, "int32"), 0, "update"))
        first = emit(op.take(first, by_place, 0, mode="clip"))
        counts = emit(op.take(counts, by_place, 0, mode="clip"))
        inverse = emit(op.take(rank, inverse, 0, mode="clip"))
    found = emit(op.less(first, many))
    values = emit(op.where(found, emit(op.take(x, first, 0, mode="clip")), emit.const(0, dtype_of(x))))
    last = emit(op.strided_slice(run, [0], [length - 1], [length]))
    distinct = emit(op.add(last, emit.const(np.ones(1), "int32")))
    return (values, first, inverse, distinct, *([counts] if attrs.return_counts else []))


def _runs(emit: Emitter, ordered: Any, length: int) -> Any:
    """Return for each element of a sorted vector the number of its run of equal elements."""
    if length == 1:
        return emit.const(np.zeros(1), "int32")
    later = emit(op.strided_slice(ordered, [0], [1], [length]))
    earlier = emit(op.strided_slice(ordered, [0], [0], [length - 1]))
    steps = cast(emit, emit(op.not_equal(later, earlier)), "int32")
    steps = emit(op.concat([emit.const(np.zeros(1), "int32"), steps], 0))
    return emit(op.cumsum(steps, 0, "int32"))
