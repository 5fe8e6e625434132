"""Reductions and normalisations, row by row.

All stages of a softmax or a norm run for one row before the next is begun, so
that the row stays in the first-level cache and intermediates are one row long.
A reduction along the contiguous axis keeps several vectors of partial results
and folds them at the end; one along another axis keeps a vector of neighbouring
results.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.kernels import own_reads
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

from .emit import Emitter, LoopAxis, VectorAxis, around, sequence, vector_lanes, with_statements
from .injective import vector_nest
from .reducer import Reducer, find_reducer

_MAX_PARTIALS = 8


def tile_rows(func, lanes: int, vectors: int):
    """Return ``func`` as one loop over rows around the stages of a row, each in vectors."""
    parts = stages(func)
    dtype = str(next(part.iters[0].var.ty.dtype for part in parts if part.iters))
    shared = parts[0].spatial[: row_axes(parts)]
    emitter = Emitter([LoopAxis(f"s{i}", iv.dom.extent, dtype) for i, iv in enumerate(shared)], dtype)
    nests: list = []
    for part in parts:
        nests.extend(_stage_nests(emitter, part, lanes, vectors))
    buffers = [*root_block(func).alloc_buffers, *emitter.buffers]
    return with_statements(func, [around(emitter.axes, sequence(nests))], buffers)


def row_axes(parts: list[Stage]) -> int:
    """Return how many leading iterators all stages share, each reading only its own row."""
    shared = 0
    for iters in zip(*(part.spatial for part in parts)):
        if any(str(iv.dom.extent) != str(iters[0].dom.extent) for iv in iters):
            break
        shared += 1
    written = {part.store.buffer for part in parts}
    for part in parts:
        accesses = [part.store.indices]
        accesses += [load.indices for load in loads(part.store.value) if load.source in written]
        for indices in accesses:
            own = [_is_iterator(index, iv) for index, iv in zip(indices, part.spatial[:shared])]
            shared = own.index(False) if False in own else min(shared, len(own))
    return shared


def _is_iterator(index, iv) -> bool:
    plain = isinstance(index, tirx.Var) and index.same_as(iv.var)
    return plain or (as_int(index) == 0 and extent(iv) == 1)


def runs_along(stage: Stage, var) -> bool:
    """Is ``var`` the last index of every read that has it, so that neighbours lie together?"""
    reads = [load for load in own_reads(stage) if any(var in variables(i) for i in load.indices)]
    ends = [moving_index(load) for load in reads]
    return all(isinstance(end, tirx.Var) and end.same_as(var) for end in ends)


def _stage_nests(emitter: Emitter, stage: Stage, lanes: int, vectors: int) -> list:
    if not stage.reduce:
        return [vector_nest(emitter, stage, lanes, vectors)]
    columns = stage.spatial[len(emitter.axes) :]
    if any(extent(iv) != 1 for iv in columns):
        if extent(columns[-1]) is None:
            return [_scalar_reduction(emitter, stage)]
        return [_wide_reduction(emitter, stage, lanes, vectors)]
    reducer, last = find_reducer(stage), stage.reduce[-1]
    if reducer is None or (extent(last) or 0) < 2 or not runs_along(stage, last.var):
        return [_scalar_reduction(emitter, stage)]
    return _lane_reduction(emitter, stage, reducer, lanes)


def _row_mapping(emitter: Emitter, stage: Stage, bound) -> dict:
    """Map the stage's row iterators to the outer loops, the (unit) rest to zero."""
    mapping = {iv.var: tirx.const(0, emitter.dtype) for iv in stage.spatial}
    mapping.update({iv.var: bound[axis.name] for iv, axis in zip(stage.spatial, emitter.axes)})
    return mapping


def _scalar_reduction(emitter: Emitter, stage: Stage):
    columns = stage.spatial[len(emitter.axes) :]
    axes = [emitter.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(columns)]
    steps = [emitter.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce)]
    pairs = list(zip([*stage.spatial, *stage.reduce], [*emitter.axes, *axes, *steps]))

    def rewritten(store):
        return lambda bound: substitute(store, {iv.var: bound[axis.name] for iv, axis in pairs})

    body, init = rewritten(stage.store), rewritten(stage.block.init) if stage.block.init is not None else None
    return emitter.block(stage.name, [*axes, *steps], body, init, {axis.name for axis in steps})


def _wide_reduction(emitter: Emitter, stage: Stage, lanes: int, vectors: int):
    """Reduce with a vector of neighbouring results in registers."""
    *outer, last = stage.spatial[len(emitter.axes) :]
    axes = [emitter.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(outer)]
    vector = VectorAxis(extent(last), lanes, vectors, emitter.dtype)
    steps = [emitter.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce)]
    tile = emitter.inside([*axes, vector.nt])
    inner = (vector.nu, vector.nl)
    partial = tile.local(inner, str(stage.store.buffer.dtype), stage.name + "_tile")

    def mapping(bound):
        made = _row_mapping(emitter, stage, bound)
        made.update({iv.var: bound[axis.name] for iv, axis in zip(outer, axes)})
        made.update({iv.var: bound[axis.name] for iv, axis in zip(stage.reduce, steps)})
        made[last.var] = vector.value(bound)
        return made

    def accumulate(store):
        def body(bound):
            own = tirx.BufferLoad(partial, tile.at(bound, inner))
            swap = lambda load: own if load.source.same_as(stage.store.buffer) else load  # noqa: E731
            value = tvm_ffi.structural_map(store.value, [(tvm.ir.TensorLoad, swap)], order="post")
            return tirx.BufferStore(partial, substitute(value, mapping(bound)), tile.at(bound, inner))

        return body

    def store(bound):
        bound = {**{axis.name: tirx.const(0, axis.dtype) for axis in steps}, **bound}
        indices = [substitute(i, mapping(bound)) for i in stage.store.indices]
        value = tirx.BufferLoad(partial, tile.at(bound, inner))
        return tirx.BufferStore(stage.store.buffer, value, indices)

    reduce = {axis.name for axis in steps}
    nests = [
        tile.block(
            stage.name, [*steps, *inner], accumulate(stage.store), accumulate(stage.block.init), reduce
        ),
        tile.block(stage.name + "_store", vector.inner(), store),
    ]
    return around([*axes, vector.nt], sequence(nests))


