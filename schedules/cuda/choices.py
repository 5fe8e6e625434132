"""Choose tiles for a product from its extents and the limits of a device, best guess first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvmpass.core.cuda_arch import WARP, CudaArch, occupancy
from tvmpass.core.nest import as_int

from .contraction import Contraction
from .frame import TileSize
from .split_k import splittable
from .tile_blocks import ThreadTile
from .tile_warps import Warps
from .vector_width import itemsize

_SMS = {75: 40, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 170}
"""Multiprocessors of a typical device by compute capability; the target does not say."""

EXAMPLE_EXTENT = 256
"""Taken for an extent that is only known at run time."""

PAD_BYTES = 16
_PARTS = (2, 4, 8)
_DEPTHS = (2, 3, 4)
_LAUNCH_CYCLES = 4000
_BYTES_PER_CYCLE = 16
"""Of memory traffic, per multiprocessor."""

_SPLIT_GAIN = 1.2
"""How much faster a split product has to look than one in a single launch."""

_BLOCK_TILES = (
    (128, 128, 16, 8, 8),
    (128, 64, 16, 8, 4),
    (64, 128, 16, 4, 8),
    (64, 64, 16, 4, 4),
    (32, 64, 16, 4, 4),
    (64, 32, 16, 4, 4),
    (32, 32, 16, 2, 4),
    (16, 64, 16, 2, 4),
    (64, 16, 16, 2, 4),
    (8, 128, 16, 2, 4),
    (8, 64, 32, 1, 4),
    (128, 8, 16, 4, 4),
    (16, 32, 32, 1, 4),
    (16, 16, 32, 1, 4),
)
_WARP_TILES = (
    (128, 128, 32, 2, 2),
    (128, 128, 32, 2, 4),
    (128, 64, 32, 2, 2),
    (64, 128, 32, 2, 2),
    (64, 64, 32, 2, 2),
    (64, 64, 64, 2, 2),
    (64, 32, 64, 2, 1),
    (32, 64, 64, 1, 2),
    (32, 32, 64, 2, 2),
    (16, 64, 64, 1, 4),
    (64, 16, 64, 4, 1),
    (16, 128, 32, 1, 4),
    (16, 32, 64, 1, 2),
)


@dataclass(frozen=True)
class _Rates:
    """What one SM does per cycle, and from how many resident warps on it does that.

    Multiply-adds, elements copied to shared memory, elements read from there.
    """

    multiplies: float
    copies: float
    reads: float
    warps: int


_PLAIN, _TENSOR = _Rates(128, 16, 64, 8), _Rates(512, 32, 64, 4)


@dataclass(frozen=True)
class _Load:
    """What one thread block takes: threads, registers of each, shared bytes, and reads per k."""

    threads: int
    registers: int
    shared: int
    reads: int


@dataclass(frozen=True)
class BlockTile:
    """A tile for plain arithmetic.

    ``stages`` its copies are pipelined in (1: not), and ``parts`` the reduction is split into.
    """

    tile: TileSize
    thread: ThreadTile
    stages: int
    parts: int = 1


@dataclass(frozen=True)
class WarpTile:
    """A tile for tensor cores; ``stages`` and ``parts`` as those of a `BlockTile`."""

    tile: TileSize
    warps: Warps
    stages: int
    parts: int = 1


def typical_sms(arch: CudaArch) -> int:
    """Return how many multiprocessors a device of an architecture usually has."""
    return _SMS.get(arch.capability, _SMS[80])


def block_tiles(product: Contraction, arch: CudaArch, stages: int) -> list[BlockTile]:
    """Return tiles for plain arithmetic, pipelined in up to ``stages`` stages."""
    lanes = max(1, min(4, PAD_BYTES // itemsize(product.accumulator)))
    item = max(itemsize(str(load.source.dtype)) for load in (product.lhs, product.rhs))
    ranked = []
    for m, n, k, tm, tn in _BLOCK_TILES:
        tile, threads = TileSize(m, n, k), (m // tm) * (n // tn)
        depth = _stages(product, arch, tile, item, stages)
        if depth:
            registers = 40 + tm * tn * max(1, itemsize(product.accumulator) // 4) + 2 * (tm + tn)
            load = _Load(threads, registers, depth * _step_bytes(tile, item), threads * (tm + tn))
            cost, parts = _best_split(product, arch, tile, load, _PLAIN)
            ranked.append((cost, BlockTile(tile, ThreadTile(tm, tn, min(lanes, tn)), depth, parts)))
    ranked.sort(key=lambda item: item[0])
    return [choice for _, choice in ranked]


def warp_tiles(product: Contraction, arch: CudaArch, stages: int) -> list[WarpTile]:
    """Return tiles for tensor cores, pipelined in up to ``stages`` stages."""
    ranked = []
    for m, n, k, wm, wn in _WARP_TILES:
        tile, threads = TileSize(m, n, k), wm * wn * WARP
        depth = _stages(product, arch, tile, 2, stages)
        if depth:
            registers = 48 + (m // wm) * (n // wn) // WARP + (m // wm + n // wn) // 2
            shared = max(depth * _step_bytes(tile, 2), m * (n * 4 + PAD_BYTES))
            load = _Load(threads, registers, shared, m * wn + n * wm)
            cost, parts = _best_split(product, arch, tile, load, _TENSOR)
            ranked.append((cost, WarpTile(tile, Warps(wm, wn), depth, parts)))
    ranked.sort(key=lambda item: item[0])
    return [choice for _, choice in ranked]


def other_depths(product: Contraction, arch: CudaArch, choice: BlockTile | WarpTile) -> list:
    """Return a pipelined choice with fewer and with more stages, as far as they fit."""
    item = max(itemsize(str(load.source.dtype)) for load in (product.lhs, product.rhs))
    fitting = _stages(product, arch, choice.tile, item, max(_DEPTHS), choice.parts)
    return [
        replace(choice, stages=stages)
        for stages in _DEPTHS
        if choice.stages > 1 and stages <= fitting and stages != choice.stages
    ]


def known(size) -> int:
    """Return an extent, an example where it is symbolic."""
    return as_int(size) or EXAMPLE_EXTENT


def _step_bytes(tile: TileSize, item: int) -> int:
    """Return the shared memory of one step's panels, in either layout of each."""
    rows = max(tile.m * (tile.k * item + PAD_BYTES), tile.k * (tile.m * item + PAD_BYTES))
    columns = max(tile.n * (tile.k * item + PAD_BYTES), tile.k * (tile.n * item + PAD_BYTES))
    return rows + columns


