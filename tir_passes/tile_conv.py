"""Compute a convolution in register tiles.

``m`` output pixels by ``n`` output channels stay in vector registers over the
whole window and all input channels.  ``rows`` > 0 blocks the image rows, so
that `stage-padding` can pad one block at a time instead of the whole image.
"""

from __future__ import annotations

from dataclasses import dataclass

from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiling import check_tile, tiled


@dataclass(frozen=True)
class TileConv(Step):
    """Keep m pixels x n channels of a convolution in registers."""

    refusals = (WRONG_KIND, NO_BLOCK, BAD_OPTION)

    m: int = 6
    n: int = 64
    lanes: int = 16
    rows: int = 0
    rows_first: bool = False

    def check(self, schedule, kernel):
        return check_tile(self, schedule, kernel, ("conv",))

    def rewrite(self, schedule, kernel):
        return tiled(self, schedule, kernel, rows=self.rows, rows_first=self.rows_first)
