"""Operators that read or write by index: no index may leave its array.

An index out of range is clamped to the nearest valid one.  (ONNX's negative
indices have been made positive by the importer.)
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx, topi

from tvmpass.core.constants import constant_array

from .legalize_elementwise import Legalize

_MANY_SYMBOLS = 3


def _in_range(indices, extent) -> bool:
    array = constant_array(indices)
    if array is None or not isinstance(extent, (int, tirx.IntImm)):
        return False
    return array.size == 0 or (array.min() >= 0 and array.max() < int(extent))


def _take(bb, call):
    data, indices = call.args
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    shape = getattr(data.ty.shape, "values", None)
    if mode == "fast":
        extent = None
        if shape is not None:
            extent = shape[int(axis)] if axis is not None else _product(shape)
        mode = "fast" if extent is not None and _in_range(indices, extent) else "clip"
    array = constant_array(indices)
    if array is not None and array.ndim == 0:
        # A scalar index is a number in the kernel, not a buffer.
        indices = tirx.const(array.item(), str(array.dtype))
    if not isinstance(indices, relax.Expr) or not isinstance(getattr(indices, "ty", None), relax.TensorType):
        return bb.call_te(_take_one, data, indices, axis, primfunc_name_hint="take")
    return bb.call_te(topi.take, data, indices, axis, mode=mode, primfunc_name_hint="take")


def _product(dims):
    return int(np.prod([int(d) for d in dims])) if all(isinstance(d, tirx.IntImm) for d in dims) else None


def _take_one(data: te.Tensor, index, axis):
    if axis is None:
        data, axis = topi.reshape(data, [_te_product(data.shape)]), 0
    axis = int(axis) % len(data.shape)
    at = _clamp(index, data.shape[axis])
    shape = [dim for i, dim in enumerate(data.shape) if i != axis]
    return te.compute(shape, lambda *i: data(*i[:axis], at, *i[axis:]), name="T_take")


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


def indexing() -> dict[str, Legalize]:
    """Return the legalisations of operators that read by index."""
    return {
        "relax.take": _take,
        "relax.gather_elements": _gather_elements,
        "relax.gather_nd": _gather_nd,
        "relax.reshape": _reshape,
    }