def _stages(
    product: Contraction, arch: CudaArch, tile: TileSize, item: int, wanted: int, parts: int = 1
) -> int:
    """Return the stages that the steps along k and the shared memory allow, 0 where none fits."""
    steps = math.ceil(known(product.k.size) / parts / tile.k)
    return max(min(wanted, steps, arch.shared_per_block // _step_bytes(tile, item)), 0)


def _best_split(
    product: Contraction, arch: CudaArch, tile: TileSize, load: _Load, rates: _Rates
) -> tuple[float, int]:
    """Return the cost of a tile, and the parts to split the reduction into (1: none)."""
    best, best_parts = _cost(product, arch, tile, load, rates), 1
    for parts in _PARTS:
        if known(product.k.size) < parts * tile.k * 4 or splittable(product.anchor, parts) is None:
            break
        results = known(product.batch.size) * known(product.m.size) * known(product.n.size)
        traffic = 2 * parts * results * itemsize(product.accumulator) / (typical_sms(arch) * _BYTES_PER_CYCLE)
        cost = _SPLIT_GAIN * (_cost(product, arch, tile, load, rates, parts) + _LAUNCH_CYCLES + traffic)
        if cost < best:
            best, best_parts = cost, parts
    return best, best_parts


def _cost(
    product: Contraction, arch: CudaArch, tile: TileSize, load: _Load, rates: _Rates, parts: int = 1
) -> float:
    """Estimate the cycles of the busiest SM, tails of all three extents included."""
    fit = occupancy(arch, load.threads, min(load.registers, 255), load.shared)
    if not fit.blocks:
        return math.inf
    rows, columns = known(product.m.size), known(product.n.size)
    blocks = parts * known(product.batch.size) * math.ceil(rows / tile.m) * math.ceil(columns / tile.n)
    each = math.ceil(blocks / typical_sms(arch))
    depth = math.ceil(known(product.k.size) / parts / tile.k) * tile.k
    step = tile.m * tile.n / rates.multiplies
    step += (tile.m + tile.n) / rates.copies + load.reads / rates.reads
    busy = min(each, fit.blocks) * load.threads / WARP / rates.warps
    return each * depth * step / min(1.0, busy)
