"""Compute a deep product in several parts at the same time.

Before, a product with few results and a long reduction keeps few of a device's
multiprocessors busy.  After, ``parts`` partial products are computed side by side, and what follows the
product adds them up in a second launch.  Costs memory traffic for the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cuda.split_k import split_k, splittable
from tir_passes.step import BAD_OPTION, NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiled_product import NOT_A_PRODUCT, check_product, find_anchor

MOST = 16


@dataclass(frozen=True)
class SplitK(Step):
    """Split the reduction of a product into ``parts``, added up afterwards."""

    refusals = (WRONG_KIND, NO_BLOCK, NOT_A_PRODUCT, BAD_OPTION)

    parts: int = 4

    def check(self, schedule, kernel):
        refusal = check_product(self, schedule, kernel)
        if refusal is not None:
            return refusal
        if not 2 <= self.parts <= MOST:
            return BAD_OPTION(step=self.name, option="parts", value=self.parts, reason=f"2 to {MOST} parts")
        if splittable(find_anchor(schedule, kernel), self.parts) is None:
            reason = "no reduction of the product divides evenly"
            return BAD_OPTION(step=self.name, option="parts", value=self.parts, reason=reason)
        return None

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(split_k(schedule.mod["main"], kernel.anchor, self.parts))
