"""Unroll the register tile and a few steps of the reduction.

After a tile step the loops inside the reduction index accumulators; only
unrolled do these become registers.  ``k`` steps of the innermost reduction loop
are unrolled with them (0 = the whole window).
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.cpu.loops import TILE_LOOPS, find_nest, unroll_tile
from tir_passes.step import NO_BLOCK, NOT_CONSTANT, Step
from tvmpass.core.nest import as_int


@dataclass(frozen=True)
class UnrollInner(Step):
    """Unroll the tile loops and k steps of the reduction."""

    refusals = (NO_BLOCK, NOT_CONSTANT)

    k: int = 1

    def check(self, schedule, kernel):
        nest = find_nest(schedule, kernel.anchor or "")
        if nest is None:
            return NO_BLOCK(block=kernel.anchor)
        unrolled = [loop for loop in nest.loops if loop.loop_var.name in TILE_LOOPS]
        unrolled += [nest.loops[i] for i in nest.reducing] if self.k == 0 else []
        for loop in unrolled:
            if as_int(loop.extent) is None:
                return NOT_CONSTANT(loop=loop.loop_var.name, block=kernel.anchor, extent=str(loop.extent))
        return None

    def rewrite(self, schedule, kernel):
        unroll_tile(schedule, kernel.anchor, self.k)
