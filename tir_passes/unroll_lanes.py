"""Unroll the loops over a thread's own elements.

Registers have no index: a local array lives in them only if every index is
known.  Loops over lanes are written out; loops over the steps of a row stay
loops in the CUDA text, marked for its compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from schedules.cuda.launch import COPY_LOOP, LANE_LOOP, STEP_LOOP, launches_itself
from schedules.cuda.launches import mark_loops
from tir_passes.row_launches import NOT_TILED
from tir_passes.step import Step


@dataclass(frozen=True)
class UnrollLanes(Step):
    """Unroll lanes, and up to ``steps`` steps of a row."""

    refusals = (NOT_TILED,)

    steps: int = 32

    def check(self, schedule, kernel):
        return None if launches_itself(schedule.mod["main"]) else NOT_TILED(step=self.name)

    def rewrite(self, schedule, kernel):
        func = schedule.mod["main"]
        for name in (LANE_LOOP, COPY_LOOP):
            func = mark_loops(func, name, tirx.ForKind.UNROLLED, 16)
        func = mark_loops(func, STEP_LOOP, tirx.ForKind.UNROLLED, self.steps, pragma_unroll_explicit=0)
        return s_tir.Schedule(func)
