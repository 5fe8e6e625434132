"""Unroll the register tile and a few steps of the reduction.

After a tile step the loops inside the reduction index accumulators; only
unrolled do these become registers.  ``k`` steps of the innermost reduction loop
are unrolled with them (0 = the whole window).
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import loop_extent, split_at_reduction, unroll_tile
from tir_passes.step import NO_BLOCK, NOT_CONSTANT, Step, require_block


@dataclass(frozen=True)
class UnrollInner(Step):
    """Unroll the tile loops and k steps of the reduction."""

    refusals = (NO_BLOCK, NOT_CONSTANT)

    k: int = 1

    def check(self, schedule, kernel):
        refusal = require_block(schedule, kernel.anchor or "")
        if refusal is not None:
            return refusal
        block = schedule.get_sblock(kernel.anchor)
        _, reduction, inner = split_at_reduction(schedule, block)
        for loop in inner + (reduction if self.k == 0 else []):
            if loop_extent(schedule, loop) is None:
                node = schedule.get(loop)
                return NOT_CONSTANT(loop=node.loop_var.name, block=kernel.anchor, extent=str(node.extent))
        return None

    def rewrite(self, schedule, kernel):
        unroll_tile(schedule, kernel.anchor, self.k)
