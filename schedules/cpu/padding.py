"""Padding in front of a windowed anchor."""

from __future__ import annotations

from tvm import tirx

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


def staging_loop(schedule, kernel, per: str) -> int | None:
    """Return the position among the anchor's loops where padding ``per`` block belongs.

    None without blocks of rows, or where a loop on the way was joined with
    another: a block of such a loop may straddle two rows, and TVM then computes
    too small a region without a word.
    """
    anchor = find_nest(schedule, kernel.anchor)
    names = [loop.loop_var.name for loop in anchor.loops]
    if "ht" not in names or LOOP_OF[per] not in names:
        return None
    position = names.index(LOOP_OF[per])
    bound = {value for value in anchor.realize.iter_values if isinstance(value, tirx.Var)}
    if any(loop.loop_var not in bound for loop in anchor.loops[: position + 1] if as_int(loop.extent) != 1):
        return None
    return position


def stage_padding(schedule, kernel, per: str) -> None:
    """Move padding into the loop over blocks of rows, or of rows and channels."""
    position = staging_loop(schedule, kernel, per)
    loop = schedule.get_loops(schedule.get_sblock(kernel.anchor))[position]
    schedule.compute_at(schedule.get_sblock(padding_nest(schedule, kernel).name), loop)


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
