"""Which passes over a row a launch makes, and what its threads hold between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import loads, variables

from .lanes import is_choice
from .parts import COLUMN, Group, Part


@dataclass
class Passes:
    """The parts in order; column results not in ``kept`` stand in their readers' values instead."""

    parts: list[Part]
    source: dict[Any, Part]
    kept: set[Any] = field(default_factory=set)


def plan_passes(group: Group, keeps: bool) -> Passes:
    """Return the passes of a launch; with ``keeps`` threads may hold their elements of a row.

    Held are column results that several passes use, and input that several
    passes load.  Without, what a pass needs is computed or loaded again.
    """
    made = Passes([], {buffer: part for part in group.parts for buffer in part.buffers})
    if keeps:
        made.kept = {part.buffers[0] for part in group.parts if _is_used_again(part, group)}
    for part in group.parts:
        buffer = part.buffers[0]
        if part.level == COLUMN and buffer not in made.kept and buffer not in group.stored:
            continue
        made.parts.append(replace(part, values=tuple(_expand(v, made) for v in part.values)))
    if keeps:
        _load_once(made, group)
    return made


def _is_used_again(part: Part, group: Group) -> bool:
    return part.level == COLUMN and _readers(part, group) > 1


def _readers(part: Part, group: Group) -> int:
    """Return in how many passes a column part's result is needed."""
    count = 0
    for other in group.parts:
        if any(load.source in part.buffers for value in other.values for load in loads(value)):
            alone = other.level != COLUMN or other.buffers[0] in group.stored
            count += 1 if alone or _is_used_again(other, group) else _readers(other, group)
    return count


def _expand(value, passes: Passes):
    """Put the values of column parts that are not kept in the place of their loads."""

    def own_value(load):
        part = passes.source.get(load.source)
        if part is None or part.level != COLUMN or load.source in passes.kept:
            return load
        return _expand(part.values[0], passes)

    return tvm_ffi.structural_map(value, [(tvm.ir.TensorLoad, own_value)], order="post")


def _load_once(passes: Passes, group: Group) -> None:
    """Add parts that load, ahead of their first use, what several passes read of a row."""
    rows, columns = ({axis.var for axis in axes} for axes in (group.rows, group.columns))
    seen: list[tuple[Any, set[int]]] = []
    for number, part in enumerate(passes.parts):
        for load in (load for value in part.values for load in _unconditional_loads(value)):
            if load.source in passes.source or not rows | columns <= _moving(load):
                continue
            same = next((users for known, users in seen if tvm_ffi.structural_equal(known, load)), None)
            if same is None:
                seen.append((load, {number}))
            else:
                same.add(number)
    axes = (*group.rows, *group.columns)
    shared = [(load, min(users)) for load, users in seen if len(users) > 1]
    for load, first in sorted(shared, key=lambda pair: -pair[1]):
        held = tirx.decl_buffer([a.size for a in axes], str(load.ty.dtype), load.source.name + "_row")
        place = tuple(axis.var for axis in axes)
        loaded = Part(held.name, COLUMN, (held,), place, (load,))
        passes.parts = [_swap(part, load, tirx.BufferLoad(held, list(place))) for part in passes.parts]
        passes.parts.insert(first, loaded)
        passes.source[held] = loaded
        passes.kept.add(held)


def _moving(load) -> set:
    return set().union(*map(variables, load.indices)) if len(load.indices) else set()


def _unconditional_loads(value) -> list:
    """Return the loads of a value that are not inside of a choice."""
    chosen: list = []

    def note(call) -> None:
        if is_choice(call):
            chosen.extend(loads(call))

    tvm_ffi.structural_walk(value, [(tvm.ir.Call, note)], order="pre")
    return [load for load in loads(value) if not any(load.same_as(c) for c in chosen)]


def _swap(part: Part, old, new) -> Part:
    same = lambda load: new if tvm_ffi.structural_equal(load, old) else load  # noqa: E731
    values = tuple(tvm_ffi.structural_map(v, [(tvm.ir.TensorLoad, same)], order="post") for v in part.values)
    return replace(part, values=values)
