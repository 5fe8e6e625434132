"""A whole PrimFunc run in the emulator, in several thread orders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EmulationError
from .host import Call, Host, bind
from .launch import RANDOM, Counts, DeviceArray, Order, launch
from .native import load

if TYPE_CHECKING:
    from tvmpass.compile.cuda_source import CudaSource

SECONDS = 60.0
"""A run that takes longer ends with an error."""


@dataclass(frozen=True)
class Run:
    """What one thread order gave: the arrays after it, in parameter order."""

    order: Order
    arrays: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class EmulationResult:
    """The arrays of a PrimFunc after its kernels ran.

    ``arrays`` are those of the first order, ``runs`` has all; ``masks`` say of
    each array which elements were stored to (all that may be compared where
    blocks were sampled); ``blocks`` counts those that ran, and all.
    """

    runs: tuple[Run, ...]
    masks: tuple[np.ndarray, ...]
    blocks: tuple[int, int]
    accesses: int
    barriers: int

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.runs[0].arrays

    @property
    def stable(self) -> bool:
        """Did all orders give the same bits?"""
        return all(
            a.tobytes() == b.tobytes() for run in self.runs[1:] for a, b in zip(self.arrays, run.arrays)
        )

    def written(self, expected: Iterable[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pair what was stored with what was expected: mask, expected, found of each array."""
        return [(mask, np.asarray(e), a) for mask, e, a in zip(self.masks, expected, self.arrays)]


@dataclass
class _State:
    """What a run over the host code gathers."""

    order: Order
    sampled: int | None
    seed: int
    seconds: float
    blocks: list[int] = field(default_factory=lambda: [0, 0])
    counts: list[Counts] = field(default_factory=list)


def emulate(
    source: CudaSource,
    arrays: Sequence[Any],
    *,
    orders: int | Sequence[Order] = 3,
    sample_blocks: int | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
) -> EmulationResult:
    """Run the emitted CUDA source of a PrimFunc on the CPU.

    ``arrays`` are numpy arrays and numbers in the order of the PrimFunc's
    parameters, inputs and outputs; they are copied, not changed.  bfloat16 is
    given as an array of any 16-bit type.  ``orders`` counts the thread orders
    (forward, reversed, then random ones) or lists them.  ``sample_blocks`` n
    runs, of the last kernel's blocks, the corners, the last and random ones up
    to n; kernels before it run whole, because the last one reads what they made.

    Raises `EmulationError` when the kernel breaks a rule (see the package's
    docstring), `Unmodelled` when it uses what is not modelled.
    """
    chosen = standard_orders(orders, seed) if isinstance(orders, int) else tuple(orders)
    runs, masks = [], None
    state = _State(chosen[0], sample_blocks, seed, seconds)
    for order in chosen:
        state = _State(order, sample_blocks, seed, seconds)
        memory = _run(source, arrays, state)
        runs.append(Run(order, tuple(a.values.copy() for a in memory)))
        if masks is None:
            masks = tuple(a.written.astype(bool).reshape(a.values.shape) for a in memory)
    return EmulationResult(
        tuple(runs),
        masks or (),
        (state.blocks[0], state.blocks[1]),
        sum(c.accesses for c in state.counts),
        sum(c.barriers for c in state.counts),
    )


def standard_orders(count: int, seed: int = 0) -> tuple[Order, ...]:
    """Return the first ``count`` thread orders: forward, reversed, then random ones."""
    return tuple(Order(min(i, RANDOM), seed + i) for i in range(count))


def sampled(grid: Sequence[int], count: int, seed: int) -> list[int]:
    """Choose blocks: the corners of the grid, its last block, then random ones."""
    total = math.prod(grid)
    if total <= count:
        return list(range(total))
    x, y, z = grid
    corners = sorted({i + x * (j + y * k) for k in {0, z - 1} for j in {0, y - 1} for i in {0, x - 1}})
    chosen = dict.fromkeys([0, total - 1, *corners][:count] if len(corners) > count else corners)
    generator = np.random.default_rng(seed)
    while len(chosen) < count:
        chosen[int(generator.integers(total))] = None
    return sorted(chosen)


def _run(source: CudaSource, values: Sequence[Any], state: _State) -> list[DeviceArray]:
    library = load(source.source)
    known, memory = bind(source, values)
    calls: list[Call] = []
    host = Host(source, known, calls.append)
    host.run(source.entry.body)
    for number, call in enumerate(calls):
        total = math.prod(call.grid)
        last = number == len(calls) - 1
        blocks = range(total)
        if state.sampled is not None and last:
            blocks = sampled(call.grid, state.sampled, state.seed)  # type: ignore[assignment]
        state.blocks[0] += len(blocks)
        state.blocks[1] += total
        arguments = [p.pointer for p in call.kernel.parameters]
        dtypes = [None if pointer else p.dtype for pointer, p in zip(arguments, call.kernel.parameters)]

        def once(granule: int | None = None, call=call, dtypes=dtypes, blocks=blocks) -> Counts:
            return launch(
                library if granule is None else replace(library, granule=granule),
                call.kernel.name,
                call.arguments,
                dtypes,
                call.grid,
                call.kernel.block,
                call.dynamic_bytes,
                blocks=blocks,
                order=state.order,
                memory=[*memory, *host.workspaces],
                seconds=state.seconds,
            )

        try:
            counts = once()
        except EmulationError as error:
            if error.fault != "granule":
                raise
            counts = once(1)  # the source names no small type, and uses one
        state.counts.append(counts)
    return memory
