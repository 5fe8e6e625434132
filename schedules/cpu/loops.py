"""Loop annotations on a schedule: vectors, unrolling, threads, reduction starts."""

from __future__ import annotations

from tvm import s_tir, tirx

from tvmpass.core.nest import REDUCE, as_int, variables

MAX_VECTOR_BYTES = 64


def loop_extent(schedule, loop) -> int | None:
    """Return a loop's extent, None where symbolic."""
    return as_int(schedule.get(loop).extent)


def leaf_blocks(schedule) -> list:
    """Return all blocks below the root, in program order."""
    return schedule.get_child_blocks(schedule.get_sblock("root"))


def has_block(schedule, name: str) -> bool:
    return any(schedule.get(b).name_hint == name for b in leaf_blocks(schedule))


def split_at_reduction(schedule, block) -> tuple[list, list, list]:
    """Return the block's loops as (before, reduction, after the first reduction loop)."""
    loops = schedule.get_loops(block)
    reducing = _reduction_loops(schedule, block, loops)
    if not reducing:
        return loops, [], []
    first = min(reducing)
    inner = [loops[i] for i in range(first, len(loops)) if i not in reducing]
    return loops[:first], [loops[i] for i in sorted(reducing)], inner


def _reduction_loops(schedule, block, loops) -> set[int]:
    """Return the positions of the loops that drive a reduction iterator."""
    realize = _realize(schedule, block, loops)
    if realize is None:
        return set()
    used: set = set()
    for iv, value in zip(realize.block.iter_vars, realize.iter_values):
        if int(iv.iter_type) == REDUCE:
            used |= variables(value)
    return {i for i, loop in enumerate(loops) if schedule.get(loop).loop_var in used}


def _realize(schedule, block, loops):
    """Return the realize node of a block, found below its innermost loop."""
    if not loops:
        return None
    wanted = schedule.get(block)
    todo = [schedule.get(loops[-1]).body]
    while todo:
        node = todo.pop()
        if isinstance(node, tirx.SeqStmt):
            todo.extend(node.seq)
        elif isinstance(node, s_tir.SBlockRealize) and node.block.same_as(wanted):
            return node
    return None


def _is_own(schedule, loop) -> bool:
    """Is there nothing but one block right below the loop?"""
    return isinstance(schedule.get(loop).body, s_tir.SBlockRealize)


def vectorize_innermost(schedule, block, max_lanes: int = 16) -> bool:
    """Vectorise the innermost loop where it is a power of two of at most ``max_lanes``."""
    loops = schedule.get_loops(block)
    if not loops or not _is_own(schedule, loops[-1]):
        return False
    if len(loops) - 1 in _reduction_loops(schedule, block, loops):
        return False
    size = loop_extent(schedule, loops[-1])
    if size is None or size < 2 or size > max_lanes or size & (size - 1):
        return False
    schedule.vectorize(loops[-1])
    return True


def unroll_constant(schedule, loop, limit: int = 32) -> bool:
    """Unroll a loop of known extent up to ``limit``; say whether it was."""
    size = loop_extent(schedule, loop)
    if size is None or size > limit:
        return False
    if size > 1:
        schedule.unroll(loop)
    return True


_TILE_LOOPS = ("ml", "nu")


def unroll_tile(schedule, name: str, k: int) -> None:
    """Unroll every tile loop, and ``k`` reduction steps of block ``name`` (0 = all of them)."""
    block = schedule.get_sblock(name)
    _, reduction, _ = split_at_reduction(schedule, block)
    if reduction and k == 0:
        for loop in reduction:
            unroll_constant(schedule, loop, 64)
    elif reduction and k > 1:
        size = loop_extent(schedule, reduction[-1])
        while size is not None and k > 1 and size % k:
            k -= 1
        if size is not None and k > 1:
            _, steps = schedule.split(reduction[-1], [None, k])
            schedule.unroll(steps)
    for leaf in leaf_blocks(schedule):
        for loop in schedule.get_loops(leaf):
            node = schedule.get(loop)
            if int(node.kind) == 0 and node.loop_var.name in _TILE_LOOPS:
                unroll_constant(schedule, loop)


def parallelize(schedule) -> None:
    """Make the outermost loop of every nest that has more than one step parallel."""
    done = set()
    for block in leaf_blocks(schedule):
        before, _, _ = split_at_reduction(schedule, block)
        for loop in before:
            size = loop_extent(schedule, loop)
            if int(schedule.get(loop).kind) != 0:
                break
            if size == 1:
                continue
            key = schedule.get(loop).loop_var
            if key not in done:
                schedule.parallel(loop)
                done.add(key)
            break


def decompose_reductions(schedule) -> None:
    """Take the start of every reduction out of its loops, in place."""
    for block in leaf_blocks(schedule):
        node = schedule.get(block)
        if node.init is None:
            continue
        _, reduction, inner = split_at_reduction(schedule, block)
        if not reduction:
            continue
        unrolled = [int(schedule.get(loop).kind) for loop in inner]
        init = schedule.decompose_reduction(block, reduction[0])
        if not inner:
            continue
        for loop, kind in zip(schedule.get_loops(init)[-len(inner) :], unrolled):
            if kind == 3 and int(schedule.get(loop).kind) == 0:
                unroll_constant(schedule, loop)
