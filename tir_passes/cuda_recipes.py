"""Recipes for CUDA devices, per kernel kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import s_tir

from schedules.cuda.lanes import VECTOR_BYTES, item_bytes
from schedules.cuda.launches import column_run, row_count, runs_across
from schedules.cuda.parts import Group, read_groups
from schedules.cuda.split import can_split
from schedules.cuda.transpose import find_crossing
from tvmpass.core.cuda_arch import WARP
from tvmpass.core.kernels import Kernel, contraction_operands
from tvmpass.core.nest import stages
from tvmpass.core.options import Options

from .cuda_contractions import contraction_steps
from .cuda_fallback import cuda_fallback
from .inline_producers import InlineProducers
from .step import Step
from .tile_results import TileResults
from .tile_row_threads import TileRowThreads
from .tile_transpose import TileTranspose
from .unroll_lanes import UnrollLanes
from .vectorize_lanes import VectorizeLanes

__all__ = ["CUDA_RECIPE_VERSION", "cuda_fallback", "cuda_steps"]

CUDA_RECIPE_VERSION: dict[str, int] = {
    "matmul": 1,
    "conv": 1,
    "depthwise": 1,
    "pool": 1,
    "reduce": 1,
    "norm-softmax": 1,
    "elementwise": 1,
    "movement": 1,
    "other": 1,
}
"""The version of each kernel kind's recipes for CUDA targets."""

_BLOCK = 256
_BLOCKS = 256
"""Blocks that fill a device; with fewer a long reduction is made of parts."""

_PART = 128
"""Columns that a part of a row has at least."""

_WORTH_A_LAUNCH = 1 << 16
"""Elements from which on a second launch costs less than what it saves."""


def cuda_steps(kernel: Kernel, target: tvm.target.Target, options: Options) -> list[tuple[Step, ...]]:
    """Return the steps of each recipe for ``kernel``, the library's choice first."""
    if kernel.kind in ("matmul", "conv", "depthwise") and not _is_sum_of_squares(kernel):
        return contraction_steps(kernel, target, options)
    made = _by_kind(kernel)
    if options.unroll == "off":
        made = (tuple(step for step in steps if not isinstance(step, UnrollLanes)) for steps in made)
    return list(made)


def _by_kind(kernel: Kernel) -> Iterable[tuple[Step, ...]]:
    if kernel.kind in ("elementwise", "movement"):
        for threads in (256, 128) if _may_cross(kernel) else ():
            yield (InlineProducers(), TileTranspose(threads=threads), UnrollLanes())
    if kernel.kind not in ("elementwise", "movement", "pool"):
        reduction = next((group for group in read_groups(kernel.func) or () if group.reduces), None)
        if reduction is None:
            return
        yield from _rows(kernel, reduction)
    yield from _results(kernel)


def _may_cross(kernel: Kernel) -> bool:
    """Is the kernel a transpose once its cheap producers are inlined?"""
    schedule = s_tir.Schedule(kernel.func)
    InlineProducers().apply(schedule, kernel)
    return find_crossing(schedule.mod["main"]) is not None


def _is_sum_of_squares(kernel: Kernel) -> bool:
    """Is the product one of a tensor with itself, as in a norm? There is nothing to tile."""
    anchor = next(part for part in stages(kernel.func) if part.name == kernel.anchor)
    operands = contraction_operands(anchor)
    return operands is not None and tvm_ffi.structural_equal(*operands)


def _results(kernel: Kernel) -> Iterable[tuple[Step, ...]]:
    widest = VECTOR_BYTES // min(_sizes(kernel))
    for lanes, threads in ((widest, _BLOCK), (widest, 128), (max(1, widest // 2), _BLOCK), (1, _BLOCK)):
        yield (
            InlineProducers(),
            TileResults(threads=threads, lanes=lanes),
            VectorizeLanes(),
            UnrollLanes(),
        )


def _sizes(kernel: Kernel) -> list[int]:
    """Return the bytes of the kernel's dtypes without truth values, which are no vectors."""
    return [item_bytes(dtype) for dtype in kernel.dtypes if dtype != "bool"] or [VECTOR_BYTES]


def _rows(kernel: Kernel, group: Group) -> Iterable[tuple[Step, ...]]:
    # Stages between reductions are held in registers rather than computed twice.
    inlining = () if kernel.kind == "norm-softmax" else (InlineProducers(),)
    for tile in _row_tiles(kernel, group):
        yield (*inlining, tile, VectorizeLanes(), UnrollLanes())


def _row_tiles(kernel: Kernel, group: Group) -> Iterable[TileRowThreads]:
    plain = list(dict.fromkeys(_whole_rows(kernel, group)))
    columns, rows = column_run(group), row_count(group)
    splittable = columns is not None and rows is not None and can_split(group)
    if splittable and columns * rows >= _WORTH_A_LAUNCH and columns >= 2 * _PART:
        best = plain[0]
        blocks = max(1, rows // (best.rows * (best.lanes if best.across else 1)))
        splits = min(_power_up_to(max(1, _BLOCKS // blocks)), _power_up_to(columns // _PART), 1024)
        if splits > 1:
            made = [replace(best, splits=n) for n in dict.fromkeys((splits, max(2, splits // 4)))]
            plain = [*made, *plain] if blocks * 4 <= _BLOCKS else [plain[0], *made, *plain[1:]]
    yield from plain


def _whole_rows(kernel: Kernel, group: Group) -> Iterable[TileRowThreads]:
    widest = VECTOR_BYTES // max(_sizes(kernel))
    columns = column_run(group)
    if runs_across(group):
        rows = row_count(group)
        vectors = _BLOCK if rows is None else _power_from(-(-rows // widest))
        steps = 256 if columns is None else columns
        # Few rows leave threads for more parts of each, with fewer steps to wait for.
        most, least = (64, 2) if vectors < 8 else (32, 2) if vectors < _BLOCK else (32, 8)
        best = min(most, _BLOCK // min(vectors, 8), _power_up_to(max(1, steps // least)))
        for threads in (best, 8, 32, 1):
            rows_of_block = min(_BLOCK // threads, vectors)
            yield TileRowThreads(threads=threads, rows=rows_of_block, lanes=widest, across=True)
        return
    vectors = 256 if columns is None else -(-columns // widest)
    warp = min(WARP, _power_from(vectors))
    warp_rows = max(1, 128 // warp)
    block = max(WARP * 2, min(1024, _power_from(-(-vectors // 2))))
    by_warp = [TileRowThreads(threads=warp, rows=warp_rows, lanes=widest)]
    by_block = [TileRowThreads(threads=threads, rows=1, lanes=widest) for threads in (block, 256, 1024, 128)]
    yield from (by_block + by_warp) if vectors > 8 * WARP else (by_warp + by_block)
    yield TileRowThreads(threads=warp, rows=warp_rows, lanes=1)
    yield TileRowThreads(threads=warp, rows=warp_rows, lanes=widest, keep=False)


def _power_from(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << max(0, number - 1).bit_length()


def _power_up_to(number: int) -> int:
    """Return the largest power of two that is at most ``number``."""
    return 1 << (number.bit_length() - 1)
