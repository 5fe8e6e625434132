"""Unroll the loops that index registers.

Sums live in registers only if every index into them is known when the kernel is
compiled.  The loops stay loops in the CUDA text, marked for its compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.annotate import unroll_tiles
from tir_passes.step import Step


@dataclass(frozen=True)
class UnrollRegisters(Step):
    """Unroll every loop over a thread's or warp's own tile."""

    def rewrite(self, schedule, kernel):
        unroll_tiles(schedule, kernel.anchor or "")
