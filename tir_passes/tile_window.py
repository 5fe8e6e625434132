"""Compute a depthwise convolution or a pooling in register tiles.

Each output channel reads only its own input channel, so the vectors run over
channels and neighbouring pixels share the loads of their overlapping windows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiling import check_tile, tiled


@dataclass(frozen=True)
class TileWindow(Step):
    """Keep m pixels x n channels of a depthwise convolution or pooling in registers."""

    refusals = (WRONG_KIND, NO_BLOCK, BAD_OPTION)

    m: int = 4
    n: int = 16
    lanes: int = 16
    rows: int = 0

    def check(self, schedule, kernel):
        return check_tile(self, schedule, kernel, ("depthwise", "pool"))

    def rewrite(self, schedule, kernel):
        return tiled(self, schedule, kernel, rows=self.rows)
