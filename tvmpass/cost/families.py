"""Families of kernels: what the model must have seen before it speaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tvmpass.core.kernels import KINDS

FAMILIES = KINDS
"""The kernel kinds, told apart by access pattern."""

ENOUGH = 20
"""Records of a family below which the model abstains from it."""


def known_families(kinds: Iterable[str]) -> dict[str, int]:
    """Count the records of each family that has enough of them to learn from."""
    counts = Counter(kinds)
    return {kind: counts[kind] for kind in sorted(counts) if counts[kind] >= ENOUGH}
