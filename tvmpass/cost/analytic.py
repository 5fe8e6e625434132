"""Latency from first principles: what the features cost on nominal hardware.

The price where the learned model abstains, and the baseline that it corrects.
"""

from __future__ import annotations

import numpy as np

from .device import Device
from .features import FEATURE_NAMES, INDEX, amounts
from .operations import INTRINSIC_CLASSES

_FMA_LATENCY = 4.0
_OPS_PER_CYCLE = 3.0
_LOADS_PER_CYCLE = 2.0
_DIV_CYCLES = 4.0
_ROOT_CYCLES = 6.0
_INTEGER_DIV_CYCLES = 8.0
_ITERATION_CYCLES = 0.5
_OVERLAP = 0.7
"""The share of the shorter of compute and memory time that hides behind the longer."""


def analytic_us(x: np.ndarray, device: Device) -> float:
    """Return the predicted microseconds of one call, launch cost included.

    ``x`` is a vector of `features.FEATURE_NAMES`.  A roofline: arithmetic,
    loads, stores and loop overhead on one side, bytes past each cache level on
    the other, mostly overlapped; divided by the threads the loops can feed.
    """
    return float(analytic_us_many(np.asarray(x)[None, :], device)[0])


def analytic_us_many(rows: np.ndarray, device: Device) -> np.ndarray:
    """Return `analytic_us` of every row of a matrix of feature vectors."""
    values = amounts(rows)
    a = {name: values[:, INDEX[name]] for name in FEATURE_NAMES}
    lanes = np.clip(a["lanes"], 1.0, device.vector_bytes / 4)
    cycles = _arithmetic(a, lanes, device) + _moves(a, lanes)
    cycles += _ITERATION_CYCLES * (a["iterations"] + a["guard"] + a["guard.v"])
    compute = cycles / (device.ghz * 1e3)
    memory = (
        a["from_l2_bytes"] / device.l2_gbps
        + a["from_l3_bytes"] / device.l3_gbps
        + a["from_memory_bytes"] / device.dram_gbps
    ) / 1e3
    time = np.maximum(compute, memory) + (1.0 - _OVERLAP) * np.minimum(compute, memory)
    feeding = np.clip(a["parallel"], 1.0, device.threads)
    return time / feeding + device.launch_us


def _arithmetic(a: dict[str, np.ndarray], lanes: np.ndarray, device: Device) -> np.ndarray:
    simple = a["add.v"] + a["mul.v"] - a["fma.v"] + a["select.v"] + a["cast.v"] + a["branch.v"]
    cycles = np.maximum(simple / lanes / _OPS_PER_CYCLE, _FMA_LATENCY * a["chain"])
    simple = a["add"] + a["mul"] - a["fma"] + a["select"] + a["cast"] + a["branch"]
    cycles = cycles + simple / _OPS_PER_CYCLE
    cycles += _DIV_CYCLES * (a["div"] + 2.0 * a["div.v"] / lanes)
    cycles += _ROOT_CYCLES * (a["root"] + 2.0 * a["root.v"] / lanes)
    cycles += _INTEGER_DIV_CYCLES * (a["idiv"] + a["idiv.v"])
    # What scheduling does not spell out as arithmetic is called once per element, vectorised or not.
    calls = a["call"] + a["call.v"]
    for name in INTRINSIC_CLASSES:
        if name != "root":
            calls = calls + a[name] + a[name + ".v"]
    return cycles + device.libm_ns * device.ghz * calls


def _moves(a: dict[str, np.ndarray], lanes: np.ndarray) -> np.ndarray:
    loads = (a["load.unit.v"] / lanes + a["load.same"] + a["load.same.v"] / lanes) / _LOADS_PER_CYCLE
    loads += (a["load.unit"] + a["load.strided"]) / _LOADS_PER_CYCLE + a["load.gather"]
    loads += a["load.strided.v"] + 1.5 * a["load.gather.v"]
    stores = a["store.unit.v"] / lanes + a["store.same"] + a["store.same.v"] + a["store.unit"]
    stores += a["store.strided"] + a["store.gather"] + 1.5 * (a["store.strided.v"] + a["store.gather.v"])
    return loads + stores
