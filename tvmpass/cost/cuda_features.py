"""The feature vector of a scheduled CUDA kernel, read off its TIR.

No compiler runs: registers are guessed, everything else is counted.  Amounts
enter as log(1 + x) and add up over the device launches of a kernel; sizes of a
launch are the mean over launches, weighted by their work; ratios are as they
are.  The vector depends on the function and the target only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tvm
from tvm import tirx

from tvmpass.core.cuda_arch import WARP, CudaArch

from .cuda_device import CudaDevice
from .cuda_lanes import SECTOR_BYTES
from .cuda_launch import CudaWork, Launch
from .cuda_work import measure_cuda
from .operations import INTRINSIC_CLASSES

CUDA_FEATURE_VERSION = 1
"""Raised with every change of names, order or meaning; records of others are not used."""

_OPERATIONS = (
    *("fma", "add", "mul", "double", "integer", "idiv", "div", "select", "cast", "branch", "call", "guard"),
    *INTRINSIC_CLASSES,
    "iterations",
)
_AMOUNTS = (
    *("launches", "bytes_in", "bytes_out", "largest_bytes", "intermediate_bytes", "outputs"),
    *("load.requests", "store.requests", "load.bytes", "store.bytes", "wasted_bytes", "scattered"),
    *("l2_bytes", "dram_bytes", "spilled_bytes"),
    *("shared.requests", "shared.passes", "shared.conflicts", "async_bytes"),
    *("mma", "shuffles", "barriers", "index", "thread_steps", "instructions"),
    *_OPERATIONS,
)
_SHAPE = (
    *(
        "blocks",
        "threads",
        "registers",
        "shared_bytes",
        "resident",
        "waves",
        "accumulators",
        "stages",
        "width",
    ),
    *("written", "code", "statements", "depth", "parameters", "intermediates"),
)
_RATIOS = (
    *("occupancy", "balance", "coalescing", "lanes"),
    *("intrinsics_per_output", "requests_per_output", "work_per_output"),
)

CUDA_FEATURE_NAMES: tuple[str, ...] = (*_AMOUNTS, *_SHAPE, *_RATIOS)
"""Names of the vector's entries, in order."""

CUDA_LOGGED = len(_AMOUNTS) + len(_SHAPE)
"""Entries that are logarithms of amounts; the rest are ratios."""

CUDA_INDEX = {name: position for position, name in enumerate(CUDA_FEATURE_NAMES)}


def cuda_features(
    func: tirx.PrimFunc, target: tvm.target.Target, example_extents: Mapping[str, int] | None = None
) -> np.ndarray:
    """Return the float32 feature vector of ``func`` as scheduled, without NaN.

    Symbolic dimensions count as ``example_extents[name]``, else as
    `extents.EXAMPLE_EXTENT`.
    """
    return cuda_vector(measure_cuda(func, example_extents), CudaDevice.of(target))


def cuda_vector(work: CudaWork, device: CudaDevice) -> np.ndarray:
    """Lay the launches of a kernel out as the feature vector, for a device's caches and SMs."""
    launches = [_describe(launch, device) for launch in work.launches] or [_describe(Launch({}, {}), device)]
    total = {name: sum(found.get(name, 0.0) for found in launches) for name in _AMOUNTS}
    total |= _arrays(work)
    total["dram_bytes"] = _dram_bytes(work, total["l2_bytes"], device)
    weights = np.array([found["instructions"] + found["load.bytes"] + 1.0 for found in launches])
    weights /= weights.sum()
    shape = {
        name: float(sum(w * math.log1p(found.get(name, 0.0)) for w, found in zip(weights, launches)))
        for name in _SHAPE
    }
    for name in ("written", "depth"):
        shape[name] = math.log1p(max(found[name] for found in launches))
    for name in ("code", "statements"):
        shape[name] = math.log1p(sum(found[name] for found in launches))
    parameters = [a for a in work.arrays.values() if a.parameter]
    shape["parameters"] = math.log1p(len(parameters))
    shape["intermediates"] = math.log1p(sum(1 for a in work.arrays.values() if not (a.parameter or a.local)))
    ratios = {
        name: float(sum(w * found[name] for w, found in zip(weights, launches))) for name in _RATIOS[:4]
    }
    outputs = max(1.0, total["outputs"])
    ratios["intrinsics_per_output"] = math.log1p(sum(total[n] for n in INTRINSIC_CLASSES) / outputs)
    ratios["requests_per_output"] = math.log1p(WARP * total["load.requests"] / outputs)
    ratios["work_per_output"] = math.log1p((total["instructions"] + total["mma"]) / outputs)
    amounts = [math.log1p(max(0.0, total[name])) for name in _AMOUNTS]
    made = [*amounts, *(shape[name] for name in _SHAPE), *(ratios[name] for name in _RATIOS)]
    return np.array(made, dtype=np.float32)


def cuda_amounts(x: np.ndarray) -> np.ndarray:
    """Undo the logarithm of the counts and sizes; ratios are left as they are."""
    values = np.array(x, dtype=np.float64)
    values[..., :CUDA_LOGGED] = np.expm1(values[..., :CUDA_LOGGED])
    return values


