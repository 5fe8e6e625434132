"""The kernels of ``image.grid_sample``: places and weights first, then the sums.

In one kernel the places would be written into the sum over the corners, once
for each of up to 16 pixels; compilers take long over that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tvm import te, tirx

_CUBIC = -0.75


def taps(grid: te.Tensor, extents: list, method: str, padding: str, align: bool) -> list[te.Tensor]:
    """Return for each axis, the outermost first, the elements that are read and their weights.

    ``grid`` (N, axes, ...) has x first.  Nearest: one index.  Bilinear: the lower
    index, and how far the place lies above it.  Bicubic: four indices, four weights.
    """
    return [
        part for axis in range(len(extents)) for part in _taps(grid, axis, extents, method, padding, align)
    ]


def samples(data: te.Tensor, parts: list[te.Tensor], method: str) -> te.Tensor:
    """Return ``data`` (N, C, ...) read and weighted as the results of `taps` say."""
    rank = len(data.shape) - 2
    per_axis = len(parts) // rank
    axes = [parts[axis * per_axis : (axis + 1) * per_axis] for axis in range(rank)]
    ends = [tirx.Cast("int32", extent) for extent in data.shape[2:]]

    def compute(n, c, *place):
        def pixel(index):
            inside = [bound for i, end in zip(index, ends) for bound in (i >= 0, i < end)]
            return te.if_then_else(tirx.all(*inside), data(n, c, *index), tirx.const(0, data.dtype))

        total: Any = None
        for chosen in itertools.product(
            *(_choices([part(n, *place) for part in axis], method) for axis in axes)
        ):
            term = tirx.Cast("float32", pixel([index for index, _ in chosen]))
            for _, weight in chosen:
                term = term if weight is None else term * weight
            total = term if total is None else total + term
        return tirx.Cast(data.dtype, total)

    return te.compute((*data.shape[:2], *parts[0].shape[1:]), compute, name="grid_sample")


def _choices(read: list, method: str) -> list[tuple[Any, Any]]:
    """Return the pairs of index and weight (None is 1) along an axis."""
    if method == "nearest":
        return [(read[0], None)]
    if method == "bilinear":
        low, part = read
        return [(low, 1.0 - part), (low + 1, part)]
    return list(zip(read[:4], read[4:]))


def _taps(grid, axis: int, extents: list, method: str, padding: str, align: bool) -> list[te.Tensor]:
    shape = [grid.shape[0], *grid.shape[2:]]
    rank, extent = len(extents), extents[axis]
    size = tirx.Cast("float32", extent)

    def unnormal(n, *place):
        at = tirx.Cast("float32", grid(n, rank - 1 - axis, *place))
        if align:
            return (at + 1.0) * (size - 1.0) / 2.0
        return -0.5 + (at + 1.0) * size / 2.0

    def padded(at):
        if padding == "reflection":
            span = tirx.Cast("int32", extent) - (1 if align else 0)
            at = _reflected(at, span, 0.0 if align else -0.5)
        return at if padding == "zeros" else te.min(te.max(at, 0.0), size - 1.0)

    def stage(function: Callable, name: str) -> te.Tensor:
        return te.compute(shape, function, name=f"{name}_{'zyx'[3 - rank + axis]}")

    plain = stage(unnormal, "place")
    at = plain if method == "bicubic" else stage(lambda *i: padded(plain(*i)), "padded")
    if method == "nearest":
        return [stage(lambda *i: te.nearbyint(at(*i)).astype("int32"), "nearest")]
    if method == "bilinear":
        low = stage(lambda *i: te.floor(at(*i)).astype("int32"), "low")
        return [low, stage(lambda *i: at(*i) - te.floor(at(*i)), "part")]

    def index(k: int) -> te.Tensor:
        return stage(lambda *i: padded(te.floor(at(*i)) + (k - 1.0)).astype("int32"), f"tap{k}")

    def weight(k: int) -> te.Tensor:
        return stage(lambda *i: _cubic_weight(at(*i) - te.floor(at(*i)), k), f"weight{k}")

    return [part(k) for part in (index, weight) for k in range(4)]


def _reflected(at, span, start: float):
    """Return a coordinate mirrored at both ends of an axis until it lies within."""
    far, length = te.abs(start - at), tirx.Cast("float32", span)
    times = tirx.truncdiv(far.astype("int32"), tirx.max(span, tirx.const(1, "int32")))
    extra = far - tirx.Cast("float32", times * span)
    even = tirx.truncmod(times, tirx.const(2, "int32")).equal(0)
    mirrored = tirx.if_then_else(even, extra + start, length - extra + start)
    return tirx.if_then_else(tirx.all(at >= start, at <= length + start), at, mirrored)


def _cubic_weight(part, tap: int):
    """Return the weight of one of four neighbours, the second of which is the next lower."""
    distance = (part + 1.0, part, 1.0 - part, 2.0 - part)[tap]
    if tap in (1, 2):
        return ((_CUBIC + 2.0) * distance - (_CUBIC + 3.0)) * distance * distance + 1.0
    return ((_CUBIC * distance - 5.0 * _CUBIC) * distance + 8.0 * _CUBIC) * distance - 4.0 * _CUBIC
