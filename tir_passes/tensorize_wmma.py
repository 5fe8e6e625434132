"""Load, multiply and store whole fragments with tensor-core instructions.

Needs the fragments of `tile_warps`, staged in shared memory.  Takes the start of the
sums out of the loop over k, because it is an instruction too.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import find_nest
from schedules.cuda.tile_warps import tensorize_fragments
from tir_passes.step import NO_BLOCK, Step
from tir_passes.tiled_product import NOT_STAGED, check_staged


@dataclass(frozen=True)
class TensorizeWmma(Step):
    """Replace the loops over 16 x 16 fragments by wmma instructions."""

    refusals = (NO_BLOCK, NOT_STAGED)

    def check(self, schedule, kernel):
        for suffix in ("_lhs_fragment", "_rhs_fragment", "_tile"):
            if find_nest(schedule, (kernel.anchor or "") + suffix) is None:
                return NO_BLOCK(block=(kernel.anchor or "") + suffix)
        return check_staged(schedule, kernel)

    def rewrite(self, schedule, kernel):
        tensorize_fragments(schedule, kernel.anchor)
