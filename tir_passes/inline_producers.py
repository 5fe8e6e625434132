"""Compute cheap blocks where they are read.

Before, a fused CUDA kernel is one launch per operator; after, cheap producers
(casts, scaling, padding, slices) are part of their readers, and so are functions
of an operand that is broadcast: a launch costs more than to evaluate them again.
A producer that a window reads many times stays a block, a reduction always does.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.inline import inline_producers
from tir_passes.step import Step


@dataclass(frozen=True)
class InlineProducers(Step):
    """Inline injective blocks where that costs less than a launch."""

    def rewrite(self, schedule, kernel):
        inline_producers(schedule)
