"""The feature vector of a scheduled kernel.

Counts and sizes enter as log(1 + x); ratios as they are.  The vector depends
on the function, the target and the cache sizes only, never on time or names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import tvm
from tvm import tirx

from .device import Device
from .operations import INTRINSIC_CLASSES, Work
from .work import measure

FEATURE_VERSION = 1
"""Raised with every change of names, order or meaning; records of others are not used."""

_SIZES = (
    "bytes_in",
    "bytes_out",
    "largest_bytes",
    "intermediate_bytes",
    "largest_intermediate_bytes",
    "from_l2_bytes",
    "from_l3_bytes",
    "from_memory_bytes",
    "outputs",
)
_BOTH = ("add", "mul", "div", "idiv", "select", "cast", "branch", "call", "guard")
_STRIDES = ("unit", "same", "strided", "gather")
_COUNTED = (
    *(f"{what}{v}" for what in _BOTH for v in ("", ".v")),
    *(f"{what}{v}" for what in INTRINSIC_CLASSES for v in ("", ".v")),
    *(f"load.{stride}{v}" for stride in _STRIDES for v in ("", ".v")),
    *(f"store.{stride}{v}" for stride in _STRIDES for v in ("", ".v")),
    "fma",
    "fma.v",
    "chain",
    "iterations",
)
_SHAPE = (
    "parallel",
    "lanes",
    "tile",
    "unrolled",
    "reduction",
    "code",
    "written",
    "statements",
    "depth",
    "parameters",
    "intermediates",
)
_RATIOS = ("intrinsics_per_output", "loads_per_output", "work_per_output", "vector_share")

FEATURE_NAMES: tuple[str, ...] = (*_SIZES, *_COUNTED, *_SHAPE, *_RATIOS)
"""Names of the vector's entries, in order."""

LOGGED = len(FEATURE_NAMES) - len(_RATIOS)
"""Entries that are logarithms of amounts; the rest are ratios."""

INDEX = {name: position for position, name in enumerate(FEATURE_NAMES)}
_WORK_OF_ONE = {
    **{name: 1.0 for name in ("add", "mul", "select", "cast", "branch")},
    **{f"store.{stride}": 1.0 for stride in _STRIDES},
    "div": 4.0,
    "idiv": 8.0,
}
_INTRINSIC_WORK = 20.0


def features(
    func: tirx.PrimFunc, target: tvm.target.Target, example_extents: Mapping[str, int] | None = None
) -> np.ndarray:
    """Return the float32 feature vector of ``func`` as scheduled, without NaN.

    Symbolic dimensions count as ``example_extents[name]``, else as
    `extents.EXAMPLE_EXTENT`.
    """
    device = _device(target)
    caches = (device.l1_bytes, device.l2_bytes, device.l3_bytes)
    return vector(measure(func, caches, example_extents))


@functools.lru_cache(maxsize=64)
def _device(target: tvm.target.Target) -> Device:
    return Device.of(target)


def vector(work: Work) -> np.ndarray:
    """Lay the totals of a walk out as the feature vector."""
    arrays = work.arrays.values()
    inputs = [a.bytes for a in arrays if a.parameter and not a.stored]
    outputs = [a for a in arrays if a.parameter and a.stored]
    between = [a.bytes for a in arrays if not a.parameter and not a.local]
    elements = sum(a.bytes / a.item_bytes for a in outputs)
    counts = work.counts
    sizes = (
        sum(inputs),
        sum(a.bytes for a in outputs),
        max((a.bytes for a in arrays if a.parameter), default=0.0),
        sum(between),
        max(between, default=0.0),
        *work.moved,
        elements,
    )
    shape = (
        work.parallel,
        work.lanes,
        work.tile,
        work.unrolled,
        work.reduction,
        work.code,
        work.written,
        work.statements,
        work.depth,
        sum(1 for a in arrays if a.parameter),
        len(between),
    )
    counted = [counts.get(name, 0.0) for name in _COUNTED]
    logged = [math.log1p(max(0.0, x)) for x in (*sizes, *counted, *shape)]
    return np.array([*logged, *_ratios(counts, elements)], dtype=np.float32)


def _ratios(counts: Mapping[str, float], elements: float) -> tuple[float, ...]:
    """Return work per output element (logs) and the share of it that is vectorised."""
    elements = max(elements, 1.0)
    intrinsics = loads = scalar = vectorised = 0.0
    for what, times in counts.items():
        name = what.removesuffix(".v")
        if name in INTRINSIC_CLASSES:
            intrinsics += times
            weight = _INTRINSIC_WORK
        elif name.startswith("load."):
            loads += times
            weight = 1.0
        else:
            weight = _WORK_OF_ONE.get(name, 0.0)
        if name is what:
            scalar += weight * times
        else:
            vectorised += weight * times
    total = scalar + vectorised
    return (
        math.log1p(intrinsics / elements),
        math.log1p(loads / elements),
        math.log1p(total / elements),
        vectorised / total if total else 0.0,
    )


def amounts(x: np.ndarray) -> np.ndarray:
    """Undo the logarithm of the counts and sizes; ratios are left as they are."""
    values = np.array(x, dtype=np.float64)
    values[..., :LOGGED] = np.expm1(values[..., :LOGGED])
    return values
