"""Vectors along the last axis of elementwise and data-movement blocks."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.nest import (
    SPATIAL,
    Stage,
    as_int,
    extent,
    loads,
    regions,
    root_block,
    stages,
    substitute,
    variables,
)

from .tile import LoopAxis, tile_start, vector_lanes


def tile_injective(func, lanes: int, vectors: int):
    """Return ``func`` with every injective stage split into vectors; others as they are."""
    parts = stages(func)
    root = root_block(func)
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    for i, part in enumerate(parts):
        if not part.reduce and part.spatial and part.store is not None:
            nests[i] = _vector_nest(part, lanes, vectors)
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    block = s_tir.SBlock([], [], [], "root", body, None, list(root.alloc_buffers))
    return func.with_body(s_tir.SBlockRealize([], True, block))


def flat_axes(stage: Stage) -> int:
    """Return how many trailing iterators every access walks as one contiguous run.

    At least 1 where the last iterator indexes the last dimension stored to.
    """
    spatial = list(stage.spatial)
    accesses = [(stage.store.buffer, list(stage.store.indices))]
    accesses += [(load.source, list(load.indices)) for load in loads(stage.store.value)]
    loose = _loose_variables(stage)
    count = 0
    while count < len(spatial):
        tail = spatial[len(spatial) - count - 1 :]
        if any(extent(iv) is None for iv in tail) or any(iv.var in loose for iv in tail):
            break
        if not all(_walks(buffer, indices, tail) for buffer, indices in accesses):
            break
        count += 1
    return max(count, 1)


def _loose_variables(stage: Stage) -> set:
    """Return the variables that the value uses outside of load indices."""
    bare = tvm_ffi.structural_map(
        stage.store.value, [(tvm.ir.TensorLoad, lambda x: tirx.const(0, x.ty.dtype))], order="post"
    )
    return variables(bare)


def _walks(buffer, indices, tail) -> bool:
    """Are the last indices exactly ``tail``, over whole dimensions (or is none of it read)?"""
    names = {iv.var for iv in tail}
    if not any(variables(i) & names for i in indices):
        return True
    if len(indices) < len(tail):
        return False
    last = indices[len(indices) - len(tail) :]
    dims = list(buffer.shape)[len(indices) - len(tail) :]
    for place, (index, iv, dim) in enumerate(zip(last, tail, dims)):
        if not (isinstance(index, tirx.Var) and index.same_as(iv.var)):
            if not (as_int(index) == 0 and extent(iv) == 1 and as_int(dim) == 1):
                return False
        if place and as_int(dim) != extent(iv):
            return False
    return not any(variables(i) & names for i in indices[: len(indices) - len(tail)])


def _vector_nest(stage: Stage, lanes: int, vectors: int):
    spatial = list(stage.spatial)
    count = flat_axes(stage)
    outer_ivs, tail = spatial[: len(spatial) - count], spatial[len(spatial) - count :]
    dtype = str(spatial[0].var.ty.dtype)
    outer = [LoopAxis(f"s{i}", iv.dom.extent, dtype) for i, iv in enumerate(outer_ivs)]
    sizes = [extent(iv) for iv in tail]
    whole = None if None in sizes else _product(sizes)
    lanes = vector_lanes(whole, lanes)
    if whole is None:
        inner = [LoopAxis("nt", tail[0].dom.extent, dtype)]
    else:
        groups = -(-whole // lanes)
        vectors = min(vectors, groups)
        inner = [
            LoopAxis("nt", -(-groups // vectors), dtype),
            LoopAxis("nu", vectors, dtype),
            LoopAxis("nl", lanes, dtype),
        ]
    axes = outer + inner
    iterators = {a.name: a.iterator(SPATIAL) for a in axes}
    bound = {name: iv.var for name, iv in iterators.items()}
    mapping = {iv.var: bound[a.name] for iv, a in zip(outer_ivs, outer)}
    if whole is None:
        mapping[tail[0].var] = bound["nt"]
    else:
        group = tile_start(bound["nt"], vectors, vectors, groups) + bound["nu"]
        start = group * lanes
        flat = (tirx.min(start, whole - lanes) if whole % lanes else start) + bound["nl"]
        for iv, size in reversed(list(zip(tail[1:], sizes[1:]))):
            mapping[iv.var] = tirx.floormod(flat, size)
            flat = tirx.floordiv(flat, size)
        mapping[tail[0].var] = flat
    store = substitute(stage.store, mapping)
    block = s_tir.SBlock(
        [iterators[a.name] for a in axes],
        regions((x.source, x.indices) for x in loads(store.value)),
        regions([(store.buffer, store.indices)]),
        stage.name,
        store,
    )
    body = s_tir.SBlockRealize([a.loop_var for a in axes], True, block)
    for axis in reversed(axes):
        body = axis.around(body)
    return body


def _product(sizes) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
