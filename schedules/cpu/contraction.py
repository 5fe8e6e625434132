"""Which axes of a contraction-like anchor are tiled, and with what tile."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
import tvm_ffi

from tvmpass.core.kernels import contraction_operands, own_reads
from tvmpass.core.nest import Stage, as_int, extent, variables

from .emit import vector_lanes
from .registers import RegisterTile, contraction_tiles, window_tiles

PADDED_BLOCK_BYTES, STREAMED_BYTES = 1 << 19, 1 << 21


@dataclass(frozen=True)
class Axes:
    """Positions among the anchor's spatial iterators.

    ``n`` is the contiguous axis of the output, ``m`` the axis (or several
    adjacent ones, walked as one) along which a loaded vector is used again,
    ``row`` the image row axis of a windowed operator.
    """

    n: int
    m: tuple[int, ...]
    row: int | None


def find_axes(anchor: Stage) -> Axes:
    """Choose the axes from the anchor's access pattern."""
    spatial = anchor.spatial
    n = len(spatial) - 1
    operands = contraction_operands(anchor) or ()
    wide = [i for i in range(n) if extent(spatial[i]) != 1]
    reuse = wide
    for load in operands:
        used = set().union(*map(variables, load.indices))
        if spatial[n].var in used:
            free = [i for i in wide if spatial[i].var not in used]
            reuse = free if free else reuse
    if not reuse:
        return Axes(n, (), None)
    m = reuse[-1]
    row = m - 1 if m - 1 in wide and _windowed(anchor, m - 1) else None
    if row is None and m - 1 in wide and m - 1 in reuse and _same_roles(anchor, m - 1, m):
        return Axes(n, (m - 1, m), None)
    return Axes(n, (m,), row)


def _windowed(anchor: Stage, position: int) -> bool:
    """Is the axis read together with a reduction iterator wider than one?"""
    var = anchor.spatial[position].var
    moving = {iv.var for iv in anchor.reduce if extent(iv) != 1}
    return any(
        var in used and used & moving for load in own_reads(anchor) for used in map(variables, load.indices)
    )


def _same_roles(anchor: Stage, a: int, b: int) -> bool:
    """May two adjacent axes be walked as one: both free, or both plain, in each read?"""
    first, second = anchor.spatial[a].var, anchor.spatial[b].var
    if extent(anchor.spatial[a]) is None or extent(anchor.spatial[b]) is None:
        return False
    if _windowed(anchor, a) or _windowed(anchor, b):
        return False
    for load in own_reads(anchor):
        used = set().union(*map(variables, load.indices))
        if (first in used) != (second in used):
            return False
        if first in used and not _plain_pair(anchor, load, first, second):
            return False
    return True


def _plain_pair(anchor: Stage, load, first, second) -> bool:
    """Do the two variables index neighbouring dimensions with unit stride and no gap?"""
    indices = list(load.indices)
    places = {v: [i for i, e in enumerate(indices) if v in variables(e)] for v in (first, second)}
    if len(places[first]) != 1 or len(places[second]) != 1 or places[second][0] != places[first][0] + 1:
        return False
    sizes = {iv.var: extent(iv) for iv in anchor.spatial}
    dim = load.source.shape[places[second][0]]
    return as_int(dim) is not None and as_int(dim) == sizes[second]


def reduction_depth(anchor: Stage) -> int:
    """Return the number of steps of the reduction, symbolic extents taken as 64."""
    return math.prod(extent(iv) or 64 for iv in anchor.reduce)


def group_lanes(anchor: Stage, axes: Axes, widest: int) -> int:
    """Return the widest vector that stays within one group of a grouped convolution.

    The input channel of a grouped convolution is found by dividing the output
    channel; a vector that crosses a group would gather its input.
    """
    n = anchor.spatial[axes.n].var
    for load in contraction_operands(anchor) or ():
        for index in load.indices:
            for width in _divisors_of(index, n):
                while widest > 1 and width % widest:
                    widest //= 2
    return widest


def _divisors_of(index, var) -> list[int]:
    found: list = []
    tvm_ffi.structural_walk(index, [(tvm.ir.prim.expr.FloorDiv, found.append)], order="post")
    widths = [as_int(node.b) for node in found if var in variables(node.a)]
    return [w for w in widths if w]


def contraction_choices(anchor: Stage, axes: Axes, widest: int) -> list[RegisterTile]:
    """Return register tiles for a matmul or convolution, best guess first."""
    size = extent(anchor.spatial[axes.n])
    lanes = vector_lanes(size, group_lanes(anchor, axes, widest))
    groups = -(-size // lanes) if size else 1
    rows = _rows(anchor, axes)
    return contraction_tiles(rows, groups, reduction_depth(anchor), lanes)


def prefers_rows_first(anchor: Stage, axes: Axes) -> bool:
    """Should all channel tiles of a row tile follow one another?

    Otherwise the input is read once per channel tile: from memory where it is
    larger than the second-level cache and much larger than the weights.
    """
    sizes = {True: 0, False: 0}
    for load in contraction_operands(anchor) or ():
        dims = [as_int(dim) for dim in load.source.shape]
        weight = anchor.spatial[axes.n].var in set().union(*map(variables, load.indices))
        sizes[weight] = 0 if None in dims else math.prod(dims) * 4
    return sizes[False] > max(2 * sizes[True], STREAMED_BYTES)


def _rows(anchor: Stage, axes: Axes) -> int | None:
    sizes = [extent(anchor.spatial[position]) for position in axes.m]
    return None if None in sizes else math.prod(sizes)


def window_choices(anchor: Stage, axes: Axes, widest: int) -> list[RegisterTile]:
    """Return register tiles for a depthwise convolution or a pooling window, best guess first."""
    size = extent(anchor.spatial[axes.n])
    lanes = vector_lanes(size, widest)
    groups = -(-size // lanes) if size else 1
    window = [extent(iv) or 1 for iv in anchor.reduce]
    return window_tiles(_rows(anchor, axes), groups, math.prod(window), window[-1], lanes)


def row_block(height: int, row_bytes: int, longest: int = 10, shortest: int = 2) -> int:
    """Return how many rows to pad at once.

    The padded block fits in half a second-level cache where two rows do, and
    the blocks cover ``height`` with as little overlap as possible.
    """
    fitting = max(shortest, min(longest, PADDED_BLOCK_BYTES // max(row_bytes, 1) - 2))
    if height <= fitting:
        return height
    return min(
        range(fitting, max(fitting // 2, shortest) - 1, -1), key=lambda rows: -(-height // rows) * rows
    )
