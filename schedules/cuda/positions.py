"""Positions in the order of several axes, as numbers and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx

from .lanes import Lanes
from .launch import at_least_one
from .parts import Axis


def unravel(axes: Sequence[Axis], position) -> dict:
    """Map axis variables to their values at a position in the order of the axes."""
    mapping: dict = {}
    for axis in reversed(axes[1:]):
        size = axis.size if axis.extent is not None else at_least_one(axis.size)
        mapping[axis.var] = tirx.floormod(position, size)
        position = tirx.floordiv(position, size)
    if axes:
        mapping[axes[0].var] = position
    return mapping


def unravel_lanes(axes: Sequence[Axis], flat: int, group, lanes: Lanes, first: int = 0) -> dict:
    """Unravel a position counted in vectors along the last ``flat`` axes, taken as one.

    The last axis takes the whole position, and runs over its end, where several
    are one: every access lies in memory in their order (`Group.flat`).  Positions
    start at ``first``, which takes that all axes are one.
    """
    outer, inner = axes[: len(axes) - flat], axes[len(axes) - flat :]
    dtype = str(group.ty.dtype)
    vectors = tirx.const(math.prod(axis.extent for axis in inner) // lanes.width, dtype)
    within = tirx.floormod(group, vectors) if outer else group
    mapping = {axis.var: tirx.const(0, dtype) for axis in inner[:-1]}
    mapping[inner[-1].var] = within * tirx.const(lanes.width, dtype) + tirx.const(first, dtype)
    if lanes.width > 1:
        mapping[inner[-1].var] += lanes.lane
    if outer:
        mapping.update(unravel(outer, tirx.floordiv(group, vectors)))
    return mapping


def product(sizes):
    """Return the product of extents, an int where all are known."""
    known, rest = 1, None
    for size in sizes:
        if isinstance(size, tirx.IntImm):
            known *= int(size)
        else:
            rest = size if rest is None else rest * size
    if rest is None:
        return known
    return rest if known == 1 else rest * tirx.const(known, str(rest.ty.dtype))
