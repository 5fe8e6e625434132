"""The part the tile-* steps share: options to a `Tiling`, with the checks."""

from __future__ import annotations

from tvm import s_tir

from schedules.cpu.contraction import find_axes
from schedules.cpu.tile import Tiling, tile_anchor
from tvmpass.core.decision import Refusal
from tvmpass.core.nest import extent, stages

from .step import BAD_OPTION, NO_BLOCK, Step, require_kind


def check_tile(step: Step, schedule, kernel, kinds: tuple[str, ...]) -> Refusal | None:
    """Refuse other kinds of kernel, an anchor that is not there, and impossible tiles."""
    refusal = require_kind(step, kernel, *kinds)
    if refusal is not None:
        return refusal
    parts = stages(schedule.mod["main"]) or []
    if not any(part.name == kernel.anchor and part.spatial for part in parts):
        return NO_BLOCK(block=kernel.anchor)
    for option in ("m", "n", "lanes"):
        value = getattr(step, option)
        if value < 1:
            return BAD_OPTION(step=step.name, option=option, value=value, reason="it must be at least 1")
    if step.lanes & (step.lanes - 1) or step.lanes > 64:
        return BAD_OPTION(
            step=step.name, option="lanes", value=step.lanes, reason="vectors are powers of two up to 64"
        )
    if step.m * -(-step.n // step.lanes) > 64:
        return BAD_OPTION(step=step.name, option="m", value=step.m, reason="more than 64 accumulators")
    return None


def tiled(step: Step, schedule, kernel, rows: int = 0, rows_first: bool = False) -> s_tir.Schedule:
    """Return a new schedule over the function with its anchor in register tiles."""
    func = schedule.mod["main"]
    anchor = next(part for part in stages(func) if part.name == kernel.anchor)
    axes = find_axes(anchor)
    if axes.row is None or extent(anchor.spatial[axes.row]) is None:
        rows = 0
    tiling = Tiling(
        n=axes.n,
        lanes=step.lanes,
        vectors=-(-step.n // step.lanes),
        m=axes.m,
        size=step.m,
        row_axis=axes.row,
        rows=rows,
        rows_first=rows_first,
    )
    return s_tir.Schedule(tile_anchor(func, kernel.anchor, tiling))
