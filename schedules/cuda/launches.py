"""A whole kernel as launches over rows, each with its own tiling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.nest import loads, moving_index, root_block, variables

from .group import Launch, Tiling
from .lanes import VECTOR_BYTES, item_bytes
from .launch import sequence
from .parts import REDUCE, Group, read_groups
from .split import split_reduction

_WORTH_A_REST = 4096
"""Results from which on vectors pay even where a rest has to be computed after them."""


def launch_groups(
    func: tirx.PrimFunc, choose: Callable[[Group], Tiling], splits: int = 1
) -> tirx.PrimFunc | None:
    """Return ``func`` with one launch per group of stages, None where its form is not known.

    A reduction that can be is made of ``splits`` parts first, which takes a launch more.
    """
    groups = read_groups(func)
    if groups is None:
        return None
    statements: list = []
    buffers: list = []
    parameters = set(func.params)
    for group in _split(groups, splits, buffers):
        if not _touched(group) <= parameters:
            # TVM may give what lies between launches another shape than declared.
            group.flat = 1
        statement, own = _written(group, choose(group))
        statements.append(statement)
        buffers += own
    stored = set().union(*(group.stored for group in groups))
    kept = [buffer for buffer in root_block(func).alloc_buffers if buffer in stored]
    root = s_tir.SBlock([], [], [], "root", sequence(statements), None, [*kept, *buffers])
    return func.with_body(s_tir.SBlockRealize([], True, root))


def _touched(group: Group) -> set:
    """Return the buffers in memory that a launch reads or writes."""
    own = {buffer for part in group.parts for buffer in part.buffers}
    read = {load.source for part in group.parts for value in part.values for load in loads(value)}
    return (read - own) | group.stored


def _written(group: Group, tiling: Tiling):
    """Return a launch and its buffers, with vectors no wider than memory allows.

    Elements that lie apart are read one by one, and then neighbouring threads
    had better read neighbouring ones.
    """
    while True:
        rest = _rest(group, tiling)
        launch = Launch(group, tiling, rows=_full(group, rest))
        statements = launch.statements()
        if tiling.lanes == 1 or not launch.scattered:
            break
        tiling = replace(tiling, lanes=tiling.lanes // 2)
    buffers = launch.buffers
    if rest:
        last = Launch(group, replace(tiling, lanes=1), _full(group, rest) or 0, rest)
        last.block, last.x, last.y = launch.block, launch.x, launch.y
        statements += last.statements()
        buffers = [*buffers, *last.buffers]
    return launch.bound(statements), buffers


def _full(group: Group, rest: int) -> int | None:
    return (row_count(group) or 0) - rest if rest else None


def _rest(group: Group, tiling: Tiling) -> int:
    """Return how many rows are left when vectors take a tensor as one; threads take one each."""
    count = row_count(group)
    return count % tiling.lanes if count is not None and is_flat(group) and tiling.across else 0


def _split(groups: list[Group], splits: int, buffers: list) -> list[Group]:
    """Return the groups, reductions in two; buffers between them are added to ``buffers``."""
    made: list[Group] = []
    for group in groups:
        found = split_reduction(group, splits) if splits > 1 and group.reduces else None
        made += [group] if found is None else found[:2]
        buffers += [] if found is None else found[2]
    return made


def widest_lanes(group: Group, size: int | None, limit: int) -> int:
    """Return the largest power of two up to ``limit`` that divides ``size`` neighbours.

    No access is wider than 16 bytes in the narrowest dtype that is stored or
    read, or 32 bytes in the widest.
    """
    if size is None:
        return 1
    sizes = [item_bytes(str(b.dtype)) for part in group.parts for b in part.buffers if b in group.stored]
    sizes += [
        item_bytes(str(load.ty.dtype)) for part in group.parts for v in part.values for load in loads(v)
    ]
    limit = min(limit, VECTOR_BYTES // min(sizes, default=4), 2 * VECTOR_BYTES // max(sizes, default=4))
    lanes = 1
    while lanes * 2 <= limit and size % (lanes * 2) == 0:
        lanes *= 2
    return lanes


def is_flat(group: Group) -> bool:
    """Does a launch without reductions take whole tensors in the order of memory?"""
    return not group.reduces and 0 < len(group.rows) == group.flat


def result_lanes(group: Group, limit: int) -> int:
    """Return how many neighbouring results a thread may take, up to ``limit``.

    A large tensor taken as one need not be divided evenly: what is left is
    computed one by one.
    """
    even = widest_lanes(group, row_run(group), limit)
    if is_flat(group) and (row_count(group) or 0) >= _WORTH_A_REST:
        return widest_lanes(group, 1 << 30, limit)
    return even


def row_run(group: Group) -> int | None:
    """Return how many neighbouring rows lie together, None where symbolic or there are none."""
    extents = [axis.extent for axis in group.rows[len(group.rows) - group.flat :]]
    return None if not extents or None in extents else math.prod(extents)


def column_run(group: Group) -> int | None:
    """Return the number of columns of a row, None where symbolic."""
    extents = [axis.extent for axis in group.columns]
    return None if None in extents else math.prod(extents)


def row_count(group: Group) -> int | None:
    """Return the number of rows of a launch, None where symbolic."""
    extents = [axis.extent for axis in group.rows]
    return None if None in extents else math.prod(extents)


def mark_loops(func: tirx.PrimFunc, name: str, kind, limit: int, **annotations) -> tirx.PrimFunc:
    """Return ``func`` with the short loops called ``name`` of another kind."""

    def marked(loop):
        size = loop.extent
        if loop.loop_var.name != name or int(loop.kind) != int(tirx.ForKind.SERIAL):
            return loop
        if not isinstance(size, tirx.IntImm) or not 1 < int(size) <= limit:
            return loop
        return tirx.For(loop.loop_var, loop.min, size, kind, loop.body, annotations=annotations)

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.For, marked)], order="post"))


def runs_across(group: Group) -> bool:
    """Do neighbouring rows, rather than neighbouring columns, lie together in what is reduced?"""
    votes = 0
    for part in group.parts:
        for load in (load for value in part.values for load in loads(value)):
            last = moving_index(load)
            if last is None or part.level != REDUCE:
                continue
            used = variables(last)
            votes += bool(group.rows) and group.rows[-1].var in used
            votes -= bool(group.columns) and group.columns[-1].var in used
    return votes > 0
