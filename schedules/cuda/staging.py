"""Move the panels of a tiled product into shared memory, copied by all threads of a block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from schedules.cpu.loops import Nest, find_nest
from tvmpass.core.cuda_arch import WARP
from tvmpass.core.nest import as_int

from .frame import bind_results
from .vector_width import VECTOR_BYTES, itemsize, vector_width

PANELS = ("_lhs", "_rhs")


@dataclass(frozen=True)
class Thread:
    """One thread axis of a block of threads."""

    tag: str
    extent: int


def thread_axes(nest: Nest) -> list[Thread]:
    """Return the thread axes around a block, slowest first; x is one warp where nothing is bound to it."""
    found: dict[str, int] = {}
    for loop in nest.loops:
        tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        if tag.startswith("threadIdx"):
            found[tag] = as_int(loop.extent)
    found.setdefault("threadIdx.x", WARP)
    return [Thread(tag, found[tag]) for tag in sorted(found, reverse=True)]


def panel_names(anchor: str) -> list[str]:
    """Return the names of the panel blocks of an anchor."""
    return [anchor + suffix for suffix in PANELS]


def step_loop(schedule: s_tir.Schedule, anchor: str) -> Any:
    """Return the loop over the panels along k."""
    nest = find_nest(schedule, anchor)
    return schedule.get_loops(schedule.get_sblock(anchor))[nest.reducing[0]]


def inline_into_panels(schedule: s_tir.Schedule, names) -> None:
    """Compute what comes before the product where its panels are copied.

    A block whose result is asked for itself is a launch of its own.
    """
    for name in names:
        block = schedule.get_sblock(name)
        try:
            schedule.compute_inline(block)
        except s_tir.ScheduleError:
            bind_results(schedule, block)


def stage_panels(schedule: s_tir.Schedule, anchor: str, pad_bytes: int, scope: str = "shared.dyn") -> None:
    """Copy each panel to shared memory before each step along k.

    Each thread copies vectors as wide as the operand's accesses allow, up to 16
    bytes; ``pad_bytes`` between rows spread their starts over the memory banks.
    """
    threads = thread_axes(find_nest(schedule, anchor))
    for name in panel_names(anchor):
        block = schedule.get_sblock(name)
        schedule.set_scope(block, 0, scope)
        schedule.compute_at(block, step_loop(schedule, anchor), preserve_unit_loops=True)
        pad_rows(schedule, block, pad_bytes)
        share_copy(schedule, block, threads)


def pad_rows(schedule, block, pad_bytes: int) -> None:
    """Put ``pad_bytes`` between the rows of the buffer that a block writes."""
    buffer = schedule.get(block).body.buffer
    item = itemsize(str(buffer.dtype))
    row = as_int(buffer.shape[-1])
    if pad_bytes >= item and row > 1:
        # The distance of rows is made (row + pad) exactly: the factor only has to exceed it.
        factor = 1 << (row + pad_bytes // item).bit_length()
        schedule.storage_align(block, 0, -2, factor, row + pad_bytes // item)


def share_copy(schedule, block, threads: list[Thread]) -> None:
    """Share the last two loops of a copy among the threads, in vectors."""
    node = schedule.get(block)
    *_, outer, inner = schedule.get_loops(block)
    extent = as_int(schedule.get(inner).extent)
    item = itemsize(str(node.body.buffer.dtype))
    # TVM's CUDA printer cannot spell a vector of more than four bytes as numbers.
    widest = 4 if item == 1 else max(1, VECTOR_BYTES // item)
    width = vector_width(node, node.iter_vars[-1].var, extent, widest)
    total = as_int(schedule.get(outer).extent) * extent
    fused = schedule.fuse(outer, inner)
    factors = [axis.extent for axis in threads]
    rounds = math.ceil(total / (math.prod(factors) * width))
    _, *bound, _ = schedule.split(fused, [rounds, *factors, width])
    for axis, loop in zip(threads, bound):
        schedule.bind(loop, axis.tag)
