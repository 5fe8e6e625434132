"""A CUDA device that exists on paper: kernel times by formula, for tests without a GPU.

Its formulae are not those of `cuda_analytic`.  They differ where a real device may
well differ from nominal figures: functions such as exp and tanh are far dearer,
launches far cheaper, memory is slower, and a block that takes much of the
registers or of the shared memory falls off a cliff.  Records of it train a
model that must then decide otherwise than the analytic one; they say
``device: "sim"`` and are never mixed with measured ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from tvmpass.core.cuda_arch import WARP

from .cuda_device import CudaDevice
from .cuda_lanes import SECTOR_BYTES
from .cuda_launch import Launch
from .cuda_work import measure_cuda
from .operations import INTRINSIC_CLASSES

_SLOTS = {
    **dict.fromkeys(INTRINSIC_CLASSES, 600.0),
    "root": 200.0,
    "pow": 1200.0,
    "div": 60.0,
    "idiv": 12.0,
    "call": 600.0,
    "double": 32.0,
}
"""Issue slots of an operation; one that is not named takes one."""

_SLOTS_PER_CLOCK = 96.0
_FEW_WARPS = 8.0
_SAMPLES = 3
_SPREAD = 0.01


@dataclass(frozen=True)
class SimulatedDevice:
    """The simulated device: nominal facts of a real one, and rates of its own.

    ``base`` gives SM count, clock and the limits of the architecture.  The cliff
    comes where more registers per thread no longer let an SM hold all its warps.
    """

    base: CudaDevice
    start_us: float = 0.4
    dram_gbps: float = 900.0
    l2_gbps: float = 1400.0
    register_cliff: int = 32
    shared_cliff: int = 24 << 10
    cliff: float = 4.0

    def time_us(self, func: tirx.PrimFunc, example_extents: Mapping[str, int] | None = None) -> float:
        """Return the time of one call of a scheduled function in µs, the same every time."""
        work = measure_cuda(func, example_extents)
        return sum(self._launch_us(launch) for launch in work.launches) or self.start_us

    def samples_us(self, func: tirx.PrimFunc) -> list[float]:
        """Return times as a measurement would give them: a little apart, but the same every time."""
        time = self.time_us(func)
        digest = hashlib.sha256(f"{time:.9g}".encode()).digest()
        return [time * (1.0 + _SPREAD * (byte / 127.5 - 1.0)) for byte in digest[:_SAMPLES]]

    def _launch_us(self, launch: Launch) -> float:
        sms = min(self.base.sms, launch.blocks)
        resident = min(launch.occupancy(self.base.arch).blocks, math.ceil(launch.blocks / self.base.sms))
        compute = self._slots(launch) / (sms * _SLOTS_PER_CLOCK * self.base.ghz * 1e3)
        compute /= min(1.0, resident * launch.warps / _FEW_WARPS)
        # In round numbers of waves: the last one takes as long as the others.
        waves = launch.blocks / (self.base.sms * resident)
        compute *= math.ceil(waves) / waves if waves > 1.0 else 1.0
        memory = self._memory_us(launch)
        steps = 0.05 * launch.barriers * launch.repeats * max(1.0, waves)
        body = self._cliff(launch) * (max(compute, memory) + 0.5 * min(compute, memory))
        return launch.repeats * self.start_us + body + steps

    def _slots(self, launch: Launch) -> float:
        slots = sum(_SLOTS.get(name, 1.0) * times for name, times in launch.work.counts.items())
        slots += launch.index_steps + _SLOTS["idiv"] * launch.index_divisions + 4.0 * launch.shuffles
        slots += launch.mma / 16.0 + WARP * launch.shared_passes
        slots += 2.0 * WARP * sum(access.requests for access in launch.accesses)
        idle = launch.warps * WARP / launch.threads
        return slots * idle

    def _cliff(self, launch: Launch) -> float:
        over = launch.registers > self.register_cliff or launch.shared_bytes > self.shared_cliff
        return self.cliff if over else 1.0

    def _memory_us(self, launch: Launch) -> float:
        """Return the time of memory: every sector counts, half of it where L1 has just seen it."""
        moved = again = 0.0
        for access in launch.accesses:
            asked = SECTOR_BYTES * access.sectors
            once = min(asked, access.block_bytes * launch.blocks * launch.repeats)
            moved, again = moved + once, again + asked - once
        unique = sum({a.array: a.unique_bytes for a in launch.accesses}.values())
        beyond = max(0.0, unique - self.base.l2_bytes / 4.0)
        return ((moved + 0.25 * again) / self.l2_gbps + beyond / self.dram_gbps) / 1e3
