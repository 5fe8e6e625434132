"""Run all stages of a softmax, a norm or a row reduction for one row at a time.

Before, every stage walks the whole tensor; after, a row stays in cache from
the first stage to the last, and every stage works in vectors: a reduction
along the row keeps up to eight vectors of partial sums (so that its rounding
differs from the one-by-one sum, usually for the better).  A product with a single
column is a row reduction too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cpu.rows import tile_rows
from tir_passes.step import BAD_OPTION, WRONG_KIND, Step, require_kind


@dataclass(frozen=True)
class TileRows(Step):
    """Compute norms, softmax and row reductions row by row, in vectors."""

    refusals = (WRONG_KIND, BAD_OPTION)

    n: int = 64
    lanes: int = 16

    def check(self, schedule, kernel):
        kinds = ("norm-softmax", "reduce")
        columns = [iteration.size for iteration in kernel.iterations if not iteration.reduce]
        if kernel.kind == "matmul" and columns and columns[-1] == 1:
            kinds = (*kinds, "matmul")
        refusal = require_kind(self, kernel, *kinds)
        if refusal is None and (self.lanes < 1 or self.lanes & (self.lanes - 1)):
            reason = "it must be a power of two"
            refusal = BAD_OPTION(step=self.name, option="lanes", value=self.lanes, reason=reason)
        return refusal

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(tile_rows(schedule.mod["main"], self.lanes, max(1, self.n // self.lanes)))
