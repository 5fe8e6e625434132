"""Long reductions with few results: many blocks take a part each, a second launch joins them."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvmpass.core.nest import substitute

from .launch import ceil_div
from .parts import REDUCE, ROW, Axis, Group, Part
from .positions import product, unravel


def can_split(group: Group) -> bool:
    """Is a launch one reduction, and then only work on its results?"""
    first, *rest = group.parts
    return first.level == REDUCE and all(part.level == ROW for part in rest)


def split_reduction(group: Group, splits: int) -> tuple[Group, Group, list[Any]] | None:
    """Return a launch that reduces ``splits`` parts of every row, one that joins them, and their buffers.

    None where the launch cannot be split, or its columns are not known or fewer
    than the parts.
    """
    columns = product([axis.size for axis in group.columns])
    if not can_split(group) or not isinstance(columns, int) or columns < splits:
        return None
    first, *rest = group.parts
    size = ceil_div(columns, splits)
    dtype = str(group.columns[0].var.ty.dtype)
    part = Axis(tirx.Var("part", dtype), tirx.const(splits, dtype))
    within = Axis(tirx.Var("column", dtype), tirx.const(size, dtype))
    place = part.var * tirx.const(size, dtype) + within.var
    values = [substitute(value, unravel(group.columns, place)) for value in first.values]
    if size * splits != columns:
        inside = place < tirx.const(columns, dtype)
        identities = first.reducer.identities
        values = [tirx.if_then_else(inside, v, start) for v, start in zip(values, identities)]
    shape = [splits, *(axis.size for axis in group.rows)]
    partial = [tirx.decl_buffer(shape, str(b.dtype), b.name + "_parts") for b in first.buffers]
    at = (part.var, *(axis.var for axis in group.rows))
    pieces = Part(first.name + "_parts", REDUCE, tuple(partial), at, tuple(values), first.reducer)
    begin = Group((part, *group.rows), (within,), [pieces], set(partial))
    joined = tuple(tirx.BufferLoad(buffer, list(at)) for buffer in partial)
    join = Part(first.name, REDUCE, first.buffers, first.indices, joined, first.reducer)
    return begin, Group(group.rows, (part,), [join, *rest], group.stored), partial
