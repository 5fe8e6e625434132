"""Write out the loops over the rows of a block and over the rows of the window.

What is chosen by row (see `skip-padding`) is then known for each copy, and what
multiplies with zero goes.  The code grows by the product of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.window_rows import MAX_UNROLLED, row_pairs, unroll_rows
from tir_passes.step import BAD_OPTION, NO_BLOCK, NOT_CONSTANT, PADDING_COUNTS, Step, require_block
from tvmpass.core.padding import may_count


@dataclass(frozen=True)
class UnrollRows(Step):
    """Unroll the rows of a block and of the window."""

    refusals = (NO_BLOCK, PADDING_COUNTS, NOT_CONSTANT, BAD_OPTION)

    limit: int = MAX_UNROLLED

    def check(self, schedule, kernel):
        refusal = require_block(schedule, kernel.anchor or "")
        if refusal is not None:
            return refusal
        factors = may_count(kernel.func)
        if factors:
            return PADDING_COUNTS(factors=factors)
        pairs = row_pairs(schedule, kernel.anchor)
        if pairs is None:
            return NOT_CONSTANT(loop="hl", block=kernel.anchor, extent="?")
        if pairs > self.limit:
            reason = f"{pairs} copies would be made"
            return BAD_OPTION(step=self.name, option="limit", value=self.limit, reason=reason)
        return None

    def rewrite(self, schedule, kernel):
        unroll_rows(schedule, kernel.anchor)
