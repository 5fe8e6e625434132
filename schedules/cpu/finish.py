"""The steps that every kernel gets, scheduled or not."""

from __future__ import annotations

from tvm import s_tir, tirx

from tvmpass.core.nest import walk_blocks

from .loops import decompose_reductions
from .vector_math import vectorize_math


def finish_function(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` with every reduction started outside of its loops, and vector math.

    A reduction over no elements (an extent of 0, known or met at run time)
    then leaves its start value instead of stale memory.  Attributes are kept.
    """
    made = func
    if any(block.init is not None for block in walk_blocks(func)):
        schedule = s_tir.Schedule(func)
        decompose_reductions(schedule)
        made = schedule.mod["main"]
    made = vectorize_math(made)
    return made.with_attrs(func.attrs) if func.attrs else made
