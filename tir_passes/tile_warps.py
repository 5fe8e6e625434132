"""Compute a product of half-precision numbers in tiles of warps, for tensor cores.

Before: one thread per number.  After: a block of ``wm`` x ``wn`` warps computes ``m`` x ``n``
numbers, each warp its part in fragments of 16 x 16, ``k`` steps of the reduction at a
time.  Sums are single precision; the epilogue works on them in shared memory,
where each is read once, right before it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.contraction import read_contraction
from schedules.cuda.frame import TileSize
from schedules.cuda.tile_warps import Warps, tile_warps
from schedules.cuda.wmma import DTYPES, SIDE
from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiled_product import (
    NOT_A_PRODUCT,
    NOT_HALF,
    check_multiples,
    check_product,
    find_anchor,
    operand_dtypes,
)
from tvmpass.core.cuda_arch import MAX_THREADS_PER_BLOCK, WARP


@dataclass(frozen=True)
class TileWarps(Step):
    """Tile a half-precision product by blocks (m x n, k deep) and warps (wm x wn)."""

    refusals = (WRONG_KIND, NO_BLOCK, NOT_A_PRODUCT, NOT_HALF, BAD_OPTION)

    m: int = 64
    n: int = 64
    k: int = 32
    wm: int = 2
    wn: int = 2

    def check(self, schedule, kernel):
        refusal = check_product(self, schedule, kernel) or check_multiples(
            self, ("wm", 1), ("wn", 1), ("k", SIDE), ("m", SIDE * self.wm), ("n", SIDE * self.wn)
        )
        if refusal is not None:
            return refusal
        threads = self.wm * self.wn * WARP
        if threads > MAX_THREADS_PER_BLOCK:
            reason = f"{threads} threads are more than {MAX_THREADS_PER_BLOCK}"
            return BAD_OPTION(step=self.name, option="wm", value=self.wm, reason=reason)
        dtypes = operand_dtypes(schedule, kernel)
        sums = read_contraction(find_anchor(schedule, kernel)).accumulator
        if len(set(dtypes)) != 1 or dtypes[0] not in DTYPES or sums != "float32":
            return NOT_HALF(block=kernel.anchor, dtypes=" and ".join(dtypes))
        return None

    def rewrite(self, schedule, kernel):
        tile = TileSize(self.m, self.n, self.k)
        return tile_warps(schedule.mod["main"], kernel.anchor, tile, Warps(self.wm, self.wn))
