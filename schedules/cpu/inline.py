"""Inlining of injective blocks on a schedule."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir

from tvmpass.core.nest import REDUCE, as_int

from .loops import nests

# A producer with more calls than this is not evaluated again per reader.
_CHEAP_CALLS = 0


def _try_inline(schedule, block) -> bool:
    try:
        schedule.compute_inline(block)
    except s_tir.ScheduleError:
        # Not inlinable (an output, an opaque reader, an accumulator): it stays a block.
        return False
    return True


def inline_epilogue(schedule, names) -> None:
    """Inline every block after the anchor but the last."""
    for name in list(names)[:-1]:
        _try_inline(schedule, schedule.get_sblock(name))


def inline_prologue(schedule, names) -> None:
    """Inline plain producers of the anchor; padding and costly ones stay."""
    for name in names:
        block = schedule.get_sblock(name)
        if not is_guarded(schedule.get(block)) and not _grows(schedule, block):
            _try_inline(schedule, block)


def inline_everything(schedule) -> None:
    """Inline injective blocks into their readers, in program order."""
    for nest in nests(schedule)[:-1]:
        if any(int(iv.iter_type) == REDUCE for iv in nest.block.iter_vars):
            continue
        block = schedule.get_sblock(nest.name)
        if not _grows(schedule, block):
            _try_inline(schedule, block)


def is_guarded(block) -> bool:
    """Does the block choose by position, as padding does?"""
    return "if_then_else" in call_names(block)


def call_names(block) -> set[str]:
    """Return the intrinsics a block calls, without their dialect prefix."""
    found: list = []
    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, found.append)], order="post")
    return {c.op.name.rpartition(".")[2] for c in found if isinstance(c.op, tvm.ir.Op)}


def _volume(iters) -> int | None:
    volume = 1
    for iv in iters:
        size = as_int(iv.dom.extent)
        if size is None:
            return None
        volume *= size
    return volume


def _grows(schedule, block) -> bool:
    """Would inlining evaluate a costly block more often than now?"""
    node = schedule.get(block)
    costly = call_names(node) - {"if_then_else", "likely"}
    if len(costly) <= _CHEAP_CALLS:
        return False
    readers = [schedule.get(r) for r in schedule.get_consumers(block)]
    if len(readers) > 1:
        return True
    own = _volume(node.iter_vars)
    return any(own is None or _volume(r.iter_vars) is None or _volume(r.iter_vars) > own for r in readers)
