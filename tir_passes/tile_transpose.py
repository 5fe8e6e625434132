"""Turn a tile at a time in shared memory, where a CUDA kernel writes across what it reads.

Before, neighbouring threads read elements that lie far apart, a whole memory
transaction each; after, a block reads a tile along the source and writes it
along the result.  Rows of the tile are padded so that no two threads of a warp
meet in a bank.  What else the kernel computes happens on the way out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cuda.transpose import find_crossing, launch_transposed
from tir_passes.row_launches import check_power
from tir_passes.step import BAD_OPTION, Step
from tvmpass.core.decision import RefusalKind

NOT_CROSSED = RefusalKind("no-transpose", "the kernel reads nothing across the order in which it writes")


@dataclass(frozen=True)
class TileTranspose(Step):
    """Transpose tiles in shared memory, ``threads`` per tile."""

    refusals = (NOT_CROSSED, BAD_OPTION)

    threads: int = 256

    def check(self, schedule, kernel):
        refusal = check_power(self, "threads", 1024)
        if refusal is None and find_crossing(schedule.mod["main"]) is None:
            refusal = NOT_CROSSED()
        return refusal

    def rewrite(self, schedule, kernel):
        func = schedule.mod["main"]
        return s_tir.Schedule(launch_transposed(func, find_crossing(func), self.threads))
