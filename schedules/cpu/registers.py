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


def tile_cycles(m: int, vectors: int, lanes: int, depth: int, extra: float = 3.0) -> float:
    """Estimate the cycles of one tile over ``depth`` steps of the reduction.

    Two multiply-adds and two loads issue per cycle; fewer than eight
    independent sums leave the multipliers waiting for their own results; a
    panel of weights that overflows the first-level cache comes from the second
    at half a vector per cycle.  ``extra`` is the work per vector that is stored.
    """
    multiply = m * vectors / 2
    panel = depth * vectors * lanes * 4
    weight = 0.5 if panel <= L1_BYTES * 0.6 else 2.0
    load = m / 2 + vectors * weight
    return depth * max(multiply, load, FMA_LATENCY_CYCLES) + extra * m * vectors


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