def _lane_reduction(emitter: Emitter, stage: Stage, reducer: Reducer, lanes: int) -> list:
    """Reduce the contiguous axis in several vectors of partial results, then fold them."""
    last, size = stage.reduce[-1], extent(stage.reduce[-1])
    lanes = vector_lanes(size, lanes)
    groups = size // lanes
    vectors = max(d for d in range(1, _MAX_PARTIALS + 1) if groups % d == 0)
    outer = [emitter.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce[:-1])]
    step, nu, nl = (
        emitter.axis(n, s) for n, s in (("rk", groups // vectors), ("nu", vectors), ("nl", lanes))
    )
    partial = emitter.local((nu, nl), str(stage.store.buffer.dtype), stage.name + "_lanes")

    def update(bound):
        k = (bound["rk"] * vectors + bound["nu"]) * lanes + bound["nl"]
        mapping = _row_mapping(emitter, stage, bound)
        mapping.update({iv.var: bound[axis.name] for iv, axis in zip(stage.reduce, outer)})
        at = emitter.at(bound, (nu, nl))
        element = substitute(reducer.element, {**mapping, last.var: k})
        return tirx.BufferStore(partial, reducer.combine(tirx.BufferLoad(partial, at), element), at)

    def init(bound):
        return tirx.BufferStore(partial, reducer.identity, emitter.at(bound, (nu, nl)))

    reduce = {axis.name for axis in (*outer, step)}
    nests = [emitter.block(stage.name, [*outer, step, nu, nl], update, init, reduce)]
    if size % lanes == 0:
        return nests + _fold(emitter, stage, reducer, partial, vectors, lanes)
    main = emitter.local((), str(partial.dtype), stage.name + "_main")
    nests += _fold(emitter, stage, reducer, partial, vectors, lanes, main)
    return [*nests, _tail(emitter, stage, reducer, main, size - size % lanes)]


def _fold(
    emitter: Emitter, stage: Stage, reducer: Reducer, partial, vectors: int, lanes: int, main=None
) -> list:
    """Combine the partial vectors into one, then halve it down to the result, or into ``main``."""
    lane = emitter.axis("nl", lanes)
    source = emitter.local((lane,), str(partial.dtype), stage.name + "_vector")

    def constant(value: int):
        return tirx.const(value, emitter.dtype)

    def fold_vectors(target):
        def body(bound):
            parts = [
                tirx.BufferLoad(partial, [*emitter.at(bound), constant(u), bound["nl"]])
                for u in range(vectors)
            ]
            value = parts[0]
            for part in parts[1:]:
                value = reducer.combine(value, part)
            return tirx.BufferStore(target, value, emitter.at(bound, (lane,)))

        return body

    def halve(source, width: int, target):
        def body(bound):
            at = bound["nl"] if width > 1 else constant(0)
            first, second = (
                tirx.BufferLoad(source, [*emitter.at(bound), i]) for i in (at, at + constant(width))
            )
            value = reducer.combine(first, second)
            if target is not None:
                return tirx.BufferStore(target, value, [*emitter.at(bound), at])
            if main is not None:
                return tirx.BufferStore(main, value, emitter.at(bound))
            return _result(emitter, stage, value, bound)

        return body

    nests = [emitter.block(stage.name + "_fold", [lane], fold_vectors(source))]
    for width in (w for w in (32, 16, 8, 4, 2) if w < lanes):
        axis = emitter.axis("nl", width)
        half = emitter.local((axis,), str(partial.dtype), f"{stage.name}_half{width}")
        nests.append(emitter.block(f"{stage.name}_half{width}", [axis], halve(source, width, half)))
        source = half
    nests.append(emitter.block(stage.name + "_result", [], halve(source, 1, None)))
    return nests


def _result(emitter: Emitter, stage: Stage, value, bound):
    mapping = _row_mapping(emitter, stage, bound)
    return tirx.BufferStore(stage.store.buffer, value, [substitute(i, mapping) for i in stage.store.indices])


def _tail(emitter: Emitter, stage: Stage, reducer: Reducer, main, begin: int):
    """Start from the ``main`` part and add the elements that fill no vector, one by one."""
    last = stage.reduce[-1]
    outer = [emitter.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce[:-1])]
    step = emitter.axis("rt", extent(last) - begin)

    def body(bound):
        mapping = _row_mapping(emitter, stage, bound)
        mapping.update({iv.var: bound[axis.name] for iv, axis in zip(stage.reduce, outer)})
        element = substitute(reducer.element, {**mapping, last.var: bound["rt"] + begin})
        own = tirx.BufferLoad(stage.store.buffer, [substitute(i, mapping) for i in stage.store.indices])
        return _result(emitter, stage, reducer.combine(own, element), bound)

    def init(bound):
        return _result(emitter, stage, tirx.BufferLoad(main, emitter.at(bound)), bound)

    reduce = {axis.name for axis in (*outer, step)}
    return emitter.block(stage.name + "_tail", [*outer, step], body, init, reduce)
