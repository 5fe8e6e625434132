"""Share every row of a CUDA reduction among threads: norms, softmax, sums.

All stages of a row run in one launch.  Neighbouring threads take neighbouring
columns, or with ``across`` neighbouring rows, whichever lie together in memory;
partial results meet in warp shuffles and shared memory.  ``keep`` holds the
elements of a row in registers between the passes over it.  Where rows are few
and long, ``splits`` parts of each are reduced by blocks of their own and joined
by a second launch.  Stages without a
reduction that do not belong to a row get a thread per result.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cuda.group import Tiling
from schedules.cuda.launches import (
    column_run,
    launch_groups,
    result_lanes,
    row_run,
    runs_across,
    widest_lanes,
)
from tir_passes.row_launches import NO_LAUNCHES, check_block, check_launches, check_power
from tir_passes.step import BAD_OPTION, Step
from tvmpass.core.cuda_arch import WARP

_THREADS = 256
_KEPT = 32
"""Elements of a row that a thread holds at most; more would leave registers for little else."""


@dataclass(frozen=True)
class TileRowThreads(Step):
    """Let ``threads`` share each row, ``rows`` rows per block."""

    refusals = (NO_LAUNCHES, BAD_OPTION)

    threads: int = 32
    rows: int = 4
    lanes: int = 4
    across: bool = False
    keep: bool = True
    splits: int = 1

    def check(self, schedule, kernel):
        for option, largest in (("threads", 1024), ("rows", 1024), ("lanes", 16), ("splits", 1024)):
            refusal = check_power(self, option, largest)
            if refusal is not None:
                return refusal
        return check_block(self, self.threads, self.rows) or check_launches(schedule)

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(launch_groups(schedule.mod["main"], self._tiling, self.splits))

    def _tiling(self, group) -> Tiling:
        if not group.reduces:
            lanes = result_lanes(group, self.lanes)
            return Tiling(threads=1, rows=_THREADS, lanes=lanes, across=True)
        if self.splits > 1 and runs_across(group) != self.across:
            # The launch that joins the parts: rows lie together in them.
            threads = min(WARP, self.splits)
            return Tiling(threads, _THREADS // threads, widest_lanes(group, row_run(group), self.lanes), True)
        if self.across:
            lanes = widest_lanes(group, row_run(group), self.lanes)
            return Tiling(self.threads, self.rows, lanes, across=True)
        columns = column_run(group)
        lanes = widest_lanes(group, columns, self.lanes)
        keep = self.keep and columns is not None and -(-columns // self.threads) <= _KEPT
        return Tiling(self.threads, self.rows, lanes, keep=keep)
