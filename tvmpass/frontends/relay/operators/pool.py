"""Pooling: windows, global and adaptive."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tvm import relax, te, tirx, topi

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import dtype_of, is_float, shape_of
from .layouts import packed, padding_of, parsed, per_axis, require_number, unpacked

TABLE = Table()

_PLAIN = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _in_plain(emit: Emitter, attrs: Attrs, x, rank: int):
    """Return ``x``, its layout as stated and the layout it now has.

    Relay's pools ignore ``out_layout``: what comes out is laid out as what went in.
    """
    require_number(dtype_of(x))
    stated = attrs.word("layout") or _PLAIN[rank]
    if sorted(name for name, size in parsed(stated) if not size) != sorted(_PLAIN[rank]):
        raise CannotConvert(f"the layout {stated!r} has other axes than {_PLAIN[rank]}")
    last = _PLAIN[rank].replace("C", "") + "C"
    plain = last if stated == last else _PLAIN[rank]
    return unpacked(emit, x, stated, plain), stated, plain


def _spatial_axes(layout: str) -> list[int]:
    """Return the pooled axes in the order depth, height, width."""
    return [layout.index(letter) for letter in "DHW" if letter in layout]


def _overhang(size: Any, window: int, stride: int, before: int, after: int) -> int:
    """Return by how much the last window of ``ceil_mode`` reaches over the padded end.

    For a symbolic size it is the most it can be; the shape is the same.
    """
    if not isinstance(size, int):
        return stride - 1
    spare = size + before + after - window
    return -(-spare // stride) * stride - spare


def _window(rank: int, kind: str, emit: Emitter, attrs: Attrs, x):
    """Pool windows.  Relax drops a last window that would start in the padding, Relay does not."""
    x, stated, layout = _in_plain(emit, attrs, x, rank)
    size = per_axis(attrs.ints("pool_size"), rank, "pool_size")
    strides = per_axis(attrs.ints("strides"), rank, "strides")
    dilation = per_axis(attrs.ints("dilation"), rank, "dilation")
    padding = padding_of(attrs.ints("padding"), rank)
    over = [0] * rank
    if attrs.ceil_mode:
        for i, axis in enumerate(_spatial_axes(layout)):
            reach = (size[i] - 1) * dilation[i] + 1
            over[i] = _overhang(shape_of(x)[axis], reach, strides[i], padding[i], padding[i + rank])
    if kind == "avg" and not is_float(dtype_of(x)) and dtype_of(x) not in ("int32", "int64"):
        raise CannotConvert(
            f"averages of {dtype_of(x)} are not computed by Relay either; cast to int32 before"
        )
    if kind == "avg" and attrs.count_include_pad and any(over):
        result = emit.te(
            partial(_average, _spatial_axes(layout), size, strides, dilation, padding, over),
            x,
            name=f"avg_pool{rank}d",
        )
        return packed(emit, result, layout, stated)
    extra = {"count_include_pad": bool(attrs.count_include_pad)} if kind == "avg" else {}
    result = getattr(relax.op.nn, f"{kind}_pool{rank}d")(
        x,
        pool_size=size,
        strides=strides,
        padding=[*padding[:rank], *(end + more for end, more in zip(padding[rank:], over))],
        dilation=dilation,
        ceil_mode=False,
        layout=layout,
        **extra,
    )
    if kind == "max" and is_float(dtype_of(x)):
        sizes = [shape_of(x)[axis] for axis in _spatial_axes(layout)]
        ends = [end + more for end, more in zip(padding[rank:], over)]
        if any(map(_may_see_nothing, sizes, size, strides, dilation, padding[:rank], ends)):
            # Relay pads with the lowest finite number, Relax with minus infinity.
            lowest = float(tirx.min_value(dtype_of(x)).value)
            result = relax.op.maximum(emit(result), emit.const(lowest, dtype_of(x)))
    return result if stated == layout else packed(emit, emit(result), layout, stated)


def _may_see_nothing(size: Any, window: int, stride: int, dilation: int, before: int, after: int) -> bool:
    """Return True where a window along one axis may stand on padding alone."""
    reach = (window - 1) * dilation + 1
    if before >= reach or not isinstance(size, int):
        return before >= reach or after >= reach or (dilation > 1 and before + after > 0)
    last = -before + (size + before + after - reach) // stride * stride
    if last >= size:
        return True
    # A window that starts in front sees data unless its first tap behind that is past the end.
    return any(
        start + -(start // dilation) * dilation >= size for start in range(-before, min(0, last + 1), stride)
    )


def _average(axes: list[int], size, strides, dilation, padding, over, x: te.Tensor) -> te.Tensor:
    """Average windows over padding, but not over what `ceil_mode` adds behind it."""
    rank = len(axes)
    before, after, shape = [0] * len(x.shape), [0] * len(x.shape), list(x.shape)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = padding[i], padding[i + rank] + over[i]
        reach = (size[i] - 1) * dilation[i] + 1
        shape[axis] = tirx.floordiv(x.shape[axis] + before[axis] + after[axis] - reach, strides[i]) + 1
    wide = topi.nn.pad(x, before, after, tirx.const(0, x.dtype), name="pad_temp")
    steps = [te.reduce_axis((0, length), f"r{i}") for i, length in enumerate(size)]

    def total(*index):
        place = list(index)
        for i, axis in enumerate(axes):
            place[axis] = index[axis] * strides[i] + steps[i].var * dilation[i]
        return te.sum(wide(*place), axis=steps)

    sums = te.compute(shape, total, name="T_avg_pool_sum")

    def mean(*index):
        count: Any = 1
        for i, axis in enumerate(axes):
            first = index[axis] * strides[i] - padding[i]
            last = te.min(first + (size[i] - 1) * dilation[i], x.shape[axis] + padding[i + rank] - 1)
            count = count * (tirx.truncdiv(last - first, dilation[i]) + 1)
        return topi.divide(sums(*index), tirx.Cast(x.dtype, count))

    return te.compute(shape, mean, name="T_avg_pool")


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        TABLE.operator(f"nn.{_kind}_pool{_rank}d")(partial(_window, _rank, _kind))


def _adaptive(rank: int, kind: str, emit: Emitter, attrs: Attrs, x):
    """Pool to a stated size; without one the size stays."""
    x, stated, layout = _in_plain(emit, attrs, x, rank)
    axes = _spatial_axes(layout)
    sizes = [shape_of(x)[axis] for axis in axes]
    wanted = attrs.ints("output_size") or sizes
    wanted = list(wanted) * rank if len(wanted) == 1 else list(wanted)
    if len(wanted) != rank:
        raise CannotConvert(f"output_size has {len(wanted)} numbers for {rank} axes")
    if any(isinstance(size, int) and size < 1 for size in attrs.ints("output_size") or ()):
        raise CannotConvert(f"output_size={wanted} is not positive")
    result = _adapted(emit, x, layout, axes, sizes, wanted, kind)
    return result if stated == layout else packed(emit, emit(result), layout, stated)


def _adapted(emit: Emitter, x, layout: str, axes: list[int], sizes: list, wanted: list, kind: str):
    rank = len(axes)
    if is_float(dtype_of(x)) or kind == "max":
        if all(size == 1 for size in wanted):
            return {"max": relax.op.max, "avg": relax.op.mean}[kind](x, axes, keepdims=True)
        known = all(isinstance(n, int) for n in [*sizes, *wanted]) and math.prod(sizes) > 0
        if known and not any(size % out for size, out in zip(sizes, wanted)):
            window = [size // out for size, out in zip(sizes, wanted)]
            pool = getattr(relax.op.nn, f"{kind}_pool{rank}d")
            return pool(x, pool_size=window, strides=window, layout=layout)
        if kind == "avg" and all(isinstance(n, int) for n in wanted):
            return getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")(x, wanted, layout=layout)
    return emit.te(partial(_bins, axes, wanted, kind), x, name=f"adaptive_{kind}_pool{rank}d")


def largest(dtype: str):
    """Return the TE reducer of maxima: NaN where any element is NaN, -inf of nothing."""
    if not is_float(dtype):
        return te.comm_reducer(
            lambda a, b: tirx.Max(a, b), lambda kind: te.min_value(str(kind)), name="largest"
        )
    infinity = tirx.const(math.inf, dtype)

    def larger(a, b):
        # No number but NaN fails to be at most infinity; a NaN in b is chosen by "not greater".
        return tirx.Select(tirx.LE(a, infinity), tirx.Select(tirx.GT(a, b), a, b), a)

    return te.comm_reducer(larger, lambda _: -infinity, name="largest")


def _bins(axes: list[int], wanted: list, kind: str, x: te.Tensor) -> te.Tensor:
    """Reduce each bin of an adaptive pool; averages of integers are truncated."""
    shape = list(x.shape)
    for axis, size in zip(axes, wanted):
        shape[axis] = size

    def bounds(index):
        for axis, out in zip(axes, wanted):
            size = x.shape[axis]
            first = tirx.floordiv(index[axis] * size, out)
            yield axis, first, tirx.floordiv((index[axis] + 1) * size + out - 1, out) - first

    reducer = largest(str(x.dtype)) if kind == "max" else te.sum

    def reduced(*index):
        place, steps = list(index), []
        for axis, first, length in bounds(index):
            step = te.reduce_axis((0, length), f"r{axis}")
            steps.append(step)
            place[axis] = first + step.var
        return reducer(x(*place), axis=steps)

    result = te.compute(shape, reduced, name=f"T_adaptive_{kind}")
    if kind == "max":
        return result

    def mean(*index):
        count: Any = 1
        for _, _, length in bounds(index):
            count = count * length
        return topi.divide(result(*index), tirx.Cast(x.dtype, count))

    return te.compute(shape, mean, name="T_adaptive_mean")


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        # The name that starts with contrib is of TVM 0.6, for images only.
        _old = [f"contrib.adaptive_{_kind}_pool2d"] if _rank == 2 else []
        TABLE.operator(f"nn.adaptive_{_kind}_pool{_rank}d", *_old)(partial(_adaptive, _rank, _kind))


def _global(kind: str, emit: Emitter, attrs: Attrs, x):
    """Pool a whole image."""
    x, stated, layout = _in_plain(emit, attrs, x, 2)
    axes = _spatial_axes(layout)
    sizes = [shape_of(x)[axis] for axis in axes]
    result = _adapted(emit, x, layout, axes, sizes, [1, 1], kind)
    return result if stated == layout else packed(emit, emit(result), layout, stated)


for _kind in ("max", "avg"):
    TABLE.operator(f"nn.global_{_kind}_pool2d")(partial(_global, _kind))
