"""Compute a matrix product in register tiles.

Before: one accumulator is loaded and stored for each multiply-add.  After: ``m`` rows by
``n`` columns of sums stay in vector registers over the whole reduction, and what
follows the product is applied to the tile before it is stored.  Pays always;
the best ``m`` and ``n`` depend on the extents.
"""

from __future__ import annotations

from dataclasses import dataclass

from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiling import check_tile, tiled


@dataclass(frozen=True)
class TileMatmul(Step):
    """Keep m x n sums of a (batched) matrix product in registers."""

    refusals = (WRONG_KIND, NO_BLOCK, BAD_OPTION)

    m: int = 6
    n: int = 64
    lanes: int = 16
    rows_first: bool = False

    def check(self, schedule, kernel):
        return check_tile(self, schedule, kernel, ("matmul",))

    def rewrite(self, schedule, kernel):
        return tiled(self, schedule, kernel, rows_first=self.rows_first)
