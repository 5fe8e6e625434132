"""The step that every CUDA kernel gets, whichever recipe made it."""

from __future__ import annotations

from tvm import s_tir, tirx

from schedules.cpu.loops import Nest, nests
from tvmpass.core.nest import walk_blocks

_BOUND = int(tirx.ForKind.THREAD_BINDING)


def finish_function(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` with reductions inside one thread started before their loops.

    One over no elements then leaves its start value.  A reduction that threads
    share keeps its start in the block: TVM sets it in every thread when it
    lowers the block.  Attributes are kept.
    """
    if all(block.init is None for block in walk_blocks(func)):
        return func
    schedule = s_tir.Schedule(func)
    for nest in nests(schedule):
        if nest.block.init is not None and nest.reducing and not _is_shared(nest):
            block = schedule.get_sblock(nest.name)
            schedule.decompose_reduction(block, schedule.get_loops(block)[nest.reducing[0]])
    made = schedule.mod["main"]
    return made.with_attrs(func.attrs) if func.attrs else made


def _is_shared(nest: Nest) -> bool:
    return any(int(nest.loops[i].kind) == _BOUND for i in nest.reducing)
