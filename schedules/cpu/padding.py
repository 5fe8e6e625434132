"""Padding in front of a windowed anchor."""

from __future__ import annotations

from tvmpass.core.nest import as_int

from .inline import is_guarded
from .loops import Nest, find_nest, nests

LOOP_OF = {"rows": "ht", "channels": "nt"}
"""The loop of a tiled anchor that a block of padding is computed for."""


def padding_nest(schedule, kernel) -> Nest | None:
    """Return the block before the anchor that pads its input, else None."""
    for nest in nests(schedule):
        if nest.name in kernel.prologue and is_guarded(nest.block):
            return nest
    return None


def stage_padding(schedule, kernel, per: str) -> bool:
    """Move padding into the loop over blocks of rows, or of rows and channels."""
    padding, anchor = padding_nest(schedule, kernel), find_nest(schedule, kernel.anchor)
    names = [loop.loop_var.name for loop in anchor.loops]
    if "ht" not in names or LOOP_OF[per] not in names:
        return False
    loop = schedule.get_loops(schedule.get_sblock(anchor.name))[names.index(LOOP_OF[per])]
    schedule.compute_at(schedule.get_sblock(padding.name), loop)
    return True


def vectorize_padding(schedule, kernel, widest: int = 16) -> None:
    """Copy channels as vectors; odd channel counts stay scalar."""
    padding = padding_nest(schedule, kernel)
    size = as_int(padding.loops[-1].extent)
    lanes = widest
    while size is not None and lanes > 1 and size % lanes:
        lanes //= 2
    if size is None or lanes < 4:
        return
    last = schedule.get_loops(schedule.get_sblock(padding.name))[-1]
    _, inner = schedule.split(last, [None, lanes])
    schedule.vectorize(inner)
