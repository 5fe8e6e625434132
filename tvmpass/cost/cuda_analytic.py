"""Latency of a CUDA kernel from first principles: what its features cost on nominal hardware.

The price where there are no measured records of the device, and the baseline
that a learned model corrects.
"""

from __future__ import annotations

import numpy as np

from .cuda_device import CudaDevice
from .cuda_features import CUDA_FEATURE_NAMES, CUDA_INDEX, cuda_amounts

UNCALIBRATED = "analytic (uncalibrated for this device)"
"""The source of a price that no measurement of the device stands behind."""

_SCHEDULERS = 4.0
"""Instructions that an SM issues per clock."""

_HIDING_WARPS = 16.0
"""Resident warps, of one independent instruction each, that keep an SM's arithmetic busy."""

_OUTSTANDING = (2.0, 6.0)
"""Loads that a warp has under way before it waits: at least, and with many independent results."""

_SM_BYTES_PER_CLOCK = 64.0
_SECTORS_PER_CLOCK = 4.0
_BARRIER_CYCLES = 40.0
_BLOCK_CYCLES = 250.0
_OVERLAP = 0.7
"""The share of the shorter of compute and memory time that hides behind the longer."""

_CURVES = {
    "div": (8.0, 1.0),
    "exp": (7.0, 1.0),
    "tanh": (16.0, 2.0),
    "sigmoid": (16.0, 2.0),
    "erf": (24.0, 1.0),
    "log": (14.0, 1.0),
    "pow": (40.0, 2.0),
    "root": (8.0, 1.0),
    "trig": (24.0, 0.0),
    "call": (30.0, 1.0),
}
"""Instructions and hardware evaluations of a function without fast math."""

_INTEGER_DIVISION = 6.0
"""Instructions of a division by a constant, which nearly all of them are."""


def cuda_analytic_us(x: np.ndarray, device: CudaDevice) -> float:
    """Return the predicted microseconds of one call, launch cost included.

    ``x`` is a vector of `cuda_features.CUDA_FEATURE_NAMES`.  A roofline: the
    pipes of an SM on one side, bytes past L1 and L2 on the other, each slowed by
    what too few resident warps leave unhidden; plus barriers, blocks, launches.
    """
    return float(cuda_analytic_us_many(np.asarray(x)[None, :], device)[0])


def cuda_analytic_us_many(rows: np.ndarray, device: CudaDevice) -> np.ndarray:
    """Return `cuda_analytic_us` of every row of a matrix of feature vectors."""
    values = cuda_amounts(rows)
    a = {name: values[:, CUDA_INDEX[name]] for name in CUDA_FEATURE_NAMES}
    blocks = np.maximum(a["blocks"], 1.0)
    sms = blocks / np.ceil(blocks / device.sms)
    together = np.clip(blocks / device.sms, 1.0, np.maximum(a["resident"], 1.0))
    warps = together * np.maximum(1.0, np.ceil(a["threads"] / 32.0))
    clock = device.ghz * 1e3
    compute = _compute_cycles(a, device) / (sms * clock)
    independent = np.clip(a["accumulators"], 1.0, 4.0)
    compute /= np.minimum(1.0, warps * independent / _HIDING_WARPS)
    tensor = 2.0 * a["mma"] / (device.tensor_tflops * 1e6) * device.sms / sms
    tensor /= np.minimum(1.0, warps / (_HIDING_WARPS / 2.0))
    compute = np.maximum(compute, tensor) + 0.5 * np.minimum(compute, tensor)
    memory = _memory_us(a, sms, warps, device)
    time = np.maximum(compute, memory) + (1.0 - _OVERLAP) * np.minimum(compute, memory)
    waves = np.ceil(blocks / (device.sms * np.maximum(a["resident"], 1.0)))
    time += a["barriers"] * _BARRIER_CYCLES * waves / clock
    time += blocks * _BLOCK_CYCLES / (sms * together * clock)
    return time + np.maximum(a["launches"], 1.0) * device.start_us + device.launch_us


def _compute_cycles(a: dict[str, np.ndarray], device: CudaDevice) -> np.ndarray:
    """Return the clocks of one SM that does everything; the fullest of its pipes counts."""
    simple = a["fma"] + a["add"] + np.maximum(0.0, a["mul"] - a["fma"]) + a["select"] + a["cast"]
    special = np.zeros_like(simple)
    for name, (instructions, evaluations) in _CURVES.items():
        simple = simple + instructions * a[name]
        special = special + evaluations * a[name]
    integer = a["integer"] + a["index"] + a["guard"] + a["branch"] + a["iterations"]
    integer = integer + _INTEGER_DIVISION * a["idiv"]
    sectors = (a["load.bytes"] + a["store.bytes"] + 2.0 * a["spilled_bytes"]) / 32.0
    requests = a["load.requests"] + a["store.requests"] + a["spilled_bytes"] / 128.0
    moves = np.maximum(requests, sectors / _SECTORS_PER_CLOCK) + a["shared.passes"] + a["shuffles"] / 32.0
    lanes = np.maximum(a["lanes"], 1.0 / 32.0)
    issued = (simple + integer + a["double"] + special + a["shuffles"]) / 32.0 / lanes
    issued = issued + requests + a["shared.requests"]
    pipes = (
        issued / _SCHEDULERS,
        simple / lanes / device.fp32_lanes,
        integer / lanes / device.integer_lanes,
        special / lanes / device.special_lanes,
        a["double"] / lanes / device.double_lanes,
        moves,
    )
    return np.maximum.reduce(pipes)


def _memory_us(
    a: dict[str, np.ndarray], sms: np.ndarray, warps: np.ndarray, device: CudaDevice
) -> np.ndarray:
    """Return the time past L1: at the rate of the memory, or of what the warps keep under way."""
    loads = np.clip(1.0 + a["accumulators"], *_OUTSTANDING) + np.clip(a["stages"] - 1.0, 0.0, 4.0)
    under_way = warps * 32.0 * np.clip(a["width"], 1.0, 16.0) * loads
    wide = np.maximum(a["coalescing"], 1.0 / 8.0)
    l2_rate = np.minimum(device.l2_gbps, sms * _SM_BYTES_PER_CLOCK * device.ghz)
    l2_rate = np.minimum(l2_rate, sms * under_way / wide / device.l2_latency_ns)
    dram_rate = np.minimum(device.dram_gbps, sms * under_way / wide / device.dram_latency_ns)
    return np.maximum(a["l2_bytes"] / l2_rate, a["dram_bytes"] / dram_rate) / 1e3
