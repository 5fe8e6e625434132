"""Loop annotations on a schedule: vectors, unrolling, threads, reduction starts.

The functions read the loop structure once from the IR and ask the schedule
only to change it: TVM checks the types of every schedule call in Python, which
would otherwise cost more than the scheduling itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from tvmpass.core.nest import REDUCE, as_int, root_block, variables

TILE_LOOPS = ("ml", "nu")
"""Loop variables of a register tile, as the tile steps name them; ``nl`` is the vector."""

PARALLEL_STEPS, PARALLEL_REDUCTION_STEPS = 1 << 17, 1 << 20
"""From how many scalar steps on a nest is shared among threads (about 10 microseconds)."""

_SERIAL, _UNROLLED = int(tirx.ForKind.SERIAL), int(tirx.ForKind.UNROLLED)


@dataclass(frozen=True)
class Nest:
    """A block with all loops around it, outermost first."""

    realize: Any
    loops: tuple[Any, ...]

    @property
    def block(self):
        return self.realize.block

    @property
    def name(self) -> str:
        return self.realize.block.name_hint

    @property
    def reducing(self) -> list[int]:
        """Return the positions of the loops that drive a reduction iterator."""
        used: set = set()
        for iv, value in zip(self.block.iter_vars, self.realize.iter_values):
            if int(iv.iter_type) == REDUCE:
                used |= variables(value)
        return [i for i, loop in enumerate(self.loops) if loop.loop_var in used]

    @property
    def alone(self) -> bool:
        """Is the block all that the innermost loop contains?"""
        return bool(self.loops) and self.loops[-1].body.same_as(self.realize)


def nests(schedule) -> list[Nest]:
    """Return every block below the root with its loops, in program order."""
    root = root_block(schedule.mod["main"])
    return list(_walk(root.body, ())) if root is not None else []


def _walk(node, loops):
    while isinstance(node, tirx.For):
        loops = (*loops, node)
        node = node.body
    if isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _walk(part, loops)
    elif isinstance(node, s_tir.SBlockRealize):
        yield Nest(node, loops)


def find_nest(schedule, name: str) -> Nest | None:
    """Return the block called ``name`` with its loops, None where there is none."""
    return next((nest for nest in nests(schedule) if nest.name == name), None)


def _loops(schedule, name: str) -> list:
    return schedule.get_loops(schedule.get_sblock(name))


def vectorize_innermost(schedule, max_lanes: int = 16) -> None:
    """Vectorise every innermost spatial loop that is one vector wide.

    Taken are loops over a power of two of 2 to ``max_lanes`` elements with
    nothing but one block inside: LLVM makes scalar code of other widths.
    """
    for nest in nests(schedule):
        if not nest.alone or len(nest.loops) - 1 in nest.reducing:
            continue
        size = as_int(nest.loops[-1].extent)
        if size is None or not 2 <= size <= max_lanes or size & (size - 1):
            continue
        if int(nest.loops[-1].kind) == _SERIAL:
            schedule.vectorize(_loops(schedule, nest.name)[-1])


def unroll_tile(schedule, name: str, k: int, limit: int = 64) -> None:
    """Unroll every tile loop, and ``k`` reduction steps of block ``name`` (0 = all of them)."""
    nest = find_nest(schedule, name)
    reducing = nest.reducing
    if reducing and k == 0:
        loops = _loops(schedule, name)
        for i in reducing:
            size = as_int(nest.loops[i].extent)
            if size is not None and 1 < size <= limit:
                schedule.unroll(loops[i])
    elif reducing and k > 1:
        size = as_int(nest.loops[reducing[-1]].extent)
        steps = next((s for s in range(k, 1, -1) if size is not None and size % s == 0), 1)
        if steps > 1:
            _, inner = schedule.split(_loops(schedule, name)[reducing[-1]], [None, steps])
            schedule.unroll(inner)
    for nest in nests(schedule):
        wanted = [i for i, loop in enumerate(nest.loops) if _is_tile_loop(loop, limit)]
        if wanted:
            loops = _loops(schedule, nest.name)
            for i in wanted:
                schedule.unroll(loops[i])


def _is_tile_loop(loop, limit: int) -> bool:
    size = as_int(loop.extent)
    return (
        size is not None
        and 1 < size <= limit
        and int(loop.kind) == _SERIAL
        and loop.loop_var.name in TILE_LOOPS
    )


def parallelize(schedule) -> None:
    """Share every top-level nest with enough work among threads.

    Its outer loops are joined into one, as far as they nest perfectly and carry
    no reduction, so that few large tiles still divide evenly.
    """
    groups: dict = {}
    for nest in nests(schedule):
        if nest.loops:
            groups.setdefault(nest.loops[0].loop_var, []).append(nest)
    for group in groups.values():
        if not _worthwhile(group):
            continue
        depth = _shared_depth(group)
        if depth and any(as_int(loop.extent) != 1 for loop in group[0].loops[:depth]):
            outer = _loops(schedule, group[0].name)[:depth]
            schedule.parallel(schedule.fuse(*outer) if depth > 1 else outer[0])


def _worthwhile(group: list[Nest]) -> bool:
    """Is the work of a nest, as far as known, well above the cost of waking threads?"""
    for nest in group:
        steps = 1
        for loop in nest.loops:
            steps *= as_int(loop.extent) or PARALLEL_STEPS
        if steps >= (PARALLEL_REDUCTION_STEPS if nest.reducing else PARALLEL_STEPS):
            return True
    return False


def _shared_depth(group: list[Nest]) -> int:
    """Return how many outer loops all blocks of a nest share, free of reductions and tile loops."""
    depth = 0
    for loop in group[0].loops:
        inner = loop.loop_var.name in (*TILE_LOOPS, "nl") or int(loop.kind) != _SERIAL
        if inner or any(depth in nest.reducing for nest in group):
            break
        depth += 1
        if not isinstance(loop.body, tirx.For):
            break
    return min(depth, *(len(nest.loops) for nest in group))


def decompose_reductions(schedule) -> None:
    """Take the start of every reduction out of its loops, unrolled where the loops are."""
    for nest in nests(schedule):
        reducing = nest.reducing
        if nest.block.init is None or not reducing:
            continue
        inner = [loop for i, loop in enumerate(nest.loops) if i > reducing[0] and i not in reducing]
        block = schedule.get_sblock(nest.name)
        init = schedule.decompose_reduction(block, schedule.get_loops(block)[reducing[0]])
        if not any(int(loop.kind) == _UNROLLED for loop in inner):
            continue
        loops = schedule.get_loops(init)
        for loop, original in zip(loops[len(loops) - len(inner) :], inner):
            if int(original.kind) == _UNROLLED and int(schedule.get(loop).kind) == _SERIAL:
                schedule.unroll(loop)
