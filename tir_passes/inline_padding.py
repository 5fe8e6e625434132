"""Choose between pixel and padding where the image is read.

Before, the image is copied with its padding around it, whole or a block of rows
at a time; after, there is no copy, and each read asks whether it lies in the
image, once for a vector of channels.  Pays where a pixel is used few times: the
copy of a 3x3 depthwise convolution takes about as long as the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.padding import padding_nest
from tir_passes.skip_padding import NOT_FLOAT
from tir_passes.step import NO_BLOCK, PADDING_COUNTS, WRONG_KIND, Step, require_kind
from tvmpass.core.nest import stages
from tvmpass.core.padding import may_count


@dataclass(frozen=True)
class InlinePadding(Step):
    """Read the image without a padded copy of it."""

    refusals = (WRONG_KIND, NO_BLOCK, PADDING_COUNTS, NOT_FLOAT)

    def check(self, schedule, kernel):
        refusal = require_kind(self, kernel, "conv", "depthwise")
        if refusal is not None:
            return refusal
        if padding_nest(schedule, kernel) is None:
            return NO_BLOCK(block="padding")
        # Where loops are unrolled the choice is known, and the product with zero goes.
        factors = may_count(kernel.func)
        if factors:
            return PADDING_COUNTS(factors=factors)
        parts = stages(schedule.mod["main"]) or []
        anchor = next((part for part in parts if part.name == kernel.anchor), None)
        if anchor is None:
            return NO_BLOCK(block=kernel.anchor)
        # Sums of half precision are widened where the product of two loads is seen; here one is a choice.
        dtype = str(anchor.store.buffer.dtype)
        return None if dtype in ("float32", "float64") else NOT_FLOAT(block=kernel.anchor, dtype=dtype)

    def rewrite(self, schedule, kernel):
        schedule.compute_inline(schedule.get_sblock(padding_nest(schedule, kernel).name))
