"""A whole PrimFunc run in the emulator, in several thread orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmpass.core.errors import UsageError

from .errors import EmulationError
from .host import Host, bind
from .launch import GRANULE, RANDOM, Call, Counts, DeviceArray, Order, launch
from .native import Library, load
from .translate import kernel_names

if TYPE_CHECKING:
    from tvmpass.compile.cuda_source import CudaSource

SECONDS = 60.0
"""A launch that takes more of the CPU ends with an error."""


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
class _Session:
    """One run over all launches, in one order."""

    order: Order
    sampled: int | None
    seed: int
    seconds: float
    bytewise: bool = False
    memory: list[DeviceArray] = field(default_factory=list)
    blocks: list[int] = field(default_factory=lambda: [0, 0])
    counts: list[Counts] = field(default_factory=list)

    def start(self, library: Library, call: Call, extra: Sequence[DeviceArray], last: bool) -> None:
        """Launch a kernel; its blocks are sampled only if it is the ``last``."""
        total = math.prod(call.grid)
        blocks: Sequence[int] = range(total)
        if self.sampled is not None and last:
            blocks = sampled(call.grid, self.sampled, self.seed)
        self.blocks[0] += len(blocks)
        self.blocks[1] += total
        if self.bytewise:
            library = replace(library, granule=1)
        self.counts.append(
            launch(
                library,
                call,
                blocks=blocks,
                order=self.order,
                memory=[*self.memory, *extra],
                seconds=self.seconds,
            )
        )


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

    def once(session: _Session) -> None:
        library = load(source.source)
        known, session.memory = bind(source, arrays)
        calls: list[Call] = []
        host = Host(source, known, calls.append)
        host.run(source.entry.body)
        for call in calls:
            session.start(library, call, host.workspaces, last=call is calls[-1])

    return _in_orders(once, orders, sample_blocks, seed, seconds)


def emulate_kernel(
    text: str,
    arguments: Sequence[Any],
    *,
    grid: Sequence[int] = (1, 1, 1),
    block: Sequence[int] = (1, 1, 1),
    dynamic_bytes: int = 0,
    kernel: str | None = None,
    orders: int | Sequence[Order] = 3,
    sample_blocks: int | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
) -> EmulationResult:
    """Run one kernel of CUDA text, without host code; the first one unless named.

    ``arguments`` are numpy arrays, and numpy or Python numbers (int is passed as
    int32, float as float32).  The other arguments are those of `emulate`.
    """

    def once(session: _Session) -> None:
        library = load(text)
        given: list[Any] = []
        for number, argument in enumerate(arguments):
            if not isinstance(argument, np.ndarray):
                given.append(argument)
                continue
            given.append(DeviceArray(f"argument {number}", argument.shape, argument.dtype))
            given[-1].values[...] = argument
            session.memory.append(given[-1])
        shape = [tuple([*extents, 1, 1][:3]) for extents in (grid, block)]
        call = Call(kernel or kernel_names(text)[0], tuple(given), shape[0], shape[1], dynamic_bytes)
        session.start(library, call, (), last=True)

    return _in_orders(once, orders, sample_blocks, seed, seconds)


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


def _in_orders(
    once: Callable[[_Session], None],
    orders: int | Sequence[Order],
    sample_blocks: int | None,
    seed: int,
    seconds: float,
) -> EmulationResult:
    chosen = standard_orders(orders, seed) if isinstance(orders, int) else tuple(orders)
    if not chosen:
        raise UsageError("an emulation needs at least one thread order")
    sessions = []
    for order in chosen:
        session = _Session(order, sample_blocks, seed, seconds)
        try:
            once(session)
        except EmulationError as error:
            if error.fault != GRANULE:
                raise
            # The source names no small type, and uses one: shadow cells of a byte, then.
            session = _Session(order, sample_blocks, seed, seconds, bytewise=True)
            once(session)
        sessions.append(session)
    first = sessions[0]
    return EmulationResult(
        tuple(Run(s.order, tuple(a.values for a in s.memory)) for s in sessions),
        tuple(a.written.astype(bool).reshape(a.values.shape) for a in first.memory),
        (first.blocks[0], first.blocks[1]),
        sum(c.accesses for c in first.counts),
        sum(c.barriers for c in first.counts),
    )
