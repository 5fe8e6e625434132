"""Compute the blocks around the anchor where they are used.

Before, a fused kernel is one full-size loop nest per operator; after, the
chain behind the anchor is one block and cheap producers are part of their
readers.  A costly producer that would be evaluated several times per element
stays a block of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.inline import inline_epilogue, inline_everything, inline_prologue
from tir_passes.step import Step


@dataclass(frozen=True)
class InlineNeighbours(Step):
    """Inline the blocks before and after the anchor into one another."""

    def rewrite(self, schedule, kernel):
        if kernel.kind in ("elementwise", "movement", "other"):
            inline_everything(schedule)
            return
        inline_prologue(schedule, kernel.prologue)
        inline_epilogue(schedule, kernel.epilogue)
