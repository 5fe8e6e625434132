"""Copy the operands of later steps while the arithmetic of this step runs.

``stages`` copies of each panel are in shared memory at a time.  ``asynchronous``
copies (cp.async, from sm_80 on) do not occupy registers or threads meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cuda.annotate import pipeline_copies
from tir_passes.step import BAD_OPTION, NO_BLOCK, Step
from tir_passes.tiled_product import NOT_STAGED, check_staged


@dataclass(frozen=True)
class PipelineLoads(Step):
    """Pipeline the copies of a tiled product in ``stages`` stages."""

    refusals = (NO_BLOCK, NOT_STAGED, BAD_OPTION)

    stages: int = 2
    asynchronous: bool = True

    def check(self, schedule, kernel):
        if not 2 <= self.stages <= 8:
            return BAD_OPTION(step=self.name, option="stages", value=self.stages, reason="2 to 8 stages")
        return check_staged(schedule, kernel)

    def rewrite(self, schedule, kernel):
        pipeline_copies(schedule, kernel.anchor, self.stages, self.asynchronous)
