"""Add up half-precision products in single precision.

Before, every partial sum is rounded to half precision; after, only the finished
one is.  Comes before steps that share sums among threads; tiles of products
widen theirs themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cuda.contraction import read_contraction
from schedules.cuda.widen import widen_sums
from tir_passes.step import NO_BLOCK, WRONG_KIND, Step
from tir_passes.tiled_product import NOT_A_PRODUCT, NOT_HALF, check_product, find_anchor


@dataclass(frozen=True)
class WidenSums(Step):
    """Keep the sums of a half-precision product in float32."""

    refusals = (WRONG_KIND, NO_BLOCK, NOT_A_PRODUCT, NOT_HALF)

    def check(self, schedule, kernel):
        refusal = check_product(self, schedule, kernel)
        if refusal is not None:
            return refusal
        anchor = find_anchor(schedule, kernel)
        dtype = str(anchor.store.buffer.dtype)
        if read_contraction(anchor).accumulator == dtype:
            return NOT_HALF(block=kernel.anchor, dtypes=dtype)
        return None

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(widen_sums(schedule.mod["main"], kernel.anchor))
