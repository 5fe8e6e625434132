"""Padding in front of a windowed anchor."""

from __future__ import annotations

from .inline import is_guarded
from .loops import leaf_blocks, loop_extent


def padding_block(schedule, kernel):
    """Return the block before the anchor that pads its input, else None."""
    for block in leaf_blocks(schedule):
        node = schedule.get(block)
        if node.name_hint in kernel.prologue and is_guarded(node):
            return block
    return None


def stage_padding(schedule, kernel, per: str) -> bool:
    """Move padding into the loop over blocks of rows (``per`` = rows or channels)."""
    block = padding_block(schedule, kernel)
    anchor = schedule.get_sblock(kernel.anchor)
    wanted = {"rows": "ht", "channels": "nt"}[per]
    for loop in schedule.get_loops(anchor):
        if schedule.get(loop).loop_var.name == wanted:
            schedule.compute_at(block, loop)
            return True
    return False


def vectorize_padding(schedule, kernel, widest: int = 16) -> None:
    """Copy channels as vectors; odd channel counts stay scalar."""
    block = padding_block(schedule, kernel)
    last = schedule.get_loops(block)[-1]
    size = loop_extent(schedule, last)
    if size is None:
        return
    lanes = widest
    while lanes > 1 and size % lanes:
        lanes //= 2
    if lanes >= 4:
        _, inner = schedule.split(last, [None, lanes])
        schedule.vectorize(inner)


__all__ = ["leaf_blocks", "padding_block", "stage_padding", "vectorize_padding"]
