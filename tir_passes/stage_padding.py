"""Pad one block of image rows at a time, right before it is read.

Before, the whole padded image is written and read back; after, a buffer of a
few rows stays in cache.  Needs the ``rows`` of the tile step; pays where the
image is larger than the cache.  Channels are copied as vectors in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.padding import LOOP_OF, padding_nest, stage_padding, staging_loop, vectorize_padding
from tir_passes.step import BAD_OPTION, NO_BLOCK, Step, require_block
from tvmpass.core.decision import RefusalKind

NO_ROW_BLOCKS = RefusalKind(
    "no-row-blocks",
    "the loops of {block!r} have no block of rows to pad for (or it is joined with another loop)",
)


@dataclass(frozen=True)
class StagePadding(Step):
    """Pad per block of rows, per rows and channels, or the whole image at once.

    ``per`` is ``rows``, ``channels`` or ``image``.
    """

    refusals = (NO_BLOCK, BAD_OPTION, NO_ROW_BLOCKS)

    per: str = "rows"

    def check(self, schedule, kernel):
        if self.per not in (*LOOP_OF, "image"):
            reason = "it is rows, channels or image"
            return BAD_OPTION(step=self.name, option="per", value=self.per, reason=reason)
        if padding_nest(schedule, kernel) is None:
            return NO_BLOCK(block="padding")
        missing = require_block(schedule, kernel.anchor)
        if missing is None and self.per != "image" and staging_loop(schedule, kernel, self.per) is None:
            return NO_ROW_BLOCKS(block=kernel.anchor)
        return missing

    def rewrite(self, schedule, kernel):
        if self.per != "image":
            stage_padding(schedule, kernel, self.per)
        vectorize_padding(schedule, kernel)
