"""Reductions and normalisations: NaN, empty axes, and numerically robust forms.

Half-precision sums are accumulated in float32.  Variances are computed in two
passes (mean first, then the centred squares): the one-pass form loses all
digits where the mean is large against the spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx, topi

from .legalize_elementwise import Legalize, is_float, is_nan, keep_nan

_HALF = ("float16", "bfloat16")


def axes_of(axis, rank: int) -> list[int]:
    """Return axes as sorted non-negative ints; None stands for all."""
    if axis is None:
        return list(range(rank))
    return sorted(int(i) % rank for i in axis)


def accumulator(dtype: str) -> str:
    """Return the dtype in which sums over ``dtype`` are kept."""
    return "float32" if dtype in _HALF else dtype


def reduce_axes(x: te.Tensor, axes: list[int], keepdims: bool, reduce, element=None, name: str = "T_reduce"):
    """Reduce ``element(x[index], index)`` over ``axes`` with a TE reducer, in the accumulator dtype."""
    rank = len(x.shape)
    steps = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}
    kept = [axis for axis in range(rank) if axis not in steps]
    shape = (
        [1 if axis in steps else x.shape[axis] for axis in range(rank)]
        if keepdims
        else [x.shape[axis] for axis in kept]
    )

    def compute(*index):
        outer = dict(enumerate(index)) if keepdims else dict(zip(kept, index))
        full = [steps[axis].var if axis in steps else outer[axis] for axis in range(rank)]
        value = x(*full).astype(accumulator(x.dtype))
        return reduce(element(value, full) if element else value, axis=list(steps.values()))

    return te.compute(shape, compute, name=name)


def dim_product(x: te.Tensor, axes: list[int]):
    """Return the number of elements that a reduction over ``axes`` takes."""
    count = 1
    for axis in axes:
        count = count * x.shape[axis]
    return count


def reciprocal(count, dtype: str):
    """Return 1 / count as a constant where the count is one; of nothing, a mean is NaN."""
    if isinstance(count, (int, tirx.IntImm)):
        return tirx.const(1.0 / int(count) if int(count) else math.inf, dtype)
    return tirx.const(1.0, dtype) / count.astype(dtype)


def mean_of(x: te.Tensor, axes: list[int], keepdims: bool, element=None, name: str = "T_mean") -> te.Tensor:
    """Return the mean of ``element(x)`` over axes, in the accumulator dtype."""
    total = reduce_axes(x, axes, keepdims, te.sum, element, name=f"{name}_sum")
    scale = reciprocal(dim_product(x, axes), total.dtype)
    return te.compute(total.shape, lambda *i: total(*i) * scale, name=name)


def _cast(x: te.Tensor, dtype: str) -> te.Tensor:
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: x(*i).astype(dtype), name="T_cast")


def _is_empty(call: relax.Call) -> bool:
    """Return True where a reduced axis is known to have length 0."""
    shape = getattr(call.args[0].ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return False
    dims = shape.values
    return any(
        isinstance(dims[i], tirx.IntImm) and int(dims[i]) == 0 for i in axes_of(call.attrs.axis, len(dims))
    )


def _no_axes(call: relax.Call) -> bool:
    return call.args[0].ty.ndim == 0 or (call.attrs.axis is not None and not len(call.attrs.axis))


def _constant_result(bb, call, value):
    dtype = str(call.ty.dtype)
    shape = call.ty.shape.values
    return (
        bb.call_te(
            lambda *dims: te.compute(dims, lambda *_: tirx.const(value, dtype), name="T_full"),
            *shape,
            primfunc_name_hint="full",
        )
        if len(shape)
        else relax.const(np.array(value, dtype), dtype)
    )


def lowest(dtype: str):
    """Return the identity of a maximum."""
    return -np.inf if is_float(dtype) else (False if dtype == "bool" else int(np.iinfo(dtype).min))


def _highest(dtype: str):
    return np.inf if is_float(dtype) else (True if dtype == "bool" else int(np.iinfo(dtype).max))


def _extreme_reducer(wins, identity, nan: bool, name: str):
    """Return a TE reducer for max or min that keeps NaN and starts at infinity."""

    def combine(acc, new):
        if not is_float(acc.ty.dtype) or (not nan and str(acc.ty.dtype).endswith("16")):
            # Unlike a select it names each side once: combining the many lanes of a vector stays small.
            return (tirx.Max if wins is tirx.GT else tirx.Min)(acc, new)
        best = tirx.Select(wins(acc, new), acc, new)
        # The select above gives the new value where either is NaN.
        return keep_nan(acc, best) if nan else best

    return te.comm_reducer(combine, lambda dtype: tirx.const(identity(str(dtype)), dtype), name=name)


def max_reducer(nan: bool = True):
    """Return the max reducer; without ``nan`` a NaN may be lost."""
    return _extreme_reducer(tirx.GT, lowest, nan, "max")


def _reduction(reducer: Callable[[], Callable], identity, name: str) -> Legalize:
    def legalize(bb, call):
        dtype = str(call.ty.dtype)
        if _is_empty(call):
            return _constant_result(bb, call, identity(dtype))
        if _no_axes(call):
            return bb.call_te(topi.identity, call.args[0], primfunc_name_hint=name)

        def compute(x):
            axes = axes_of(call.attrs.axis, len(x.shape))
            if dtype == "bool":
                # The largest of truth values is "any", the smallest "all".
                x = _cast(x, "int8")
            return _cast(reduce_axes(x, axes, bool(call.attrs.keepdims), reducer(), name=f"T_{name}"), dtype)

        return bb.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


def _product():
    return te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod")


def _mean(bb, call):
    dtype = str(call.ty.dtype)
    if _is_empty(call):
        return _constant_result(bb, call, np.nan if is_float(dtype) else 0)
    if _no_axes(call):
        return bb.call_te(topi.identity, call.args[0], primfunc_name_hint="mean")
    if not is_float(dtype):
        return bb.call_te(lambda x: _integer_mean(x, call.attrs), call.args[0], primfunc_name_hint="mean")

    def compute(x):
        return _cast(mean_of(x, axes_of(call.attrs.axis, len(x.shape)), bool(call.attrs.keepdims)), dtype)

    return bb.call_te(compute, call.args[0], primfunc_name_hint="mean")


def _integer_mean(x: te.Tensor, attrs) -> te.Tensor:
    """Return the mean rounded towards zero, in the dtype of ``x``; 0 where there is nothing."""
    wide = "uint64" if str(x.dtype).startswith("uint") else "int64"
    axes = axes_of(attrs.axis, len(x.shape))
    total = reduce_axes(_cast(x, wide), axes, bool(attrs.keepdims), te.sum, name="T_mean_sum")
    count = tirx.max(dim_product(x, axes), 1)
    return te.compute(
        total.shape,
        lambda *i: tirx.truncdiv(total(*i), tirx.Cast(wide, count)).astype(x.dtype),
        name="T_mean",
    )


def _arg_extreme(wins, identity, nan: bool, name: str) -> Legalize:
    """Return the legalisation of argmax or argmin: the first of equals, the first NaN."""

    def legalize(bb, call):
        index_dtype = str(call.ty.dtype)

        def combine(a, b):
            earlier = tirx.LE(a[0], b[0])
            better = tirx.Or(wins(a[1], b[1]), tirx.And(tirx.EQ(a[1], b[1]), earlier))
            if nan and is_float(a[1].ty.dtype):
                both = tirx.Or(tirx.Not(is_nan(b[1])), earlier)
                better = tirx.Or(tirx.And(is_nan(a[1]), both), tirx.And(tirx.Not(is_nan(b[1])), better))
            return tirx.Select(better, a[0], b[0]), tirx.Select(better, a[1], b[1])

        def start(index, value):
            # Any real index is smaller, so that ties with the identity go to the element.
            return tirx.const(np.iinfo(index_dtype).max, index), tirx.const(identity(str(value)), value)

        reducer = te.comm_reducer(combine, start, name=name)

        def compute(x):
            rank = len(x.shape)
            whole = call.attrs.axis is None
            axes = list(range(rank)) if whole else [int(call.attrs.axis) % rank]
            keep = bool(call.attrs.keepdims)
            steps = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}
            kept = [axis for axis in range(rank) if axis not in steps]
            shape = (
                [1 if a in steps else x.shape[a] for a in range(rank)] if keep else [x.shape[a] for a in kept]
            )

            def pairs(*index):
                outer = dict(enumerate(index)) if keep else dict(zip(kept, index))
                full = [steps[a].var if a in steps else outer[a] for a in range(rank)]
                flat: tirx.Expr = tirx.const(0, index_dtype)
                for axis in axes:
                    flat = flat * tirx.Cast(index_dtype, x.shape[axis]) + tirx.Cast(index_dtype, full[axis])
                return reducer((flat, x(*full)), axis=list(steps.values()))

            indices, _values = te.compute(shape, pairs, name=f"T_{name}_pairs")
            return te.compute(shape, lambda *i: indices(*i), name=f"T_{name}")

        return bb.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


def reductions(nan: bool) -> dict[str, Legalize]:
    """Return the legalisations of reductions; without ``nan`` a NaN may be lost."""
    return {
        "relax.max": _reduction(lambda: max_reducer(nan), lowest, "max"),
        "relax.min": _reduction(lambda: _extreme_reducer(tirx.LT, _highest, nan, "min"), _highest, "min"),
        "relax.sum": _reduction(lambda: te.sum, lambda dtype: 0, "sum"),
        "relax.prod": _reduction(_product, lambda dtype: 1, "prod"),
        "relax.mean": _mean,
        "relax.argmax": _arg_extreme(tirx.GT, lowest, nan, "argmax"),
        "relax.argmin": _arg_extreme(tirx.LT, _highest, nan, "argmin"),
    }
