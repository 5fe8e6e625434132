"""Bytes that a loop nest moves between the levels of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .affine import IRREGULAR, Affine

LINE_BYTES = 64


@dataclass(frozen=True)
class Access:
    """One load or store of a statement: per dimension the steps and the extent."""

    dims: tuple[tuple[Affine, float], ...]
    item_bytes: float


class Footprint:
    """Bytes that one access touches, grown loop by loop from the innermost out."""

    def __init__(self, access: Access, line_bytes: int = LINE_BYTES):
        self.access, self.line_bytes = access, line_bytes
        self.spans = [1.0] * len(access.dims)
        self.iterations = 1.0

    def grow(self, depth: int, extent: float) -> None:
        self.iterations *= extent
        for index, (steps, size) in enumerate(self.access.dims):
            step = steps.get(depth)
            if step is None:
                continue
            span = size if step == IRREGULAR else self.spans[index] + abs(step) * (extent - 1.0)
            self.spans[index] = min(size, span)

    def bytes(self) -> float:
        if not self.spans:
            return self.access.item_bytes
        item = self.access.item_bytes
        last = self.spans[-1] * item
        if self.access.dims[-1][1] * item >= self.line_bytes:
            last = max(last, self.line_bytes)
        outer = 1.0
        for span in self.spans[:-1]:
            outer *= span
        return min(outer * last, self.iterations * self.line_bytes)


def traffic(accesses: Sequence[Access], extents: Sequence[float], caches: Sequence[float]) -> list[float]:
    """Return the bytes fetched past each cache, smallest cache first.

    ``extents`` are the loops, outermost first.  For each cache the nest is cut
    where the footprint of the inner loops still fits; every iteration of the
    loops outside the cut fetches it anew.  A nest that fits whole is taken to
    find its data there: kernels of a net run back to back.
    """
    footprints = [Footprint(access) for access in accesses]
    sizes = [sum(f.bytes() for f in footprints)]
    for depth in range(len(extents) - 1, -1, -1):
        for footprint in footprints:
            footprint.grow(depth, extents[depth])
        sizes.append(sum(f.bytes() for f in footprints))
    moved = []
    for cache in caches:
        fetched = 0.0
        if sizes[-1] > cache:
            cut = max((i for i, size in enumerate(sizes) if size <= cache), default=0)
            outside = 1.0
            for extent in extents[: len(extents) - cut]:
                outside *= extent
            fetched = sizes[cut] * outside
        moved.append(fetched)
    return moved