def _describe(launch: Launch, device: CudaDevice) -> dict[str, float]:
    """Return the features of one device launch."""
    found: dict[str, float] = {name: launch.work.counts.get(name, 0.0) for name in _OPERATIONS}
    found["idiv"] += launch.index_divisions
    loads = [a for a in launch.accesses if not a.stored]
    stores = [a for a in launch.accesses if a.stored]
    useful = sum(a.useful for a in launch.accesses)
    moved = SECTOR_BYTES * sum(a.sectors for a in launch.accesses)
    requests = sum(a.requests for a in launch.accesses)
    arch = device.arch
    fits = launch.occupancy(arch)
    found |= {
        "launches": launch.repeats,
        "load.requests": sum(a.requests for a in loads),
        "store.requests": sum(a.requests for a in stores),
        "load.bytes": SECTOR_BYTES * sum(a.sectors for a in loads),
        "store.bytes": SECTOR_BYTES * sum(a.sectors for a in stores),
        "wasted_bytes": max(0.0, moved - useful),
        "scattered": sum(a.requests for a in launch.accesses if a.scattered),
        "l2_bytes": _l2_bytes(launch, fits.blocks, device),
        "spilled_bytes": launch.spilled_bytes * launch.all_threads,
        "shared.requests": launch.shared_requests,
        "shared.passes": launch.shared_passes,
        "shared.conflicts": launch.shared_passes - launch.shared_fewest,
        "async_bytes": launch.async_bytes,
        "mma": launch.mma,
        "shuffles": launch.shuffles,
        "barriers": launch.barriers * launch.repeats,
        "index": launch.index_steps,
        "written": launch.work.written,
        "code": launch.work.code,
        "statements": float(launch.work.statements),
        "depth": float(launch.work.depth),
    }
    arithmetic = sum(launch.work.counts.get(name, 0.0) for name in _OPERATIONS)
    found["instructions"] = (
        arithmetic + launch.shuffles + WARP * (requests + launch.shared_requests) + launch.index_steps
    )
    found["thread_steps"] = launch.repeats * found["instructions"] / launch.all_threads
    found |= _shape(launch, fits.blocks, arch, device)
    found |= {
        "occupancy": fits.occupancy,
        "coalescing": min(1.0, useful / moved) if moved else 1.0,
        "lanes": launch.threads / (launch.warps * WARP),
        "width": useful / (WARP * requests) if requests else 4.0,
    }
    return found


def _shape(launch: Launch, resident: int, arch: CudaArch, device: CudaDevice) -> dict[str, float]:
    per_sm = launch.blocks / device.sms
    return {
        "blocks": launch.blocks,
        "threads": launch.threads,
        "registers": float(launch.registers),
        "shared_bytes": launch.shared_bytes,
        "resident": float(resident),
        "waves": per_sm / resident,
        "accumulators": launch.accumulators,
        "stages": launch.stages,
        "balance": per_sm / math.ceil(per_sm),
    }


def _l2_bytes(launch: Launch, resident: int, device: CudaDevice) -> float:
    """Return the bytes that pass between the SMs and L2.

    What a block reads again it finds in its SM's cache, where that holds the
    data of all blocks on it.  Stores always go on to L2.
    """
    stored = SECTOR_BYTES * sum(a.sectors for a in launch.accesses if a.stored)
    by_array: dict[int, list] = {}
    for access in launch.accesses:
        if not access.stored:
            by_array.setdefault(access.array, []).append(access)
    once = {array: max(a.block_bytes for a in same) for array, same in by_array.items()}
    cache = device.l1_bytes - resident * launch.shared_bytes
    fits = resident * sum(once.values()) <= cache
    loaded = 0.0
    for array, same in by_array.items():
        asked = SECTOR_BYTES * sum(a.sectors for a in same)
        loaded += min(asked, once[array] * launch.blocks * launch.repeats) if fits else asked
    return stored + loaded


def _dram_bytes(work: CudaWork, l2_bytes: float, device: CudaDevice) -> float:
    """Return the bytes that L2 does not hold.

    A kernel that fits into half of L2 is taken to find its data there: kernels of
    a net run back to back.  Of a larger one, each wave of blocks reads at most
    everything once more, and hits as often as L2 is large against it.
    """
    unique: dict[int, float] = {}
    for launch in work.launches:
        for access in launch.accesses:
            unique[access.array] = max(unique.get(access.array, 0.0), access.unique_bytes)
    total = sum(unique.values())
    first = max(0.0, total - device.l2_bytes / 2.0)
    waves = max(
        (w.blocks / (device.sms * w.occupancy(device.arch).blocks) for w in work.launches), default=1.0
    )
    again = min(max(0.0, l2_bytes - total), total * max(0.0, waves - 1.0))
    return first + again * max(0.0, 1.0 - device.l2_bytes / max(total, 1.0))


def _arrays(work: CudaWork) -> dict[str, float]:
    parameters = [a for a in work.arrays.values() if a.parameter]
    outputs = [a for a in parameters if a.stored]
    between = [a.bytes for a in work.arrays.values() if not a.parameter and not a.local]
    return {
        "bytes_in": sum(a.bytes for a in parameters if not a.stored),
        "bytes_out": sum(a.bytes for a in outputs),
        "largest_bytes": max((a.bytes for a in parameters), default=0.0),
        "intermediate_bytes": sum(between),
        "outputs": sum(a.bytes / a.item_bytes for a in outputs),
    }
