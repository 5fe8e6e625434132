"""Turn records into matrices: kernels for the latency model, pairs for the pairwise one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .dataset import Alternative, Dataset, KernelRecord
from .hardware import AnyDevice, hardware_for
from .learned import pair_vector


@dataclass(frozen=True)
class Pair:
    """A fused kernel against the kernels it replaces, both measured."""

    group: int
    fused: KernelRecord
    parts: tuple[KernelRecord, ...]

    def label(self, launch_us: float) -> float:
        """Return log(fused / sum of parts), launch cost on both sides."""
        parts = sum(p.median_us + launch_us for p in self.parts)
        return float(np.log((self.fused.median_us + launch_us) / parts))


@dataclass
class Samples:
    """Records as matrices; ``groups`` holds one number per graph."""

    rows: np.ndarray
    targets: np.ndarray
    groups: np.ndarray
    kinds: list[str]


def latency_samples(data: Dataset, groups: dict[str, int], device: AnyDevice) -> Samples:
    """Return log(measured / analytic) of every kernel record, launch included."""
    rows = np.stack([r.features for r in data.kernels])
    measured = np.array([r.median_us for r in data.kernels]) + device.launch_us
    targets = np.log(measured / hardware_for(device).analytic_us_many(rows, device))
    return Samples(
        rows, targets, np.array([groups[r.kernel_key] for r in data.kernels]), [r.kind for r in data.kernels]
    )


def pair_samples(pairs: Sequence[Pair], device: AnyDevice) -> Samples:
    """Return the pairwise inputs and labels."""
    rows = [pair_vector(p.fused.features, [q.features for q in p.parts], device) for p in pairs]
    return Samples(
        np.stack(rows) if rows else np.zeros((0, 1), np.float32),
        np.array([p.label(device.launch_us) for p in pairs]),
        np.array([p.group for p in pairs], dtype=np.int64),
        [p.fused.kind for p in pairs],
    )


def fused_pairs(data: Dataset, groups: dict[str, int]) -> list[Pair]:
    """Find each fused kernel and the kernels of ``off`` that it replaces.

    A kernel that both ways share stands on both sides and cancels out.
    """
    records = data.first()
    off = {a.group_key: a for a in data.alternatives if a.name == "off"}
    pairs: list[Pair] = []
    seen: set[tuple] = set()
    for alternative in data.alternatives:
        found = replaced(alternative, off.get(alternative.group_key))
        if found is None or found in seen:
            continue
        seen.add(found)
        fused, parts = found
        if fused in records and all(p in records for p in parts):
            pairs.append(Pair(groups[fused], records[fused], tuple(records[p] for p in parts)))
    return pairs


def replaced(alternative: Alternative, off: Alternative | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the one fused kernel of ``alternative`` and the parts it stands for."""
    if off is None or alternative.name == "off":
        return None
    parts = list(off.kernel_keys)
    fused = []
    for key in alternative.kernel_keys:
        if key in parts:
            parts.remove(key)
        else:
            fused.append(key)
    return (fused[0], tuple(parts)) if len(fused) == 1 and parts else None


def graph_groups(data: Dataset) -> dict[str, int]:
    """Number the graphs: kernels that meet in any alternative belong together."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for record in data.kernels:
        root(record.kernel_key)
    for alternative in data.alternatives:
        for key in (*alternative.kernel_keys, "graph " + alternative.group_key):
            parent[root(key)] = root(alternative.kernel_keys[0])
    numbers: dict[str, int] = {}
    return {key: numbers.setdefault(root(key), len(numbers)) for key in parent}
