"""Reductions and normalisations, row by row.

All stages of a softmax or a norm run for one row before the next is begun, so
that the row stays in the first-level cache and intermediates are one row long.
A reduction along the contiguous axis keeps several vectors of partial results
and folds them at the end; one along another axis keeps a vector of neighbouring
results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.kernels import own_reads
from tvmpass.core.nest import (
    REDUCE,
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

from .injective import flat_axes
from .tile import LoopAxis, tile_start, vector_lanes

_MAX_PARTIALS = 8


def row_axes(parts: list[Stage]) -> int:
    """Return how many leading iterators all stages share, each reading only its own row."""
    shared = min(len(part.spatial) for part in parts)
    first = parts[0].spatial
    for i in range(shared):
        if any(str(p.spatial[i].dom.extent) != str(first[i].dom.extent) for p in parts):
            shared = i
            break
    written = {part.store.buffer for part in parts}
    for part in parts:
        accesses = [(part.store.buffer, part.store.indices)]
        accesses += [(x.source, x.indices) for x in loads(part.store.value) if x.source in written]
        for _, indices in accesses:
            for i in range(min(shared, len(indices)) + 1):
                if i == shared:
                    break
                own = isinstance(indices[i], tirx.Var) and indices[i].same_as(part.spatial[i].var)
                if not own and not (as_int(indices[i]) == 0 and extent(part.spatial[i]) == 1):
                    shared = i
                    break
            shared = min(shared, len(indices))
    return shared


def combiner(stage: Stage) -> tuple[Any, Any, Any] | None:
    """Return (value, accumulator load, element) of a reduction, None where not recognised.

    ``value`` is the new accumulator as an expression over the other two, so that two partial
    results combine by putting one in the element's place.
    """
    value = stage.store.value
    accumulators = [x for x in loads(value) if x.source.same_as(stage.store.buffer)]
    if not accumulators:
        return None
    element = _other_operand(value, stage.store.buffer)
    if element is None:
        return None
    probe = tirx.Var("element", str(element.ty.dtype))
    rest = _replace(value, element, probe)
    if any(not x.source.same_as(stage.store.buffer) for x in loads(rest)):
        return None
    return value, accumulators[0], element


def _other_operand(value, buffer):
    """Return the operand that stands beside the accumulator in an add, max or compare."""
    found: list = []

    def visit(node):
        for a, b in ((node.a, node.b), (node.b, node.a)):
            if isinstance(a, tvm.ir.TensorLoad) and a.source.same_as(buffer):
                found.append(b)
                return

    expr = tvm.ir.prim.expr
    kinds = (expr.Add, expr.Mul, expr.Max, expr.Min, expr.GT, expr.LT, expr.GE, expr.LE, expr.And, expr.Or)
    tvm_ffi.structural_walk(value, [(kind, visit) for kind in kinds], order="pre")
    return found[0] if found else None


def _replace(value, old, new):
    def same(node):
        return new if tvm_ffi.structural_equal(node, old) else node

    return tvm_ffi.structural_map(value, [(type(old), same)], order="post")


def combine(reducer, a, b):
    """Return the reducer applied to two values."""
    value, accumulator, element = reducer
    left = tirx.Var("left", str(a.ty.dtype))
    right = tirx.Var("right", str(b.ty.dtype))
    made = _replace(_replace(value, element, right), accumulator, left)
    return substitute(made, {left: a, right: b})


@dataclass
class _Row:
    """What the stages of one row share: its axes, and buffers made for partial results."""

    axes: list[LoopAxis]
    lanes: int
    vectors: int
    dtype: str
    buffers: list = field(default_factory=list)

    def local(self, sizes, dtype: str, name: str):
        shape = [a.size for a in self.axes] + [tirx.const(s, self.dtype) for s in sizes]
        buffer = tirx.decl_buffer(shape, dtype, name, scope="local")
        self.buffers.append(buffer)
        return buffer

    def block(self, name: str, axes: list[LoopAxis], reduce: set[str], body, init=None):
        """Return loops ``axes`` around a block; ``body`` and ``init`` map bound iterators to a store."""
        every = self.axes + axes
        ivs = {a.name: a.iterator(REDUCE if a.name in reduce else SPATIAL) for a in every}
        bound = {n: iv.var for n, iv in ivs.items()}
        store = body(bound)
        own = store.buffer if init is not None else None
        block = s_tir.SBlock(
            [ivs[a.name] for a in every],
            regions(
                (x.source, x.indices) for x in loads(store.value) if own is None or not x.source.same_as(own)
            ),
            regions([(store.buffer, store.indices)]),
            name,
            store,
            None if init is None else init(bound),
        )
        nest = s_tir.SBlockRealize([a.loop_var for a in every], True, block)
        for axis in reversed(axes):
            nest = axis.around(nest)
        return nest

    def at(self, bound) -> list:
        return [bound[a.name] for a in self.axes]

    def axis(self, name: str, size) -> LoopAxis:
        return LoopAxis(name, size, self.dtype)


def tile_rows(func, lanes: int, vectors: int):
    """Return ``func`` as one loop over rows around the stages of a row, each in vectors."""
    parts = stages(func)
    count = row_axes(parts)
    dtype = str(next(p.iters[0].var.ty.dtype for p in parts if p.iters))
    axes = [LoopAxis(f"s{i}", parts[0].spatial[i].dom.extent, dtype) for i in range(count)]
    row = _Row(axes, lanes, vectors, dtype)
    nests: list = []
    for part in parts:
        nests.extend(_stage_nests(row, part, count))
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    for axis in reversed(axes):
        body = axis.around(body)
    block = s_tir.SBlock([], [], [], "root", body, None, [*root_block(func).alloc_buffers, *row.buffers])
    return func.with_body(s_tir.SBlockRealize([], True, block))


def _stage_nests(row: _Row, stage: Stage, count: int) -> list:
    columns = list(stage.spatial)[count:]
    if not stage.reduce:
        return [_vector_nest(row, stage, count)]
    reducer = combiner(stage)
    if any(extent(iv) != 1 for iv in columns):
        return _wide_reduction(row, stage, count)
    last = extent(stage.reduce[-1])
    if reducer is None or last is None or last < 2 or not runs_along(stage, stage.reduce[-1].var):
        return [_scalar_reduction(row, stage, count)]
    return _lane_reduction(row, stage, count, reducer)


def runs_along(stage: Stage, var) -> bool:
    """Is ``var`` the last index of a read (or of none), so that neighbours lie together?"""
    reads = [x for x in own_reads(stage) if any(var in variables(i) for i in x.indices)]
    return all(isinstance(x.indices[-1], tirx.Var) and x.indices[-1].same_as(var) for x in reads)


def _base_mapping(row: _Row, stage: Stage, bound) -> dict:
    return {iv.var: bound[a.name] for iv, a in zip(stage.spatial, row.axes)}


def _vector_nest(row: _Row, stage: Stage, count: int):
    spatial = list(stage.spatial)
    columns = spatial[count:]
    flat = min(flat_axes(stage), len(columns)) if columns else 0
    outer, tail = columns[: len(columns) - flat], columns[len(columns) - flat :]
    sizes = [extent(iv) for iv in tail]
    axes = [row.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(outer)]
    whole = None if None in sizes else _product(sizes)
    if whole is None:
        inner = [row.axis("nt", tail[0].dom.extent)]
    else:
        lanes = vector_lanes(whole, row.lanes)
        groups = -(-whole // lanes)
        vectors = min(row.vectors, groups)
        inner = [row.axis("nt", -(-groups // vectors)), row.axis("nu", vectors), row.axis("nl", lanes)]

    def body(bound):
        mapping = _base_mapping(row, stage, bound)
        mapping.update({iv.var: bound[a.name] for iv, a in zip(outer, axes)})
        if whole is None:
            mapping[tail[0].var] = bound["nt"]
        elif tail:
            group = tile_start(bound["nt"], vectors, vectors, groups) + bound["nu"]
            start = group * lanes
            at = (tirx.min(start, whole - lanes) if whole % lanes else start) + bound["nl"]
            for iv, size in reversed(list(zip(tail[1:], sizes[1:]))):
                mapping[iv.var] = tirx.floormod(at, size)
                at = tirx.floordiv(at, size)
            mapping[tail[0].var] = at
        return substitute(stage.store, mapping)

    return row.block(stage.name, axes + inner, set(), body)


def _scalar_reduction(row: _Row, stage: Stage, count: int):
    columns = list(stage.spatial)[count:]
    axes = [row.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(columns)]
    steps = [row.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce)]

    def mapping(bound):
        made = _base_mapping(row, stage, bound)
        made.update(
            {
                iv.var: bound[a.name]
                for iv, a in zip([*columns, *stage.reduce], axes + steps)
                if a.name in bound
            }
        )
        return made

    return row.block(
        stage.name,
        axes + steps,
        {a.name for a in steps},
        lambda bound: substitute(stage.store, mapping(bound)),
        lambda bound: substitute(stage.block.init, mapping(bound)),
    )


def _wide_reduction(row: _Row, stage: Stage, count: int) -> list:
    columns = list(stage.spatial)[count:]
    outer, last = columns[:-1], columns[-1]
    size = extent(last)
    if size is None:
        return [_scalar_reduction(row, stage, count)]
    lanes = vector_lanes(size, row.lanes)
    groups = -(-size // lanes)
    vectors = min(row.vectors, groups)
    axes = [row.axis(f"c{i}", iv.dom.extent) for i, iv in enumerate(outer)]
    nt, nu, nl = row.axis("nt", -(-groups // vectors)), row.axis("nu", vectors), row.axis("nl", lanes)
    steps = [row.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce)]
    partial = tirx.decl_buffer(
        [a.size for a in [*row.axes, *axes, nt, nu, nl]],
        stage.store.buffer.dtype,
        stage.name + "_tile",
        scope="local",
    )
    row.buffers.append(partial)

    def mapping(bound):
        made = _base_mapping(row, stage, bound)
        made.update({iv.var: bound[a.name] for iv, a in zip(outer, axes)})
        made.update({iv.var: bound[a.name] for iv, a in zip(stage.reduce, steps) if a.name in bound})
        start = (tile_start(bound["nt"], vectors, vectors, groups) + bound["nu"]) * lanes
        made[last.var] = (tirx.min(start, size - lanes) if size % lanes else start) + bound["nl"]
        return made

    def at(bound):
        return row.at(bound) + [bound[a.name] for a in [*axes, nt, nu, nl]]

    def retarget(store, bound):
        own = tirx.BufferLoad(partial, at(bound))
        value = tvm_ffi.structural_map(
            store.value,
            [(tvm.ir.TensorLoad, lambda x: own if x.source.same_as(stage.store.buffer) else x)],
            order="post",
        )
        return tirx.BufferStore(partial, substitute(value, mapping(bound)), at(bound))

    shared = _Row([*row.axes, *axes, nt], row.lanes, row.vectors, row.dtype)
    update = shared.block(
        stage.name,
        [*steps, nu, nl],
        {a.name for a in steps},
        lambda bound: retarget(stage.store, bound),
        lambda bound: retarget(stage.block.init, bound),
    )
    fresh = [row.axis("nu", vectors), row.axis("nl", lanes)]
    store = shared.block(
        stage.name + "_store",
        fresh,
        set(),
        lambda bound: tirx.BufferStore(
            stage.store.buffer,
            tirx.BufferLoad(partial, at(bound)),
            [substitute(i, mapping(bound)) for i in stage.store.indices],
        ),
    )
    nest: Any = tirx.SeqStmt([update, store])
    for axis in reversed([*axes, nt]):
        nest = axis.around(nest)
    return [nest]


def _lane_reduction(row: _Row, stage: Stage, count: int, reducer) -> list:
    _, _, element = reducer
    last = stage.reduce[-1]
    size = extent(last)
    lanes = vector_lanes(size, row.lanes)
    groups = size // lanes
    vectors = max(d for d in range(1, _MAX_PARTIALS + 1) if groups % d == 0)
    dtype = str(stage.store.buffer.dtype)
    identity = stage.block.init.value
    outer = [row.axis(f"r{i}", iv.dom.extent) for i, iv in enumerate(stage.reduce[:-1])]
    step, nu, nl = row.axis("rk", groups // vectors), row.axis("nu", vectors), row.axis("nl", lanes)
    partial = row.local([vectors, lanes], dtype, stage.name + "_lanes")

    def mapping(bound):
        made = _base_mapping(row, stage, bound)
        made.update({iv.var: tirx.const(0, row.dtype) for iv in list(stage.spatial)[count:]})
        made.update({iv.var: bound[a.name] for iv, a in zip(stage.reduce[:-1], outer) if a.name in bound})
        return made

    def update(bound):
        k = (bound["rk"] * vectors + bound["nu"]) * lanes + bound["nl"]
        value = substitute(element, {**mapping(bound), last.var: k})
        at = [*row.at(bound), bound["nu"], bound["nl"]]
        return tirx.BufferStore(partial, combine(reducer, tirx.BufferLoad(partial, at), value), at)

    def init(bound):
        return tirx.BufferStore(partial, identity, [*row.at(bound), bound["nu"], bound["nl"]])

    reduce_names = {a.name for a in [*outer, step]}
    nests = [row.block(stage.name, [*outer, step, nu, nl], reduce_names, update, init)]
    nests += _fold(row, stage, reducer, partial, vectors, lanes, lambda bound: mapping(bound))
    return _with_tail(row, stage, count, reducer, nests, size - size % lanes if size % lanes else size, outer)


def _fold(row: _Row, stage: Stage, reducer, partial, vectors: int, lanes: int, mapping) -> list:
    """Combine the partial vectors into one, then halve it down to the result."""
    dtype = str(partial.dtype)
    nests = []

    def fold_vectors(bound):
        value = tirx.BufferLoad(partial, [*row.at(bound), tirx.const(0, row.dtype), bound["nl"]])
        for u in range(1, vectors):
            other = tirx.BufferLoad(partial, [*row.at(bound), tirx.const(u, row.dtype), bound["nl"]])
            value = combine(reducer, value, other)
        return tirx.BufferStore(folded, value, [*row.at(bound), bound["nl"]])

    folded = row.local([lanes], dtype, stage.name + "_vector")
    nests.append(row.block(stage.name + "_fold", [row.axis("nl", lanes)], set(), fold_vectors))
    width = lanes
    while width > 1:
        width //= 2
        source = folded
        final = width == 1

        def halve(bound, source=source, width=width, final=final):
            base = row.at(bound)
            lane = tirx.const(0, row.dtype) if final else bound["nl"]
            value = combine(
                reducer,
                tirx.BufferLoad(source, [*base, lane]),
                tirx.BufferLoad(source, [*base, lane + width]),
            )
            if final:
                return tirx.BufferStore(
                    stage.store.buffer, value, [substitute(i, mapping(bound)) for i in stage.store.indices]
                )
            return tirx.BufferStore(folded, value, [*base, lane])

        axes = [] if final else [row.axis("nl", width)]
        if not final:
            folded = row.local([width], dtype, f"{stage.name}_half{width}")
        nests.append(row.block(f"{stage.name}_half{width}", axes, set(), halve))
    return nests


def _with_tail(row: _Row, stage: Stage, count: int, reducer, nests: list, main: int, outer) -> list:
    """Add the elements that fill no vector, one by one."""
    _, _, element = reducer
    last = stage.reduce[-1]
    rest = extent(last) - main
    if not rest:
        return nests
    fresh = [row.axis(a.name + "t", a.size) for a in outer]
    step = row.axis("rt", rest)

    def body(bound):
        made = _base_mapping(row, stage, bound)
        made.update({iv.var: tirx.const(0, row.dtype) for iv in list(stage.spatial)[count:]})
        made.update({iv.var: bound[a.name] for iv, a in zip(stage.reduce[:-1], fresh)})
        value = substitute(element, {**made, last.var: bound["rt"] + main})
        at = [substitute(i, made) for i in stage.store.indices]
        own = tirx.BufferLoad(stage.store.buffer, at)
        return tirx.BufferStore(stage.store.buffer, combine(reducer, own, value), at)

    names = {a.name for a in [*fresh, step]}
    nests.append(row.block(stage.name + "_tail", [*fresh, step], names, body))
    return nests


def _product(sizes) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
