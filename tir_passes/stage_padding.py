"""Pad one block of image rows at a time, right before it is read.

Before, the whole padded image is written and read back; after, a buffer of a
few rows stays in cache.  Needs the ``rows`` of the tile step; pays where the
image is larger than the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.padding import padding_nest, stage_padding, vectorize_padding
from tir_passes.step import NO_BLOCK, Step


@dataclass(frozen=True)
class StagePadding(Step):
    """Compute padding per block of rows (or whole, vectorised, with per=image)."""

    refusals = (NO_BLOCK,)

    per: str = "rows"

    def check(self, schedule, kernel):
        if padding_nest(schedule, kernel) is None:
            return NO_BLOCK(block="padding")
        return None

    def rewrite(self, schedule, kernel):
        if self.per != "image":
            stage_padding(schedule, kernel, self.per)
        vectorize_padding(schedule, kernel)
