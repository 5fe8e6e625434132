"""The stages of a kernel, grouped into launches, in the variables of a launch.

The threads of a launch walk *rows* and, within a row, *columns*.  A stage
computes one value per row, one per row and column, or reduces the columns of a
row; it belongs to a launch if all that it reads of the launch's own results is
in its own row (and column).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx

from schedules.cpu.injective import flat_axes
from tvmpass.core.nest import Stage, as_int, extent, loads, root_block, stages, substitute

from .reducers import Reducer, read_reducer

ROW, COLUMN, REDUCE = "row", "column", "reduce"


@dataclass(frozen=True)
class Axis:
    """One direction of a launch; ``size`` is a TIR expression."""

    var: Any
    size: Any

    @property
    def extent(self) -> int | None:
        """Return the size as an int, None where symbolic."""
        return as_int(self.size)


@dataclass(frozen=True)
class Part:
    """One stage; ``indices`` and ``values`` are over the launch's row and column variables.

    ``values`` are what the stage writes to each of its ``buffers``, or the
    elements that ``reducer`` takes in.
    """

    name: str
    level: str
    buffers: tuple[Any, ...]
    indices: tuple[Any, ...]
    values: tuple[Any, ...]
    reducer: Reducer | None = None


@dataclass
class Group:
    """What one launch computes; ``stored`` are the buffers that others read.

    ``flat`` trailing rows lie together in all that is read and written.
    """

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    parts: list[Part] = field(default_factory=list)
    stored: set[Any] = field(default_factory=set)
    flat: int = 1

    @property
    def reduces(self) -> bool:
        """Return True where some part is a reduction."""
        return any(part.level == REDUCE for part in self.parts)


def read_groups(func: tirx.PrimFunc) -> list[Group] | None:
    """Return the launches that ``func`` comes apart into, None where its form is not known."""
    every = stages(func)
    if not every:
        return None
    groups, start = [], 0
    while start < len(every):
        found = _group_at(every, start)
        if found is None:
            return None
        group, count = found
        rest = every[start + count :]
        own = {buffer for part in group.parts for buffer in part.buffers}
        inner = set(root_block(func).alloc_buffers)
        read_later = {load.source for stage in rest for load in loads(stage.block.body)}
        group.stored = {buffer for buffer in own if buffer not in inner or buffer in read_later}
        groups.append(group)
        start += count
    return groups


def _group_at(every: Sequence[Stage], start: int) -> tuple[Group, int] | None:
    """Return the longest launch from a stage on, and how many stages it takes in."""
    reducing = next((i for i in range(start, len(every)) if every[i].reduce), None)
    if reducing is not None:
        found = _around_reduction(every, start, reducing)
        if found is not None:
            return found
        if reducing == start:
            return None
    return _injective(every, start)


def _around_reduction(every: Sequence[Stage], start: int, reducing: int) -> tuple[Group, int] | None:
    anchor = every[reducing]
    rows = _axes("row", [iv for iv in anchor.spatial if extent(iv) != 1])
    columns = _axes("column", [iv for iv in anchor.reduce if extent(iv) != 1])
    group = Group(rows, columns)
    mapping = _identify([*anchor.spatial, *anchor.reduce], [*rows, *columns])
    part = None if mapping is None else _part(anchor, mapping, group)
    if part is None:
        return None
    # What comes before the reduction is placed by its readers.
    group.parts = [part]
    for stage in reversed(every[start:reducing]):
        before = _before(stage, group)
        if before is None:
            return None
        group.parts.insert(0, before)
    if not _consistent(group):
        return None
    count = reducing - start + 1
    for stage in every[reducing + 1 :]:
        after = _after(stage, group)
        if after is None:
            break
        group.parts.append(after)
        count += 1
    return group, count


def _injective(every: Sequence[Stage], start: int) -> tuple[Group, int] | None:
    first = every[start]
    if first.store is None:
        return None
    rows = _axes("row", [iv for iv in first.spatial if extent(iv) != 1])
    group = Group(rows, (), flat=_flat_rows(first))
    mapping = _identify(first.spatial, rows)
    part = None if mapping is None else _part(first, mapping, group)
    if part is None:
        return None
    group.parts = [part]
    count = 1
    for stage in every[start + 1 :]:
        if stage.reduce:
            break
        after = _after(stage, group)
        if after is None or after.level != ROW:
            break
        group.parts.append(after)
        group.flat = min(group.flat, _flat_rows(stage))
        count += 1
    return group, count


def _flat_rows(stage: Stage) -> int:
    """Return how many trailing rows of a launch lie together; extents of 1 are no rows."""
    trailing = stage.spatial[len(stage.spatial) - flat_axes(stage) :]
    return max(1, sum(extent(iv) != 1 for iv in trailing))


def _axes(name: str, iters) -> tuple[Axis, ...]:
    return tuple(
        Axis(tirx.Var(f"{name}{i}", str(iv.var.ty.dtype)), iv.dom.extent) for i, iv in enumerate(iters)
    )


def _identify(iters, axes: Sequence[Axis]) -> dict | None:
    """Map iterators longer than one to axes in order, the others to zero; None where they differ."""
    mapping, rest = {}, list(axes)
    for iv in iters:
        if extent(iv) == 1:
            mapping[iv.var] = tirx.const(0, str(iv.var.ty.dtype))
        elif rest and str(rest[0].size) == str(iv.dom.extent):
            mapping[iv.var] = rest.pop(0).var
        else:
            return None
    return None if rest else mapping


def _part(stage: Stage, mapping: dict, group: Group) -> Part | None:
    """Return a stage in the launch's variables; its level follows from what it maps to."""
    if stage.reduce:
        read = read_reducer(stage)
        if read is None:
            return None
        buffers, reducer = read
        stores: list = []
        tvm_ffi.structural_walk(stage.block.body, [(tirx.BufferStore, stores.append)])
        indices = tuple(substitute(i, mapping) for i in stores[0].indices)
        values = tuple(substitute(e, mapping) for e in reducer.elements)
        return Part(stage.name, REDUCE, buffers, indices, values, reducer)
    if stage.store is None or stage.block.init is not None:
        return None
    used = set(mapping.values())
    level = COLUMN if any(axis.var in used for axis in group.columns) else ROW
    indices = tuple(substitute(i, mapping) for i in stage.store.indices)
    return Part(stage.name, level, (stage.store.buffer,), indices, (substitute(stage.store.value, mapping),))


