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
    """Make the outermost loop of every nest that has more than one step parallel."""
    done: set = set()
    for nest in nests(schedule):
        reducing = nest.reducing
        for i, loop in enumerate(nest.loops):
            if i in reducing or int(loop.kind) != _SERIAL or loop.loop_var in done:
                break
            if as_int(loop.extent) == 1:
                continue
            schedule.parallel(_loops(schedule, nest.name)[i])
            done.add(loop.loop_var)
            break


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
