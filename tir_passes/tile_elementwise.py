"""Walk elementwise operators and data movement in vectors along the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cpu.injective import tile_injective
from tir_passes.step import BAD_OPTION, WRONG_KIND, Step, require_kind


@dataclass(frozen=True)
class TileElementwise(Step):
    """Split the last axis of every injective block into vectors of `lanes` elements.

    An axis that vectors do not divide is covered by a last vector that
    overlaps its neighbour.  ``n`` elements are unrolled.
    """

    refusals = (WRONG_KIND, BAD_OPTION)

    n: int = 64
    lanes: int = 16

    def check(self, schedule, kernel):
        refusal = require_kind(self, kernel, "elementwise", "movement")
        if refusal is None and (self.lanes < 1 or self.lanes & (self.lanes - 1)):
            refusal = BAD_OPTION(
                step=self.name, option="lanes", value=self.lanes, reason="it must be a power of two"
            )
        return refusal

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(tile_injective(schedule.mod["main"], self.lanes, max(1, self.n // self.lanes)))
