"""Compute a product in tiles of thread blocks and of threads, sums in registers.

Before: one thread per number, each operand read from memory for every
multiply-add.  After: a block of threads computes ``m`` x ``n`` numbers, each thread
``tm`` x ``tn`` of them, ``k`` steps of the reduction at a time; convolutions run as the product of
their weights with the windows of their input.  What follows is applied to the
sums before they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.frame import TileSize
from schedules.cuda.tile_blocks import ThreadTile, tile_blocks
from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiled_product import NOT_A_PRODUCT, check_multiples, check_product
from tvmpass.core.cuda_arch import MAX_THREADS_PER_BLOCK


@dataclass(frozen=True)
class TileBlocks(Step):
    """Tile a product by thread blocks (m x n, k deep) and threads (tm x tn)."""

    refusals = (WRONG_KIND, NO_BLOCK, NOT_A_PRODUCT, BAD_OPTION)

    m: int = 64
    n: int = 64
    k: int = 16
    tm: int = 4
    tn: int = 4
    lanes: int = 4

    def check(self, schedule, kernel):
        refusal = check_product(self, schedule, kernel) or check_multiples(
            self, ("tm", 1), ("lanes", 1), ("k", 1), ("tn", self.lanes), ("m", self.tm), ("n", self.tn)
        )
        threads = 0 if refusal else (self.m // self.tm) * (self.n // self.tn)
        if threads > MAX_THREADS_PER_BLOCK:
            reason = f"{threads} threads are more than {MAX_THREADS_PER_BLOCK}"
            return BAD_OPTION(step=self.name, option="m", value=self.m, reason=reason)
        return refusal

    def rewrite(self, schedule, kernel):
        tile, thread = TileSize(self.m, self.n, self.k), ThreadTile(self.tm, self.tn, self.lanes)
        return tile_blocks(schedule.mod["main"], kernel.anchor, tile, thread)
