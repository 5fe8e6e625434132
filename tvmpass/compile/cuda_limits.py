"""Does a kernel fit the devices it is built for, and how well?

Launch dimensions and dynamic shared memory come from the lowered TIR, registers
and static shared memory from ptxas, the limits from `core.cuda_arch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvmpass.core.cuda_arch import (
    ARCHES,
    MAX_BLOCK_DIM,
    MAX_GRID_DIM,
    MAX_THREADS_PER_BLOCK,
    STATIC_SHARED_BYTES,
    CudaArch,
    occupancy,
)
from tvmpass.core.errors import TvmpassError

from .cuda_source import DeviceKernel
from .cuda_toolchain import Resources


def check_launch(label: str, kernels: Sequence[DeviceKernel], arches: Sequence[str]) -> None:
    """Raise `TvmpassError` for the first limit that a launch of ``kernels`` breaks.

    ``label`` names the kernel in the message; nothing needs to be compiled yet.
    Extents that are known only at run time are not checked.
    """
    for kernel in kernels:
        for arch in (ARCHES[name] for name in arches):
            for needed, allowed, what in _demands(kernel, arch):
                if isinstance(needed, int) and needed > allowed:
                    raise TvmpassError(
                        f"kernel {label} needs {needed} {what}; {arch.name} allows {allowed}: "
                        "use a schedule with smaller tiles"
                    )


def check_resources(
    label: str, kernels: Sequence[DeviceKernel], compiled: Mapping[str, Mapping[str, Resources]]
) -> None:
    """Raise `TvmpassError` where a compiled kernel could not be launched at all.

    ``compiled`` is what ptxas reported, ``{kernel: {architecture: Resources}}``.
    """
    for kernel in kernels:
        for name, found in compiled.get(kernel.name, {}).items():
            room = _occupancy(kernel, ARCHES[name], found)
            if room.blocks == 0:
                raise TvmpassError(
                    f"kernel {label} does not fit {name}: {kernel.threads} threads of "
                    f"{found.registers} registers and {_shared(kernel, found)} bytes of shared memory "
                    f"per block exceed its {room.limit}: use a schedule with smaller tiles"
                )


def report(
    kernels: Sequence[DeviceKernel], compiled: Mapping[str, Mapping[str, Resources]], arches: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the report's ``cuda`` field: per architecture the worst of all device kernels."""
    result: dict[str, dict[str, Any]] = {}
    for arch in arches:
        rows = [(k, compiled[k.name][arch]) for k in kernels if arch in compiled.get(k.name, {})]
        if not rows:
            continue
        result[arch] = {
            "registers": max(found.registers for _, found in rows),
            "static_shared_bytes": max(found.static_shared_bytes for _, found in rows),
            "dynamic_shared_bytes": max(kernel.dynamic_shared_bytes for kernel, _ in rows),
            "spill_bytes": max(found.spill_bytes for _, found in rows),
            "occupancy": round(min(_occupancy(k, ARCHES[arch], f).occupancy for k, f in rows), 4),
        }
    return result


def _demands(kernel: DeviceKernel, arch: CudaArch) -> Iterator[tuple[Any, int, str]]:
    yield kernel.threads, MAX_THREADS_PER_BLOCK, "threads per block"
    for axis, extent, most in zip("xyz", kernel.block, MAX_BLOCK_DIM):
        yield extent, most, f"threads along {axis}"
    for axis, extent, most in zip("xyz", kernel.grid, MAX_GRID_DIM):
        yield extent, most, f"blocks along {axis}"
    static, dynamic = kernel.static_shared_bytes, kernel.dynamic_shared_bytes
    yield static, STATIC_SHARED_BYTES, "bytes of static shared memory per block"
    yield static + dynamic, arch.shared_per_block, "bytes of shared memory per block"
    if 0 < dynamic < STATIC_SHARED_BYTES:  # TVM asks for more only where this part alone needs it
        what = "bytes of static and dynamic shared memory per block"
        yield static + dynamic, STATIC_SHARED_BYTES, what


def _shared(kernel: DeviceKernel, found: Resources) -> int:
    return found.static_shared_bytes + kernel.dynamic_shared_bytes


def _occupancy(kernel: DeviceKernel, arch: CudaArch, found: Resources):
    return occupancy(arch, kernel.threads, found.registers, _shared(kernel, found))