def _before(stage: Stage, group: Group) -> Part | None:
    """Place an injective stage by the first read of its result."""
    if stage.reduce or stage.store is None:
        return None
    buffer = stage.store.buffer
    for part in group.parts:
        for value in part.values:
            for load in loads(value):
                if load.source.same_as(buffer):
                    return _placed(stage, list(load.indices), group)
    return None


def _placed(stage: Stage, place: list, group: Group) -> Part | None:
    mapping = {}
    for index, at in zip(stage.store.indices, place):
        if not isinstance(index, tirx.Var):
            if as_int(index) != 0:
                return None
        elif isinstance(at, tirx.Var) or as_int(at) == 0:
            mapping[index] = at
        else:
            return None
    if any(iv.var not in mapping for iv in stage.spatial):
        return None
    sizes = {axis.var: str(axis.size) for axis in (*group.rows, *group.columns)}
    for iv in stage.spatial:
        at = mapping[iv.var]
        if extent(iv) != 1 and sizes.get(at) != str(iv.dom.extent):
            return None
    part = _part(stage, mapping, group)
    # A row's value is computed for every row once: it has to depend on all rows.
    return part if part is not None and _spans(part, group) else None


def _spans(part: Part, group: Group) -> bool:
    used = {index for index in part.indices if isinstance(index, tirx.Var)}
    axes = group.rows if part.level != COLUMN else (*group.rows, *group.columns)
    return all(axis.var in used for axis in axes)


def _after(stage: Stage, group: Group) -> Part | None:
    """Return a later stage in the launch's variables, None where it does not fit."""
    if stage.reduce:
        mapping = _identify([*stage.spatial, *stage.reduce], [*group.rows, *group.columns])
        candidates = [mapping] if mapping is not None else []
    else:
        candidates = list(_interleavings(list(stage.spatial), list(group.rows), list(group.columns)))
    for mapping in candidates:
        part = _part(stage, mapping, group)
        if part is not None and _fits(part, group.parts):
            return part
    return None


def _interleavings(iters: list, rows: list[Axis], columns: list[Axis]):
    """Yield the ways to take iterators for rows and columns, each in order; rows alone come first."""
    only_rows = _identify(iters, rows)
    if only_rows is not None:
        yield only_rows
    if columns:
        yield from _merge(iters, rows, columns)


def _merge(iters: list, rows: list[Axis], columns: list[Axis]):
    if not iters:
        if not rows and not columns:
            yield {}
        return
    first, rest = iters[0], iters[1:]
    if extent(first) == 1:
        zero = tirx.const(0, str(first.var.ty.dtype))
        for made in _merge(rest, rows, columns):
            yield {first.var: zero, **made}
        return
    for mine, others in ((rows, columns), (columns, rows)):
        if mine and str(mine[0].size) == str(first.dom.extent):
            left = (mine[1:], others) if mine is rows else (others, mine[1:])
            for made in _merge(rest, *left):
                yield {first.var: mine[0].var, **made}


def _fits(part: Part, earlier: Sequence[Part]) -> bool:
    """Does ``part`` read its own row and column only of what earlier parts write?"""
    written = {buffer: p for p in earlier for buffer in p.buffers}
    for value in part.values:
        for load in loads(value):
            source = written.get(load.source)
            if source is not None and not _same_place(load, source, part):
                return False
    return not any(buffer in written for buffer in part.buffers)


def _same_place(load, source: Part, reader: Part) -> bool:
    if source.level == COLUMN and reader.level == ROW:
        return False
    return all(
        tvm_ffi.structural_equal(at, index) or (as_int(at) is not None and as_int(at) == as_int(index))
        for at, index in zip(load.indices, source.indices)
    )


def _consistent(group: Group) -> bool:
    return all(_fits(part, group.parts[:i]) for i, part in enumerate(group.parts))
