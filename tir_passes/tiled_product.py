"""What the steps on tiled products share: their refusals and checks."""

from __future__ import annotations

from schedules.cpu.loops import find_nest
from schedules.cuda.contraction import read_contraction
from schedules.cuda.staging import panel_names
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.kernels import contraction_operands
from tvmpass.core.nest import Stage, stages

from .step import BAD_OPTION, NO_BLOCK, Step, require_kind

NOT_A_PRODUCT = RefusalKind("not-a-product", "block {block!r} is not a sum of products of two elements")
NOT_HALF = RefusalKind(
    "not-half-precision", "only for products of two float16 or two bfloat16 operands; {block!r} has {dtypes}"
)
NOT_STAGED = RefusalKind("not-staged", "the operands of {block!r} are not copied inside its loop over k")

KINDS = ("matmul", "conv", "depthwise")


def find_anchor(schedule, kernel) -> Stage | None:
    """Return the anchor of a kernel that is not tiled yet."""
    parts = stages(schedule.mod["main"]) or []
    return next((part for part in parts if part.name == kernel.anchor), None)


def check_product(step: Step, schedule, kernel) -> Refusal | None:
    """Refuse other kinds, an anchor that is already tiled, and one that is no product."""
    refusal = require_kind(step, kernel, *KINDS)
    if refusal is not None:
        return refusal
    anchor = find_anchor(schedule, kernel)
    if anchor is None:
        return NO_BLOCK(block=kernel.anchor)
    return None if read_contraction(anchor) is not None else NOT_A_PRODUCT(block=kernel.anchor)


def operand_dtypes(schedule, kernel) -> list[str]:
    """Return the dtypes of the two tensors that an untiled anchor multiplies."""
    return [str(load.source.dtype) for load in contraction_operands(find_anchor(schedule, kernel))]


def check_multiples(step: Step, *pairs: tuple[str, int]) -> Refusal | None:
    """Refuse an option below one, or that is no multiple of the number paired with its name."""
    for option, factor in pairs:
        value = getattr(step, option)
        if value < 1 or factor < 1 or value % factor:
            reason = f"it must be a positive multiple of {max(factor, 1)}"
            return BAD_OPTION(step=step.name, option=option, value=value, reason=reason)
    return None


def check_tiled(schedule, kernel) -> Refusal | None:
    """Refuse where no tile step has made the panels of the anchor."""
    for name in panel_names(kernel.anchor or ""):
        if find_nest(schedule, name) is None:
            return NO_BLOCK(block=name)
    return None


def check_staged(schedule, kernel) -> Refusal | None:
    """Refuse where the panels are not copied inside the anchor's loops."""
    missing = check_tiled(schedule, kernel)
    if missing is not None:
        return missing
    outermost = find_nest(schedule, kernel.anchor).loops[0]
    for name in panel_names(kernel.anchor):
        loops = find_nest(schedule, name).loops
        if not loops or not loops[0].same_as(outermost):
            return NOT_STAGED(block=kernel.anchor)
    return None
