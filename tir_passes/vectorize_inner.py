"""Make the innermost loop of every block a vector.

Only a loop whose extent is a power of two of at most 16 elements is taken: LLVM turns
wider or odd vectors into scalar code.  Tile steps leave such loops innermost.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import vectorize_innermost
from tir_passes.step import Step


@dataclass(frozen=True)
class VectorizeInner(Step):
    """Vectorise the innermost loop of every block where it is one vector wide."""

    lanes: int = 16

    def rewrite(self, schedule, kernel):
        vectorize_innermost(schedule, self.lanes)
