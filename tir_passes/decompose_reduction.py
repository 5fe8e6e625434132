"""Set accumulators to their start before the reduction loops, not inside them."""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import decompose_reductions
from tir_passes.step import Step


@dataclass(frozen=True)
class DecomposeReduction(Step):
    """Initialise every accumulator once, before its reduction starts.

    A reduction of no elements then leaves the start value.  Comes after the
    loops are vectorised and shared among threads: TVM annotates no loop of a
    block whose start has been taken out.
    """

    def rewrite(self, schedule, kernel):
        decompose_reductions(schedule)
