"""Join what follows the anchor into one block.

Before, a fused kernel ends in one full-size loop nest per operator; after, one
block computes the whole chain from a finished sum, and a tile step stores
through it.  What comes before the anchor is left to the step that copies it.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.inline import inline_epilogue
from tir_passes.step import Step


@dataclass(frozen=True)
class InlineEpilogue(Step):
    """Inline the blocks after the anchor into the last one."""

    def rewrite(self, schedule, kernel):
        inline_epilogue(schedule, kernel.epilogue)
