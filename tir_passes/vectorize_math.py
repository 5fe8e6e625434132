"""Write exp, tanh, erf and sigmoid of float32 as arithmetic.

Before, each is a call of the C library per element; after, LLVM computes
sixteen at once.  exp stays within 2 units of the last place, sigmoid within 4,
tanh within 4e-7 and erf within 5e-7; NaN, infinities, overflow and denormal
results are those of the library.  Every kernel gets this in `finish`; as a step
of its own it serves pipelines that put steps together by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cpu.vector_math import vectorize_math
from tir_passes.step import Step


@dataclass(frozen=True)
class VectorizeMath(Step):
    """Replace float32 exp, tanh, erf and sigmoid by forms that vectorise."""

    def rewrite(self, schedule, kernel):
        return s_tir.Schedule(vectorize_math(schedule.mod["main"]))
