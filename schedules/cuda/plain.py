"""The plainest schedule: one thread computes one result of each block."""

from __future__ import annotations

from tvm import s_tir, tirx

from schedules.cpu.loops import Nest, nests

from .launch import THREADS


def one_thread_per_result(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Return ``func`` with every block in threads, reductions inside a thread.

    Every block is a launch of its own.  None where a block is no plain nest.
    """
    schedule = s_tir.Schedule(func)
    for nest in nests(schedule):
        if not _is_plain(nest):
            return None
        try:
            _bind(schedule, nest)
        except s_tir.ScheduleError:
            return None
    return schedule.mod["main"]


def _is_plain(nest: Nest) -> bool:
    return nest.alone or not nest.loops


def _bind(schedule: s_tir.Schedule, nest: Nest) -> None:
    block = schedule.get_sblock(nest.name)
    loops = schedule.get_loops(block)
    reducing = set(nest.reducing)
    spatial = [loop for i, loop in enumerate(loops) if i not in reducing]
    reduce = [loop for i, loop in enumerate(loops) if i in reducing]
    if not spatial:
        spatial = [schedule.add_unit_loop(loops[0] if loops else block)]
    if reduce:
        schedule.reorder(*spatial, *reduce)
    fused = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    outer, inner = schedule.split(fused, [None, THREADS])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    if reduce and nest.block.init is not None:
        schedule.decompose_reduction(block, reduce[0])
