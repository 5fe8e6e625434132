"""Compute cheap blocks where they are read.

Before, a fused CUDA kernel is one launch per operator; after, cheap producers
(casts, scaling, padding, slices) are part of their readers.  A costly producer
that would be evaluated more often stays a block, and a reduction always does.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.inline import inline_everything
from tir_passes.step import Step


@dataclass(frozen=True)
class InlineProducers(Step):
    """Inline every cheap injective block into its readers."""

    def rewrite(self, schedule, kernel):
        inline_everything(schedule)
