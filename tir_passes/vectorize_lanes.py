"""Load and store a thread's neighbouring elements as one vector.

The tile steps for rows leave such copies as loops over lanes; a vector is 16
bytes at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from schedules.cuda.launch import COPY_LOOP, launches_itself
from schedules.cuda.launches import mark_loops
from tir_passes.row_launches import NOT_TILED
from tir_passes.step import Step


@dataclass(frozen=True)
class VectorizeLanes(Step):
    """Vectorise the copies between memory and a thread's registers."""

    refusals = (NOT_TILED,)

    def check(self, schedule, kernel):
        return None if launches_itself(schedule.mod["main"]) else NOT_TILED(step=self.name)

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(mark_loops(schedule.mod["main"], COPY_LOOP, tirx.ForKind.VECTORIZED, 16))
