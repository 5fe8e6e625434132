"""What each CUDA architecture allows a kernel: the limits a schedule and a build keep.

From the compute-capability table of NVIDIA's CUDA C++ programming guide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

KIB = 1024
WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
MAX_BLOCK_DIM = (1024, 1024, 64)
MAX_GRID_DIM = (2**31 - 1, 65535, 65535)
STATIC_SHARED_BYTES = 48 * KIB
"""More than this per block has to be asked for at launch, as dynamic shared memory."""

_REGISTER_UNIT = 256
_SHARED_UNIT = 128
_FORM = re.compile(r"sm_(\d{2,3})([af]?)\Z")


@dataclass(frozen=True)
class CudaArch:
    """Limits of one architecture, per streaming multiprocessor (SM) and per block.

    ``shared_per_block`` is the opt-in maximum in bytes; ``shared_reserved`` is
    what the system takes of an SM's shared memory for each resident block.
    """

    name: str
    registers_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    shared_reserved: int = KIB

    @property
    def capability(self) -> int:
        """Return the compute capability as a number: 80 for ``sm_80`` and ``sm_80a``."""
        return capability(self.name)

    @property
    def async_copy(self) -> bool:
        """Are there copies from global to shared memory that do not wait (cp.async)?"""
        return self.capability >= 80


def _arch(name: str, warps: int, blocks: int, shared: int, reserved: int = 1) -> CudaArch:
    per_block = (shared - reserved) * KIB
    return CudaArch(name, 65536, warps, blocks, shared * KIB, per_block, reserved * KIB)


ARCHES: dict[str, CudaArch] = {
    arch.name: arch
    for arch in (
        _arch("sm_75", 32, 16, 64, 0),
        _arch("sm_80", 64, 32, 164),
        _arch("sm_86", 48, 16, 100),
        _arch("sm_87", 48, 16, 164),
        _arch("sm_88", 48, 24, 100),
        _arch("sm_89", 48, 24, 100),
        _arch("sm_90", 64, 32, 228),
        _arch("sm_90a", 64, 32, 228),
        _arch("sm_100", 64, 32, 228),
        _arch("sm_100a", 64, 32, 228),
        _arch("sm_103", 64, 32, 228),
        _arch("sm_103a", 64, 32, 228),
        _arch("sm_110", 48, 24, 228),
        _arch("sm_120", 48, 24, 100),
        _arch("sm_120a", 48, 24, 100),
        _arch("sm_121", 48, 24, 100),
    )
}


def capability(name: str) -> int:
    """Return the compute capability in an architecture's name; `ValueError` for another form."""
    found = _FORM.match(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a CUDA architecture such as sm_90")
    return int(found.group(1))


def target_arches(target: Any) -> tuple[str, ...]:
    """Return the architectures a CUDA target is compiled for, lowest first.

    A target made by tvmpass keeps them among its keys (a TVM target has one
    ``arch`` only, which is the one that schedules and code generation see).
    """
    named = [str(key) for key in target.keys if _FORM.match(str(key))]
    return tuple(named) or (str(target.attrs["arch"]),)


def smallest(names: Sequence[str]) -> CudaArch:
    """Return limits that every one of ``names`` keeps."""
    arches = [ARCHES[name] for name in names]
    return CudaArch(
        name=min(names, key=capability),
        registers_per_sm=min(a.registers_per_sm for a in arches),
        warps_per_sm=min(a.warps_per_sm for a in arches),
        blocks_per_sm=min(a.blocks_per_sm for a in arches),
        shared_per_sm=min(a.shared_per_sm for a in arches),
        shared_per_block=min(a.shared_per_block for a in arches),
        shared_reserved=max(a.shared_reserved for a in arches),
    )


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks per SM, the share of its warps they fill, and what limits them.

    ``limit`` is ``registers``, ``shared``, ``warps`` or ``blocks``.
    """

    blocks: int
    occupancy: float
    limit: str


def occupancy(arch: CudaArch, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return how many blocks of a kernel fit on one SM at a time.

    ``registers`` per thread, ``shared_bytes`` per block, static and dynamic
    together.  Registers are handed out per warp, in units of 256, and warps in
    groups of four, one for each scheduler of the SM.  0 blocks: it cannot run.
    """
    warps = math.ceil(threads / WARP)
    per_warp = math.ceil(max(registers, 1) * WARP / _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = arch.registers_per_sm // per_warp // 4 * 4 // warps
    taken = math.ceil((shared_bytes + arch.shared_reserved) / _SHARED_UNIT) * _SHARED_UNIT
    by_shared = arch.shared_per_sm // taken if taken else arch.blocks_per_sm
    if shared_bytes > arch.shared_per_block:
        by_shared = 0
    limits = {
        "registers": by_registers,
        "shared": by_shared,
        "warps": arch.warps_per_sm // warps,
        "blocks": arch.blocks_per_sm,
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps / arch.warps_per_sm, limit)
