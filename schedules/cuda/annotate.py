"""Annotations on a tiled product: vectors, unrolling, the pipeline of its copies."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from schedules.cpu.loops import find_nest, nests
from tvmpass.core.nest import as_int, variables

from .staging import panel_names, step_loop
from .vector_width import VECTOR_BYTES, itemsize, vector_width

_SERIAL = int(tirx.ForKind.SERIAL)
_TILE_LOOPS = ("mi", "nv", "nl", "fm", "fn", "f")
_LONGEST = 64


def vectorize_accesses(schedule: s_tir.Schedule, anchor: str, widest: int = VECTOR_BYTES) -> list[str]:
    """Make vectors of the innermost loops of the copies and of the store; return their blocks."""
    made = []
    for name in [*panel_names(anchor), anchor + "_store"]:
        nest = find_nest(schedule, name)
        if nest is None or len(nest.loops) == 0:
            continue
        extent, kind = as_int(nest.loops[-1].extent), int(nest.loops[-1].kind)
        if kind != _SERIAL or extent is None or extent < 2:
            continue
        if name.endswith("_store") and not _store_fits(nest, extent):
            continue
        if extent * itemsize(str(nest.block.body.buffer.dtype)) > widest:
            continue
        schedule.vectorize(schedule.get_loops(schedule.get_sblock(name))[-1])
        made.append(name)
    return made


def _store_fits(nest, lanes: int) -> bool:
    """Is the store along its last iterator one vector, its guard the same for all of it?"""
    analyzer = tvm.sym.Analyzer()
    for loop in nest.loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
    if nest.loops[-1].loop_var in variables(analyzer.simplify(nest.realize.predicate)):
        return False
    block = nest.block
    return vector_width(block, block.iter_vars[-1].var, lanes, lanes) == lanes


def pipeline_copies(schedule: s_tir.Schedule, anchor: str, stages: int, asynchronous: bool) -> None:
    """Copy the panels ``stages`` - 1 steps ahead of the arithmetic."""
    loop = step_loop(schedule, anchor)
    schedule.annotate(loop, "software_pipeline_stage", [0, 0, stages - 1])
    schedule.annotate(loop, "software_pipeline_order", [0, 1, 2])
    if asynchronous:
        schedule.annotate(loop, "software_pipeline_async_stages", [0])


def unroll_tiles(schedule: s_tir.Schedule, anchor: str) -> None:
    """Unroll the loops over a product's registers; the CUDA compiler writes the copies, not TVM."""
    for nest in nests(schedule):
        if not nest.name.startswith(anchor):
            continue
        loops = schedule.get_loops(schedule.get_sblock(nest.name))
        first = True
        for loop, node in zip(loops, nest.loops):
            if not _is_tile_loop(node):
                continue
            schedule.unroll(loop)
            if first:
                schedule.annotate(loop, "pragma_unroll_explicit", 0)
            first = False


def _is_tile_loop(loop) -> bool:
    size = as_int(loop.extent)
    named = loop.loop_var.name.removesuffix("_init") in _TILE_LOOPS
    return named and int(loop.kind) == _SERIAL and size is not None and 1 < size <= _LONGEST
