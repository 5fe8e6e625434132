"""Share the outermost loops of the anchor among threads.

The loops around the tile (images, row blocks, channel blocks) are independent;
they are joined as far as they nest perfectly, and divided evenly.  Pays from
some ten microseconds of work on.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import parallelize
from tir_passes.step import Step


@dataclass(frozen=True)
class ParallelizeOuter(Step):
    """Run the outermost independent loops of every nest on all threads."""

    def rewrite(self, schedule, kernel):
        parallelize(schedule)
