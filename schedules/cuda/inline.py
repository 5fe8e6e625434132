"""Inlining for devices, on which computing again is cheaper than another launch."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir

from schedules.cpu.inline import inline_everything
from schedules.cpu.loops import nests
from tvmpass.core.nest import REDUCE, as_int, loads

_CALLS = 8
"""Evaluations of functions per element that memory hides."""

_REPEATS = 16
"""How often a window may read one element before its functions are better evaluated once."""

_FREE = ("if_then_else", "likely")


def inline_producers(schedule: s_tir.Schedule) -> None:
    """Inline cheap producers, and costly ones that are broadcast to their only reader.

    A costly one as large as its readers stays: it is a part of their launch,
    and evaluated once.
    """
    inline_everything(schedule)
    for nest in nests(schedule)[:-1]:
        if any(int(iv.iter_type) == REDUCE for iv in nest.block.iter_vars):
            continue
        block = schedule.get_sblock(nest.name)
        readers = [schedule.get(reader) for reader in schedule.get_consumers(block)]
        if len(readers) == 1 and _pays(nest.block, readers[0]):
            try:
                schedule.compute_inline(block)
            except s_tir.ScheduleError:
                continue  # An output, or a reader TVM cannot inline into: it stays a block.


def _pays(block, reader) -> bool:
    own, there = _volume(block), _volume(reader)
    if own is not None and own == there:
        return False
    buffers = [region.source for region in block.writes]
    reads = sum(any(load.source.same_as(b) for b in buffers) for load in loads(reader.body))
    if _calls(block) * reads > _CALLS:
        return False
    if not any(int(iv.iter_type) == REDUCE for iv in reader.iter_vars):
        return True
    return own is not None and there is not None and there <= _REPEATS * own


def _calls(block) -> int:
    found: list = []
    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, found.append)])
    names = [call.op.name.rpartition(".")[2] for call in found if isinstance(call.op, tvm.ir.Op)]
    return sum(name not in _FREE for name in names)


def _volume(block) -> int | None:
    sizes = [as_int(iv.dom.extent) for iv in block.iter_vars]
    return None if None in sizes else math.prod(size or 0 for size in sizes)
