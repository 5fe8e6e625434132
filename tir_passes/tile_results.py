"""Give every result of a CUDA kernel one thread, or every few neighbours.

Elementwise operators, data movement and pooling: neighbouring threads write
neighbouring results, each ``lanes`` of them in one vector where the extents
allow it.  A reduction runs inside its thread, which pays where it has few steps
or where neighbouring results lie together in what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cuda.group import Tiling
from schedules.cuda.launches import launch_groups, result_lanes
from tir_passes.row_launches import NO_LAUNCHES, check_launches, check_power
from tir_passes.step import BAD_OPTION, Step


@dataclass(frozen=True)
class TileResults(Step):
    """Launch ``threads`` per block, each for up to ``lanes`` neighbouring results."""

    refusals = (NO_LAUNCHES, BAD_OPTION)

    threads: int = 256
    lanes: int = 4

    def check(self, schedule, kernel):
        return (
            check_power(self, "threads", 1024) or check_power(self, "lanes", 16) or check_launches(schedule)
        )

    def rewrite(self, schedule, kernel):
        def choose(group):
            lanes = result_lanes(group, self.lanes)
            return Tiling(threads=1, rows=self.threads, lanes=lanes, across=True)

        return s_tir.Schedule(launch_groups(schedule.mod["main"], choose))
