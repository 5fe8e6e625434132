"""What the walk over a CUDA kernel finds: its device launches and what each does."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tvmpass.core.cuda_arch import MAX_REGISTERS_PER_THREAD, WARP, CudaArch, Occupancy, occupancy

from .operations import Work

REGISTERS_PER_SM = 65536
_BASE_REGISTERS = 11.0
_SHARED_REGISTERS = 4.0
_LIVE_TEMPORARIES = 0.7
_LIVE_LOCALS = 0.25
_MOST_OPERANDS = 16.0
"""Of a register estimate that was fitted to what ptxas gave some forty kernels (mean error 3)."""


@dataclass(frozen=True)
class GlobalAccess:
    """One load or store of global memory, in totals over the launch.

    ``requests`` are instructions of a warp, ``sectors`` the 32-byte pieces that
    they touch, ``useful`` the bytes that threads asked for, ``width`` the bytes of
    one thread's access.  ``block_bytes`` and ``unique_bytes`` are what one block
    and all of them touch at least once.
    """

    array: int
    stored: bool
    scattered: bool
    width: float
    requests: float
    sectors: float
    useful: float
    block_bytes: float
    unique_bytes: float


@dataclass
class Launch:
    """One device launch; counts are of threads, over the whole launch.

    ``repeats`` is how often it is launched per call of the kernel.  Shared
    bytes are per block, local values (``register_bytes``) and tensor-core
    fragments per thread; ``barriers`` is per block.
    """

    grid: dict[str, float]
    block: dict[str, float]
    repeats: float = 1.0
    work: Work = field(default_factory=Work)
    accesses: list[GlobalAccess] = field(default_factory=list)
    shared_requests: float = 0.0
    shared_passes: float = 0.0
    shared_fewest: float = 0.0
    shared_bytes: float = 0.0
    register_bytes: float = 0.0
    fragment_bytes: float = 0.0
    temporaries: float = 0.0
    barriers: float = 0.0
    shuffles: float = 0.0
    mma: float = 0.0
    stages: float = 1.0
    async_bytes: float = 0.0
    accumulators: float = 1.0
    index_steps: float = 0.0
    index_divisions: float = 0.0

    @property
    def blocks(self) -> float:
        return math.prod(self.grid.values())

    @property
    def threads(self) -> float:
        return math.prod(self.block.values())

    @property
    def warps(self) -> float:
        """Return the warps of a block; the last may be partly empty."""
        return math.ceil(self.threads / WARP)

    @property
    def all_threads(self) -> float:
        return self.blocks * self.threads * self.repeats

    @property
    def wanted_registers(self) -> float:
        """Return the registers that a thread would like to have: a rough guess.

        Accumulators and fragments stay; of other local values few live at once.
        """
        kept = self.accumulators + min(self.accumulators, _MOST_OPERANDS)
        if self.fragment_bytes:
            kept = self.fragment_bytes / 4.0
        passing = _LIVE_LOCALS * self.register_bytes / 4.0 + _LIVE_TEMPORARIES * self.temporaries
        return _BASE_REGISTERS + kept + passing + (_SHARED_REGISTERS if self.shared_bytes else 0.0)

    @property
    def most_registers(self) -> float:
        """Return the registers that a thread can have at this size of block."""
        return min(float(MAX_REGISTERS_PER_THREAD), REGISTERS_PER_SM // (self.warps * WARP))

    @property
    def registers(self) -> int:
        """Return the estimate of the registers of a thread, as the compiler would hand them out."""
        return int(min(self.wanted_registers, self.most_registers))

    @property
    def spilled_bytes(self) -> float:
        """Return the bytes of a thread that find no register."""
        return 4.0 * max(0.0, self.wanted_registers - self.most_registers)

    def occupancy(self, arch: CudaArch) -> Occupancy:
        """Return how many blocks fit on an SM; a kernel that fits nowhere counts as one."""
        found = occupancy(arch, int(self.threads), self.registers, int(self.shared_bytes))
        return found if found.blocks else Occupancy(1, self.warps / arch.warps_per_sm, found.limit)


@dataclass
class CudaWork:
    """All launches of a PrimFunc, and its arrays."""

    launches: list[Launch]
    arrays: dict
