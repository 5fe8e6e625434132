"""Operators that read or write a part of a tensor along its axes: slices and windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..table import Attrs, CannotConvert, Emitter, Table
from . import dynamic
from .facts import Dim, as_shape, dtype_of, normal_axis, rank_of, shape_of, static_shape
from .shapes import is_empty, numbers, require_same, same, transposed

op = relax.op
TABLE = Table()

_FAR = (1 << 31) - 1
"""An end from here on means the end of the axis (int32's largest stands for it as well)."""


@dataclass(frozen=True)
class Slice:
    """What is taken along one axis; None is the axis's own begin or end."""

    begin: int | None
    end: int | None
    step: int = 1

    def bounds(self, length: int) -> tuple[int, int]:
        """Return begin and end within an axis of a known length; the end may be -1."""
        low, high = (-1, length - 1) if self.step < 0 else (0, length)
        begin = self.begin if self.begin is not None else (0 if self.step > 0 else _FAR)
        end = self.end if self.end is not None else (_FAR if self.step > 0 else 0)
        begin, end = (min(max(b + length if b < 0 else b, low), high) for b in (begin, end))
        if (end > begin) if self.step < 0 else (begin > end):
            raise CannotConvert(f"a slice from {self.begin} to {self.end} of {length} runs backwards")
        return begin, end

    def count(self, length: int) -> int:
        """Return how many elements are taken of an axis of a known length."""
        begin, end = self.bounds(length)
        return -(-abs(end - begin) // abs(self.step))

    def is_whole(self, length: Dim) -> bool:
        """Say whether the axis is taken as it is."""
        if self.step != 1:
            return False
        if isinstance(length, int):
            return self.bounds(length) == (0, length)
        return self.begin in (None, 0) and (self.end is None or self.end >= _FAR)


def slices_of(begin, end, strides, mode: str) -> list[Slice]:
    """Return what the bounds of a strided slice say, by Relay's rules for what is left out."""
    made = []
    for i in range(max(len(begin), len(end), len(strides))):
        first, last, step = (values[i] if i < len(values) else None for values in (begin, end, strides))
        step = 1 if step is None or mode == "size" else int(step)
        first, last = (None if bound is None else int(bound) for bound in (first, last))
        if step == 0:
            raise CannotConvert("a stride is 0")
        if mode == "size" and last is not None:
            # A negative size takes all that is left.
            last = None if last < 0 else (first or 0) + last
        made.append(Slice(first, last, step))
    return made


def sliced(emit: Emitter, x: Any, taken: dict[int, Slice]) -> Any:
    """Return the part of ``x`` that lies in a slice of each of some axes."""
    shape = shape_of(x)
    taken = {axis: part for axis, part in taken.items() if not part.is_whole(shape[axis])}
    if not taken:
        return x
    made: list[Dim] = list(shape)
    axes, begins, steps = [], [], []
    ends: list[Dim] = []
    for axis, part in sorted(taken.items()):
        length = shape[axis]
        if isinstance(length, int):
            begin, end = part.bounds(length)
            made[axis] = part.count(length)
            # In a bound -1 is the last element: "before the first" is said by -1 - length.
            end = end if end >= 0 else -1 - length
            ends.append(end)
        else:
            begin, far = _symbolic(part)
            ends.append(length if far is None else far)
        axes.append(axis)
        begins.append(begin)
        steps.append(part.step)
    if is_empty(made):
        return emit(op.zeros(as_shape(made), dtype_of(x)))
    return emit(op.strided_slice(x, axes, begins, ends, steps))


def _symbolic(part: Slice) -> tuple[int, int | None]:
    """Return the bounds of a slice of an axis whose length is not known; None is its end."""
    if part.step < 0:
        raise CannotConvert("a slice with a negative stride needs a length that is known; give it by --shape")
    end = None if part.end is None or part.end >= _FAR else part.end
    return part.begin or 0, end


@TABLE.operator("strided_slice", "dyn.strided_slice")
def strided_slice(emit, attrs, x, *bounds):
    """Convert a slice; its bounds are attributes, or operands in the ``dyn`` form."""
    shape, mode = shape_of(x), attrs.word("slice_mode") or "end"
    if mode not in ("end", "size"):
        raise CannotConvert(f"slice_mode {mode!r} is not known")
    if not dynamic.is_known(emit, bounds):
        return dynamic.sliced(emit, x, bounds, mode)
    names = ("begin", "end", "strides")
    begin, end, strides = (_bound(emit, attrs, name, bounds, i) for i, name in enumerate(names))
    axes = attrs.ints("axes")
    parts = slices_of(begin, end, strides, mode)
    if axes is None:
        axes = list(range(len(parts)))
    if len(axes) != len(parts) or len(set(axes)) != len(axes):
        raise CannotConvert(f"{len(parts)} slices for the axes {axes}")
    return sliced(emit, x, {normal_axis(axis, len(shape)): part for axis, part in zip(axes, parts)})


def _bound(emit: Emitter, attrs: Attrs, name: str, operands: Sequence[Any], index: int) -> list[int | None]:
    stated = attrs.get(name)
    if stated is not None:
        items = list(stated) if isinstance(stated, (list, tuple)) else [stated]
        return [None if item is None else int(item) for item in items]
    if index < len(operands):
        return [*numbers(emit, operands[index], name)]
    return []


@TABLE.operator("slice_like")
def slice_like(emit, attrs, x, like):
    shape, other = shape_of(x), shape_of(like)
    axes = attrs.ints("axes")
    if not axes:
        axes = list(range(min(len(shape), len(other))))
    taken = {}
    for axis in (normal_axis(axis, len(shape)) for axis in axes):
        if axis >= len(other):
            raise CannotConvert(f"axis {axis} is out of range for rank {len(other)}")
        length, wanted = shape[axis], other[axis]
        if same(length, wanted):
            continue
        if not isinstance(length, int) or not isinstance(wanted, int):
            require_same(length, wanted, f"the sizes of axis {axis}")
            continue
        if wanted > length:
            raise CannotConvert(f"axis {axis} of {length} has no {wanted} elements")
        taken[axis] = Slice(0, wanted)
    return sliced(emit, x, taken)


@TABLE.operator("strided_set")
def strided_set(emit, attrs, x, value, *bounds):
    shape = static_shape(x)
    if rank_of(value) != rank_of(x):
        raise CannotConvert(f"values of rank {rank_of(value)} are set in a tensor of rank {rank_of(x)}")
    known = [emit.array(bound) for bound in bounds]
    if shape is None or any(bound is None for bound in known):
        return _runtime_set(emit, x, value, bounds)
    begin, end, strides = (
        [int(item) for item in bound.reshape(-1)] for bound in (*known, np.ones(0, int))[:3]
    )
    extents = shape_of(value)
    inside = np.ones(shape, bool)
    for axis, length in enumerate(shape):
        place = _places(begin, end, strides, axis, length)
        hit = place >= 0
        if not isinstance(extents[axis], int) or (hit.any() and place.max() >= extents[axis]):
            raise CannotConvert(
                f"axis {axis} of the values has {extents[axis]} of {place.max() + 1} elements"
            )
        inside &= hit.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        if extents[axis] == 0:
            return x
        value = emit(op.take(value, emit.const(np.maximum(place, 0), "int64"), axis, mode="clip"))
    return op.where(emit.const(inside, "bool"), value, x)


def _places(begin, end, strides, axis: int, length: int) -> np.ndarray:
    """Return for each position of an axis that of the value set there, -1 where none is."""
    step = strides[axis] if axis < len(strides) else 1
    if step == 0:
        raise CannotConvert("a stride is 0")
    first = begin[axis] if axis < len(begin) else (0 if step > 0 else length)
    last = end[axis] if axis < len(end) else (length + 1 if step > 0 else -length - 1)
    first, last = (bound + length if bound < 0 else bound for bound in (first, last))
    at = np.arange(length)
    if step > 0:
        return np.where((at >= first) & (at < last) & ((at - first) % step == 0), (at - first) // step, -1)
    # Relay chooses by the position itself here, not by the distance from the begin.
    chosen = (at <= first) & (at > last) & ((at + 1) % -step == 0)
    start = length - 1 if length < first else first
    return np.where(chosen, (start - at) // -step, -1)


def _runtime_set(emit: Emitter, x: Any, value: Any, bounds: Sequence[Any]) -> Any:
    """Set where the bounds come in at run time; only strides that are known to be positive are."""
    steps = numbers(emit, bounds[2], "strides") if len(bounds) > 2 else []
    if any(step < 1 for step in steps):
        raise CannotConvert("negative strides with bounds that are computed when the program runs")
    given = [dim for dim in (shape_of(bound)[0] for bound in bounds[:2]) if isinstance(dim, int)]
    if len(given) != 2:
        raise CannotConvert("the number of bounds is not known")

    def kernel(data, source, begin, end):
        def compute(*index):
            hit, place = [], []
            for axis, (i, extent) in enumerate(zip(index, data.shape)):
                step = tirx.const(steps[axis] if axis < len(steps) else 1, "int64")
                first, last = tirx.const(0, "int64"), tirx.Cast("int64", extent)
                if axis < given[0]:
                    first = _from_end(tirx.Cast("int64", begin[axis]), extent)
                if axis < given[1]:
                    last = _from_end(tirx.Cast("int64", end[axis]), extent)
                at = tirx.Cast("int64", i)
                far = at - first
                hit.append(tirx.all(far >= 0, at < last, tirx.truncmod(far, step).equal(0)))
                top = tirx.Cast("int64", source.shape[axis]) - 1
                place.append(tirx.max(tirx.min(tirx.truncdiv(far, step), top), 0))
            return te.if_then_else(tirx.all(*hit), source(*place), data(*index))

        return te.compute(data.shape, compute, name="strided_set")

    if is_empty(shape_of(value)):
        return x
    return emit.te(kernel, x, value, *bounds[:2], name="strided_set")


def _from_end(bound, extent):
    return tirx.Select(bound < 0, bound + tirx.Cast("int64", extent), bound)


@TABLE.operator("sliding_window")
def sliding_window(emit, attrs, x):
    """Convert windows over the last axes: one take per axis, then the windows' axes go last."""
    shape, window, steps = shape_of(x), attrs.ints("window_shape"), attrs.ints("strides")
    axis = int(attrs.axis)
    if not 0 <= axis < len(shape) or window is None or steps is None:
        raise CannotConvert(f"windows over axis {axis} of rank {len(shape)}")
    if not len(window) == len(steps) == len(shape) - axis:
        raise CannotConvert(
            f"windows and strides of {len(window)} and {len(steps)} axes for {len(shape) - axis}"
        )
    for i, (size, step) in enumerate(zip(window, steps)):
        length = shape[axis + i]
        if not isinstance(length, int):
            raise CannotConvert(f"windows over axis {axis + i} need its size; give it by --shape")
        if not 1 <= size <= length or step < 1:
            raise CannotConvert(f"no window of {size} with stride {step} over {length} elements")
        starts = np.arange(0, length - size + 1, step)
        index = emit.const(starts[:, None] + np.arange(size), "int64")
        x = emit(op.take(x, index, axis + 2 * i, mode="clip"))
    count = len(window)
    outer = [axis + 2 * i for i in range(count)]
    return transposed(emit, x, [*range(axis), *outer, *(i + 1 for i in outer)])
