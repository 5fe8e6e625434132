"""What the steps that make launches over rows share: their checks."""

from __future__ import annotations

from schedules.cuda.parts import read_groups
from tvmpass.core.cuda_arch import MAX_THREADS_PER_BLOCK, WARP
from tvmpass.core.decision import Refusal, RefusalKind

from .step import BAD_OPTION, Step

NO_LAUNCHES = RefusalKind("no-row-launches", "the blocks of this kernel do not come apart into rows")
NOT_TILED = RefusalKind("not-tiled", "{step} needs a kernel whose launches a tile step has written")


def check_launches(schedule) -> Refusal | None:
    """Refuse a kernel that `schedules.cuda.parts` cannot read, or one with launches already."""
    return None if read_groups(schedule.mod["main"]) else NO_LAUNCHES()


def check_power(step: Step, option: str, largest: int) -> Refusal | None:
    """Refuse an option that is no power of two from 1 to ``largest``."""
    value = getattr(step, option)
    if 1 <= value <= largest and not value & (value - 1):
        return None
    return BAD_OPTION(
        step=step.name, option=option, value=value, reason=f"it must be a power of two up to {largest}"
    )


def check_block(step: Step, threads: int, rows: int) -> Refusal | None:
    """Refuse blocks with more threads than a device allows, and rows of several warps that share one."""
    if threads * rows > MAX_THREADS_PER_BLOCK:
        return BAD_OPTION(
            step=step.name, option="rows", value=rows, reason=f"over {MAX_THREADS_PER_BLOCK} threads"
        )
    if threads > WARP and rows > 1 and not getattr(step, "across", False):
        reason = f"rows of more than {WARP} threads take a block each"
        return BAD_OPTION(step=step.name, option="rows", value=rows, reason=reason)
    return None
