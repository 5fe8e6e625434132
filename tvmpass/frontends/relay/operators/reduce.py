"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ..table import CannotConvert, Table
from .facts import (
    Dim,
    as_shape,
    dtype_of,
    integer_limits,
    is_float,
    normal_axes,
    product,
    rank_of,
    require_bool,
    require_float,
    shape_of,
)
from .shapes import reshaped, same

TABLE = Table()


def reduced_axes(attrs, rank: int) -> list[int]:
    """Return the axes that a reduction removes: those named, or with ``exclude`` all others.

    No axes are all axes.
    """
    named = attrs.ints("axis")
    if attrs.exclude:
        if named is None:
            raise CannotConvert("exclude needs the axes that stay")
        kept = normal_axes(named, rank)
        return [axis for axis in range(rank) if axis not in kept]
    return normal_axes(named, rank) if named else list(range(rank))


def _reduction(name: str, of_truth: Callable) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        axes = reduced_axes(attrs, rank_of(x))
        if not axes:
            return x
        reduce = of_truth if dtype_of(x) == "bool" else function
        return reduce(x, axes, bool(attrs.keepdims))


# The largest of truth values is "any", the smallest "all".
for _name, _of_truth in (("sum", relax.op.max), ("prod", relax.op.min)):
    _reduction(_name, _of_truth)
for _name in ("max", "min"):
    _reduction(_name, getattr(relax.op, _name))


def _truth(name: str, function: Callable) -> None:
    @TABLE.operator(name)
    def convert(emit, attrs, x):
        require_bool(x)
        axes = reduced_axes(attrs, rank_of(x))
        return function(x, axes, bool(attrs.keepdims)) if axes else x


_truth("any", relax.op.max)
_truth("all", relax.op.min)


def count_of(emit, x, axes: list[int]) -> Dim:
    """Return the number of elements that are reduced to one."""
    sizes = shape_of(x)
    return product([sizes[axis] for axis in axes])


def number(emit, value: Dim, dtype: str):
    """Return a size as a rank-0 tensor, also where it is known at run time only."""
    if isinstance(value, int):
        return emit.const(value, dtype)
    tensor = emit(relax.op.shape_to_tensor(emit(as_shape([value]))))
    return emit(relax.op.astype(emit(relax.op.reshape(tensor, as_shape([]))), dtype))


@TABLE.operator("mean")
def mean(emit, attrs, x):
    """Take the mean; on integers the sum wraps and the quotient is cut towards zero."""
    axes, dtype = reduced_axes(attrs, rank_of(x)), dtype_of(x)
    if dtype == "bool":
        raise CannotConvert("it is not defined on bool")
    if not axes:
        return x
    if is_float(dtype):
        return relax.op.mean(x, axes, bool(attrs.keepdims))
    count = count_of(emit, x, axes)
    if isinstance(count, int) and not 0 < count <= integer_limits(dtype)[1]:
        raise CannotConvert(f"the number of elements, {count}, is no divisor of dtype {dtype}")
    total = emit(relax.op.sum(x, axes, bool(attrs.keepdims)))
    return relax.op.divide(total, number(emit, count, dtype))


@TABLE.operator("variance")
def variance(emit, attrs, x, mean_of_x):
    """Take the variance around a given mean; 16-bit floats are summed in float32."""
    require_float(x)
    axes, keepdims, dtype = reduced_axes(attrs, rank_of(x)), bool(attrs.keepdims), dtype_of(x)
    if not axes:
        raise CannotConvert("no axes are left to reduce")
    difference = emit(relax.op.subtract(x, mean_of_x))
    squares = emit(relax.op.multiply(difference, difference))
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    if wide != dtype:
        squares = emit(relax.op.astype(squares, wide))
    if attrs.unbiased:
        count = number(emit, count_of(emit, x, axes), wide)
        total = emit(relax.op.sum(squares, axes, keepdims))
        result = relax.op.divide(total, emit(relax.op.subtract(count, emit.const(1, wide))))
    else:
        result = relax.op.mean(squares, axes, keepdims)
    return result if wide == dtype else relax.op.astype(emit(result), dtype)


def _extreme_index(name: str) -> None:
    function = getattr(relax.op, name)

    @TABLE.operator(name)
    def convert(emit, attrs, x):
        """Return int32 indices; over several axes they count along these in order."""
        sizes = shape_of(x)
        rank = len(sizes)
        axes = reduced_axes(attrs, rank)
        count = count_of(emit, x, axes)
        if rank == 0 or count == 0:
            raise CannotConvert("there is nothing to choose from")
        if not axes:
            raise CannotConvert("no axes are left to reduce")
        # TVM does not compare these as they are; the wider dtype orders them alike.
        comparable = {"bool": "uint8", "bfloat16": "float32"}.get(dtype_of(x))
        if comparable:
            x = emit(relax.op.astype(x, comparable))
        kept = [axis for axis in range(rank) if axis not in axes]
        if len(axes) > 1:
            x = emit(relax.op.permute_dims(x, kept + axes)) if kept else x
            x = reshaped(emit, x, [*(sizes[axis] for axis in kept), count])
            along = len(kept)
        else:
            along = axes[0]
        if attrs.select_last_index:
            x = emit(relax.op.flip(x, along))
        index = emit(
            relax.op.astype(emit(function(x, along, len(axes) == 1 and bool(attrs.keepdims))), "int32")
        )
        if attrs.select_last_index:
            last = emit(relax.op.subtract(number(emit, count, "int32"), emit.const(1, "int32")))
            index = emit(relax.op.subtract(last, index))
        if len(axes) > 1 and attrs.keepdims:
            return reshaped(emit, index, [1 if a in axes else sizes[a] for a in range(rank)])
        return index


_extreme_index("argmax")
_extreme_index("argmin")


@TABLE.operator("collapse_sum_like")
def collapse_sum_like(emit, attrs, x, like):
    """Sum over the axes along which the shape of ``like`` was broadcast to that of ``x``."""
    return _collapse(emit, x, shape_of(like))


@TABLE.operator("collapse_sum_to")
def collapse_sum_to(emit, attrs, x, shape):
    """Sum over the axes along which ``shape`` was broadcast to that of ``x``."""
    value = emit.array(shape)
    stated = attrs.ints("shape") if value is None else [int(size) for size in value]
    if stated is None:
        raise CannotConvert("the shape is not known")
    return _collapse(emit, x, stated)


def _collapse(emit, x, target: list):
    sizes = shape_of(x)
    lead = len(sizes) - len(target)
    if lead < 0 or dtype_of(x) == "bool":
        raise CannotConvert(
            f"a tensor of shape {sizes} and dtype {dtype_of(x)} does not collapse to {target}"
        )
    axes = list(range(lead))
    for axis, (size, wanted) in enumerate(zip(sizes[lead:], target), lead):
        if same(size, wanted):
            continue
        if not (isinstance(wanted, int) and wanted == 1):
            raise CannotConvert(f"a tensor of shape {sizes} does not collapse to {target}")
        axes.append(axis)
    if not axes:
        return x
    total = emit(relax.op.sum(x, axes, keepdims=True))
    return reshaped(emit, total, target) if lead else total
