"""Copy and store whole vectors where all of a vector is one access.

Needs the copies laid out by `stage_shared`: their innermost loop is one vector
wide.  A copy or store whose elements are not contiguous, or whose guard differs
among them, stays scalar.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.annotate import vectorize_accesses
from tir_passes.step import BAD_OPTION, NO_BLOCK, Step
from tir_passes.tiled_product import NOT_STAGED, check_staged


@dataclass(frozen=True)
class VectorizeLoads(Step):
    """Vectorise global accesses of a tiled product up to ``bytes`` wide."""

    refusals = (NO_BLOCK, NOT_STAGED, BAD_OPTION)

    bytes: int = 16

    def check(self, schedule, kernel):
        if self.bytes not in (2, 4, 8, 16):
            reason = "vectors are 2, 4, 8 or 16 bytes wide"
            return BAD_OPTION(step=self.name, option="bytes", value=self.bytes, reason=reason)
        return check_staged(schedule, kernel)

    def rewrite(self, schedule, kernel):
        vectorize_accesses(schedule, kernel.anchor, self.bytes)
