"""Leave out the rows of a window that lie in the padding.

Before, a window over an image of few rows multiplies with rows of zeros for a
good part: three fifths of it for 5x5 over two rows.  After, these rows are not
written, and the anchor reads a row only where it holds pixels; `unroll-rows`
later makes that known where code is generated.  Pays on images of few rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from schedules.cpu.window_rows import drop_padded_rows, padded_rows
from tir_passes.step import PADDING_COUNTS, WRONG_KIND, Step, require_kind
from tvmpass.core.decision import RefusalKind
from tvmpass.core.padding import may_count

NO_PADDED_ROWS = RefusalKind(
    "no-padded-rows",
    "the image that {block!r} reads has no rows of padding in front of it that are known to be such",
)
NOT_FLOAT = RefusalKind("not-single-precision", "the sums of {block!r} are kept in another type than {dtype}")


@dataclass(frozen=True)
class SkipPadding(Step):
    """Do not multiply with rows of padding."""

    refusals = (WRONG_KIND, PADDING_COUNTS, NO_PADDED_ROWS, NOT_FLOAT)

    def check(self, schedule, kernel):
        refusal = require_kind(self, kernel, "depthwise")
        if refusal is not None:
            return refusal
        factors = may_count(kernel.func)
        if factors:
            return PADDING_COUNTS(factors=factors)
        found = padded_rows(schedule.mod["main"], kernel.anchor)
        if found is None:
            return NO_PADDED_ROWS(block=kernel.anchor)
        dtype = str(found.anchor.store.buffer.dtype)
        return None if dtype in ("float32", "float64") else NOT_FLOAT(block=kernel.anchor, dtype=dtype)

    def rewrite(self, schedule, kernel):
        func = schedule.mod["main"]
        return s_tir.Schedule(drop_padded_rows(func, padded_rows(func, kernel.anchor)))
