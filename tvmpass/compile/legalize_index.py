"""Operators that read or write by index: no index may leave its array.

An index out of range is clamped to the nearest valid one.  (ONNX's negative
indices have been made positive by the importer.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax, te, tirx, topi

from tvmpass.core.constants import constant_array

from .legalize_elementwise import Legalize

_MANY_SYMBOLS = 3


def _in_range(indices, extent: int | None) -> bool:
    array = constant_array(indices)
    if array is None or extent is None:
        return False
    return array.size == 0 or (array.min() >= 0 and array.max() < extent)


def _take(bb, call):
    data, indices = call.args
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    if mode not in ("fast", "clip"):
        return None
    array = constant_array(indices)
    inside = _in_range(indices, _extent(data, axis))

    def take(x, index):
        along = axis
        if along is None:
            x, along = topi.reshape(x, [_te_product(x.shape)]), 0
        along = int(along) % len(x.shape)
        rank = len(index.shape) if isinstance(index, te.Tensor) else 0
        shape = [*x.shape[:along], *(index.shape if rank else []), *x.shape[along + 1 :]]

        def compute(*i):
            at = index(*i[along : along + rank]) if isinstance(index, te.Tensor) else index
            at = at if inside else _clamp(at, x.shape[along])
            return x(*i[:along], at, *i[along + rank :])

        return te.compute(shape, compute, name="T_take")

    if array is not None and array.ndim == 0:
        # A scalar index is a number in the kernel, not a buffer.
        indices = tirx.const(array.item(), str(array.dtype))
    return bb.call_te(take, data, indices, primfunc_name_hint="take")


def is_empty(tensor) -> bool:
    """Is the tensor known to have no elements?"""
    dims = getattr(tensor.ty.shape, "values", None)
    return any(isinstance(dim, tirx.IntImm) and int(dim) == 0 for dim in dims or ())


def _extent(data, axis):
    """Return the length of the indexed axis, None where it is not a number."""
    shape = getattr(data.ty.shape, "values", None)
    if shape is None or not all(isinstance(dim, tirx.IntImm) for dim in shape):
        return None
    return math.prod(int(dim) for dim in shape) if axis is None else int(shape[int(axis)])


def _te_product(dims):
    total = 1
    for dim in dims:
        total = total * dim
    return total


def _reshape(bb, call):
    """Reshape between several symbolic dims by way of the linear index.

    TVM's own form divides with a correction for negative numbers that doubles
    the expression at each dim; LLVM does not come back from it.
    """
    target = call.args[1]
    source = getattr(call.args[0].ty, "shape", None)
    if not isinstance(target, relax.ShapeExpr) or not isinstance(source, relax.ShapeExpr):
        return None
    if sum(not isinstance(d, tirx.IntImm) for d in (*target.values, *source.values)) < _MANY_SYMBOLS:
        return None

    def reshape(data, *shape):
        def compute(*index):
            linear: tirx.Expr = tirx.const(0, "int64")
            for i, extent in zip(index, shape):
                linear = linear * extent + i
            place = []
            for axis, extent in enumerate(data.shape):
                inner = _te_product(data.shape[axis + 1 :])
                place.append(tirx.truncmod(tirx.truncdiv(linear, tirx.Cast("int64", inner)), extent))
            return data(*place)

        return te.compute(shape, compute, name="T_reshape")

    return bb.call_te(reshape, call.args[0], *target.values, primfunc_name_hint="reshape")


def _clamp(index, extent):
    dtype = index.ty.dtype
    top = tirx.Cast(dtype, extent) if not isinstance(extent, int) else tirx.const(extent, dtype)
    return tirx.max(tirx.const(0, dtype), tirx.min(index, top - tirx.const(1, dtype)))


def _gather_elements(bb, call):
    axis = int(call.attrs.axis) % call.args[0].ty.ndim

    def gather(data, indices):
        def compute(*i):
            at = _clamp(indices(*i), data.shape[axis])
            return data(*i[:axis], at, *i[axis + 1 :])

        return te.compute(indices.shape, compute, name="T_gather")

    return bb.call_te(gather, *call.args, primfunc_name_hint="gather_elements")


def _gather_nd(bb, call):
    batch = int(call.attrs.batch_dims)

    def gather(data, indices):
        lead, count = list(indices.shape[:-1]), int(indices.shape[-1])
        rest = list(data.shape[batch + count :])

        def compute(*i):
            outer, inner = i[: len(lead)], i[len(lead) :]
            at = [_clamp(indices(*outer, k), data.shape[batch + k]) for k in range(count)]
            return data(*i[:batch], *at, *inner)

        return te.compute([*lead, *rest], compute, name="T_gather_nd")

    return bb.call_te(gather, *call.args, primfunc_name_hint="gather_nd")


def _scatter(extent_of, stock: Legalize, counts_from_end: bool) -> Legalize:
    """Clamp indices to the axis before TVM's own scatter writes by them.

    ``extent_of(call, data, place)`` gives the length of the axis that the index
    at ``place`` of the indices speaks of.  The least index is ``-extent`` where
    TVM's own form counts negative ones from the end, else 0.
    """

    def legalize(bb, call):
        data, indices, updates = call.args
        if is_empty(updates):
            # TVM's own divides by their number. The indices stay read: a group may make them.
            return bb.call_te(
                lambda x, *_: topi.identity(x), data, indices, primfunc_name_hint="scatter_none"
            )

        def clamp(index, x):
            def compute(*i):
                value = index(*i)
                extent = extent_of(call, x, i)
                least = -extent if counts_from_end else tirx.const(0, "int64")
                low, high = (tirx.Cast(value.ty.dtype, bound) for bound in (least, extent - 1))
                return tirx.max(low, tirx.min(value, high))

            return te.compute(index.shape, compute, name="T_clamp_index")

        safe = bb.emit(bb.call_te(clamp, indices, data, primfunc_name_hint="clamp_index"))
        made = relax.Call(call.op, [data, safe, updates], call.attrs, list(call.ty_args), call.span)
        return stock(bb, bb.normalize(made))

    return legalize


def _scatter_elements_extent(call, x: te.Tensor, index):
    return tirx.Cast("int64", x.shape[int(call.attrs.axis) % len(x.shape)])


def _scatter_nd_extent(call, x: te.Tensor, index):
    """Return the extent that the component ``index[-1]`` of an index tuple speaks of."""
    extent: tirx.Expr = tirx.const(1, "int64")
    for axis, dim in enumerate(x.shape):
        extent = tirx.Select(
            tirx.EQ(index[-1], tirx.const(axis, index[-1].ty.dtype)), tirx.Cast("int64", dim), extent
        )
    return extent


def indexing(stock: Callable[[str], Legalize]) -> dict[str, Legalize]:
    """Return the legalisations of operators that read or write by index."""
    return {
        "relax.take": _take,
        "relax.gather_elements": _gather_elements,
        "relax.gather_nd": _gather_nd,
        "relax.reshape": _reshape,
        "relax.scatter_elements": _scatter(_scatter_elements_extent, stock("relax.scatter_elements"), True),
        "relax.scatter_nd": _scatter(_scatter_nd_extent, stock("relax.scatter_nd"), False),
    }
