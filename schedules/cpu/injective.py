"""Vectors along the last axis of elementwise and data-movement blocks.

Trailing axes that every access walks contiguously are taken as one.  Where an
operand lies along another axis (a transpose), the nest walks blocks of both
axes, so that every cache line read is used up before it is pushed out.
"""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import (
    Stage,
    as_int,
    extent,
    loads,
    moving_index,
    root_block,
    stages,
    substitute,
    variables,
)

from .emit import Emitter, LoopAxis, VectorAxis, statements, tile_start, vector_lanes, with_statements

TRANSPOSE_BLOCK = 32
_MIN_GUARD_LANES = 4


def tile_injective(func, lanes: int, vectors: int):
    """Return ``func`` with every injective stage split into vectors; others as they are."""
    parts = statements(func)
    for i, stage in enumerate(stages(func)):
        if not stage.reduce and stage.spatial and stage.store is not None:
            emitter = Emitter([], str(stage.spatial[0].var.ty.dtype))
            parts[i] = vector_nest(emitter, stage, lanes, vectors)
    return with_statements(func, parts, root_block(func).alloc_buffers)


def vector_nest(emitter: Emitter, stage: Stage, lanes: int, vectors: int):
    """Return an injective stage in vectors along its last axes.

    The first iterators of the stage are the emitter's outer loops.
    """
    rows, columns = stage.spatial[: len(emitter.axes)], stage.spatial[len(emitter.axes) :]
    flat = min(flat_axes(stage), len(columns))
    outer, tail = list(columns[: len(columns) - flat]), list(columns[len(columns) - flat :])
    axes = [emitter.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(outer)]
    sizes = [extent(iv) for iv in tail]
    if not tail or None in sizes:
        return _scalar_nest(emitter, stage, [*outer, *tail])
    crossed = _crossed_axis(stage, outer, tail)
    lanes = _guard_lanes(stage, tail[-1].var, lanes)
    if crossed is not None:
        vectors = 1
    elif len(tail) > 1:
        vectors = _even_vectors(math.prod(sizes), lanes, vectors)
    vector = VectorAxis(math.prod(sizes), lanes, vectors, emitter.dtype)
    order = [*axes, vector.nt, vector.nu, vector.nl]
    block: tuple[LoopAxis, LoopAxis] | None = None
    if crossed is not None:
        size = extent(outer[crossed])
        step = min(TRANSPOSE_BLOCK, size)
        block = emitter.axis("bt", -(-size // step)), emitter.axis("bl", step)
        others = [axis for i, axis in enumerate(axes) if i != crossed]
        order = [*others, block[0], vector.nt, block[1], vector.nu, vector.nl]

    def body(bound):
        mapping = {iv.var: bound[a.name] for iv, a in zip(rows, emitter.axes)}
        for i, (iv, axis) in enumerate(zip(outer, axes)):
            if i == crossed:
                mapping[iv.var] = tile_start(bound["bt"], step, size) + bound["bl"]
            else:
                mapping[iv.var] = bound[axis.name]
        mapping.update(unravel(tail, vector.value(bound)))
        return substitute(stage.store, mapping)

    return emitter.block(stage.name, order, body)


def _even_vectors(size: int, lanes: int, vectors: int) -> int:
    """Return at most ``vectors`` per tile such that no tile overlaps another.

    The start of an overlapping tile is a minimum, and through that the
    simplifier may fail to put a split index together again: the vectors would
    become one load per lane.
    """
    groups = -(-size // vector_lanes(size, lanes))
    return next(v for v in range(min(vectors, groups), 0, -1) if groups % v == 0)


def _scalar_nest(emitter: Emitter, stage: Stage, columns):
    axes = [emitter.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(columns)]

    def body(bound):
        mapping = {iv.var: bound[a.name] for iv, a in zip(stage.spatial, [*emitter.axes, *axes])}
        return substitute(stage.store, mapping)

    return emitter.block(stage.name, axes, body)


def unravel(iters, flat) -> dict:
    """Map iterators of known extent to their values at position ``flat`` of them all."""
    mapping = {}
    for iv in reversed(iters[1:]):
        mapping[iv.var] = tirx.floormod(flat, extent(iv))
        flat = tirx.floordiv(flat, extent(iv))
    mapping[iters[0].var] = flat
    return mapping


def flat_axes(stage: Stage) -> int:
    """Return how many trailing iterators every access walks as one contiguous run, at least 1."""
    spatial = list(stage.spatial)
    accesses = [(stage.store.buffer, list(stage.store.indices))]
    accesses += [(load.source, list(load.indices)) for load in loads(stage.store.value)]
    loose = _loose_variables(stage)
    count = 0
    while count < len(spatial):
        tail = spatial[len(spatial) - count - 1 :]
        if any(extent(iv) is None or iv.var in loose for iv in tail):
            break
        if not all(_walks(buffer, indices, tail) for buffer, indices in accesses):
            break
        count += 1
    return max(count, 1)


def _loose_variables(stage: Stage) -> set:
    """Return the variables that the value uses outside of load indices."""
    constant = lambda load: tirx.const(0, load.ty.dtype)  # noqa: E731
    return variables(tvm_ffi.structural_map(stage.store.value, [(tvm.ir.TensorLoad, constant)], order="post"))


def _walks(buffer, indices, tail) -> bool:
    """Are the last indices exactly ``tail``, over whole dimensions (or is none of it read)?"""
    names = {iv.var for iv in tail}
    if not any(variables(i) & names for i in indices):
        return True
    start = len(indices) - len(tail)
    if start < 0 or any(variables(i) & names for i in indices[:start]):
        return False
    for place, (index, iv, dim) in enumerate(zip(indices[start:], tail, list(buffer.shape)[start:])):
        own = isinstance(index, tirx.Var) and index.same_as(iv.var)
        unit = as_int(index) == 0 and extent(iv) == 1 and as_int(dim) == 1
        if not (own or unit) or (place and as_int(dim) != extent(iv)):
            return False
    return True


def _crossed_axis(stage: Stage, outer, tail) -> int | None:
    """Return the position in ``outer`` of an axis that a read walks contiguously instead of ``tail``."""
    across = {iv.var for iv in tail}
    for load in loads(stage.store.value):
        if not len(load.indices) or not any(variables(i) & across for i in load.indices):
            continue
        last = moving_index(load)
        for position, iv in enumerate(outer):
            if isinstance(last, tirx.Var) and last.same_as(iv.var) and (extent(iv) or 0) > 1:
                return position
    return None


def _guard_lanes(stage: Stage, var, lanes: int) -> int:
    """Return lanes that divide every limit ``var`` is compared with, where at least 4 do.

    A choice between operands (a concatenation) is then the same for all
    elements of a vector.
    """
    expr = tvm.ir.prim.expr
    compares: list = []
    kinds = [(kind, compares.append) for kind in (expr.LT, expr.LE, expr.GT, expr.GE)]
    tvm_ffi.structural_walk(stage.store.value, kinds, order="post")
    fitting = lanes
    for node in compares:
        for limit, other in ((as_int(node.a), node.b), (as_int(node.b), node.a)):
            if limit is not None and var in variables(other):
                while fitting > 1 and limit % fitting:
                    fitting //= 2
    return fitting if fitting >= _MIN_GUARD_LANES else lanes
