"""Choose register tiles from extents and the machine's registers."""

from __future__ import annotations

from dataclasses import dataclass

VECTOR_REGISTERS = 32
FMA_LATENCY_CYCLES = 4
L1_BYTES = 32 * 1024


@dataclass(frozen=True)
class RegisterTile:
    """A tile of ``m`` rows by ``vectors`` vectors of ``lanes`` elements."""

    m: int
    vectors: int
    lanes: int


def tile_cycles(m: int, vectors: int, lanes: int, depth: int) -> float:
    """Estimate the cycles of one tile over ``depth`` steps of the reduction.

    Two multiply-adds and two loads issue per cycle; fewer than eight
    independent sums leave the multipliers waiting for their own results; a
    panel of weights that overflows the first-level cache comes from the second
    at half a vector per cycle.
    """
    multiply = m * vectors / 2
    panel = depth * vectors * lanes * 4
    weight = 0.5 if panel <= L1_BYTES * 0.6 else 2.0
    load = m / 2 + vectors * weight
    return depth * max(multiply, load, FMA_LATENCY_CYCLES) + 3.0 * m * vectors


def contraction_tiles(
    rows: int | None, groups: int, depth: int, lanes: int, registers: int = VECTOR_REGISTERS
) -> list[RegisterTile]:
    """Return register tiles for ``rows`` x ``groups`` vectors, best guess first.

    ``rows`` is None where symbolic.
    """
    ranked = []
    for vectors in range(1, min(groups, 6) + 1):
        for m in range(1, min(rows or 8, 16) + 1):
            needed = m * vectors + vectors + (1 if vectors > 1 else 0)
            if needed > registers - 1:
                continue
            tiles = -(-groups // vectors) * (-(-rows // m) if rows else 64.0 / m)
            cost = tiles * tile_cycles(m, vectors, lanes, max(depth, 1))
            ranked.append((cost, -m, RegisterTile(m, vectors, lanes)))
    ranked.sort(key=lambda item: item[:2])
    return [tile for _, _, tile in ranked]


def window_tiles(
    rows: int | None, groups: int, window: int, width: int, lanes: int, registers: int = VECTOR_REGISTERS
) -> list[RegisterTile]:
    """Return register tiles for a window of ``window`` elements, ``width`` to a row, best guess first.

    One row of the window's weights stays in registers beside the sums, and
    neighbouring pixels share the inputs where their windows overlap.
    """
    ranked = []
    for vectors in (1, 2):
        for m in range(1, min(rows or 8, 14) + 1):
            if vectors > groups or m * vectors + vectors * width + 2 > registers:
                continue
            tiles = -(-groups // vectors) * (-(-rows // m) if rows else 64.0 / m)
            multiply = window * m * vectors / 2
            load = window / width * vectors * (m + 2 * width) / 2
            cycles = max(multiply, load, window * FMA_LATENCY_CYCLES) + 6.0 * m * vectors
            ranked.append((tiles * cycles, vectors, -m, RegisterTile(m, vectors, lanes)))
    ranked.sort(key=lambda item: item[:3])
    return [tile for *_, tile in ranked] or [RegisterTile(1, 1, lanes)]
