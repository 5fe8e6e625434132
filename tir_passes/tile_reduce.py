"""Reduce along outer axes with the contiguous axis in vectors.

A mean over image rows and columns with channels last keeps ``n`` channel sums in
registers while it walks the image.  A reduction along the contiguous axis
itself is `reduce-rows`' work.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cpu.tile import Tiling, tile_anchor
from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiling import check_tile
from tvmpass.core.nest import stages


@dataclass(frozen=True)
class TileReduce(Step):
    """Keep n neighbouring results of a reduction in vector registers."""

    refusals = (WRONG_KIND, NO_BLOCK, BAD_OPTION)

    n: int = 64
    lanes: int = 16

    @property
    def m(self) -> int:
        return 1

    def check(self, schedule, kernel):
        return check_tile(self, schedule, kernel, ("reduce", "pool"))

    def rewrite(self, schedule, kernel):
        func = schedule.mod["main"]
        anchor = next(part for part in stages(func) if part.name == kernel.anchor)
        tiling = Tiling(n=len(anchor.spatial) - 1, lanes=self.lanes, vectors=-(-self.n // self.lanes))
        return s_tir.Schedule(tile_anchor(func, kernel.anchor, tiling))
