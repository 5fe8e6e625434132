"""Copy the operands of a tiled product to shared memory, one step of k at a time.

Before, every thread reads its operands from global memory; after, the threads
of a block copy each element once, in vectors, and all read it from there.
What comes before the product (padding, casts) is computed on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import find_nest
from schedules.cuda.staging import inline_into_panels, stage_panels
from tir_passes.step import BAD_OPTION, NO_BLOCK, Step
from tir_passes.tiled_product import check_tiled


@dataclass(frozen=True)
class StageShared(Step):
    """Stage both operands in shared memory, rows ``pad`` bytes apart."""

    refusals = (NO_BLOCK, BAD_OPTION)

    pad: int = 16

    def check(self, schedule, kernel):
        if self.pad < 0 or self.pad % 16:
            reason = "rows have to stay aligned to 16 bytes"
            return BAD_OPTION(step=self.name, option="pad", value=self.pad, reason=reason)
        return check_tiled(schedule, kernel)

    def rewrite(self, schedule, kernel):
        present = [name for name in kernel.prologue if find_nest(schedule, name) is not None]
        inline_into_panels(schedule, present)
        stage_panels(schedule, kernel.anchor, self.pad)
