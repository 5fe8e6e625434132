"""Rebuild the anchor of a kernel, and what follows it, in register tiles.

Two spatial axes are tiled: ``n``, the contiguous one, by ``vectors`` groups of
``lanes`` elements, and ``m``, along which one loaded vector is used again.  An
extent that a tile does not divide is covered by letting the last tile start
early, so that it overlaps its neighbour and writes the same values twice: no
tail loop, no mask, no padding.  The accumulator is addressed in tile
coordinates, so that overlapping tiles never share one.

A symbolic ``m`` extent cannot promise a full tile: rows past the end are read
and written as the last row instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

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


@dataclass(frozen=True)
class Tiling:
    """Which iterators of the anchor are tiled, by position among the spatial ones.

    ``m`` lists adjacent positions that are walked as one axis; ``rows`` > 0
    also blocks axis ``row_axis`` so that padding can be computed per block.
    """

    n: int
    lanes: int
    vectors: int = 1
    m: tuple[int, ...] = ()
    size: int = 1
    row_axis: int | None = None
    rows: int = 0
    n_inside: bool = False


class LoopAxis:
    """A loop with its fresh variable and the block iterator bound to it."""

    def __init__(self, name: str, size, dtype: str):
        self.name = name
        self.dtype = dtype if isinstance(size, int) else str(size.ty.dtype)
        self.size = tirx.const(size, dtype) if isinstance(size, int) else size
        self.loop_var = tirx.Var(name, self.dtype)

    def iterator(self, kind: int):
        var = tirx.Var("v_" + self.name, self.dtype)
        return tirx.IterVar(tvm.ir.Range(tirx.const(0, self.dtype), self.size), var, kind)

    def around(self, body, loop_var=None):
        zero = tirx.const(0, self.dtype)
        var = self.loop_var if loop_var is None else loop_var
        return tirx.For(var, zero, self.size, tirx.ForKind.SERIAL, body)


def vector_lanes(size: int | None, widest: int) -> int:
    """Return the widest power-of-two vector that fits in ``size`` elements."""
    lanes = 1
    while size is not None and lanes * 2 <= min(size, widest):
        lanes *= 2
    return lanes


def tile_start(index, step: int, size: int, whole: int):
    """Return where tile ``index`` starts: ``step`` apart, the last one ending at ``whole``."""
    start = index * step
    return start if whole % step == 0 and size == step else tirx.min(start, whole - size)


def fused_epilogue(parts: list[Stage], anchor: Stage) -> Stage | None:
    """Return the stage right after the anchor if it alone reads it, point by point."""
    target = anchor.store.buffer
    index = parts.index(anchor)
    readers = [p for p in parts[index + 1 :] if any(x.source.same_as(target) for x in loads(p.block.body))]
    if len(readers) != 1 or readers[0] is not parts[index + 1] or readers[0].reduce:
        return None
    reader = readers[0]
    if len(reader.spatial) != len(anchor.spatial):
        return None
    for load in loads(reader.block.body):
        if not load.source.same_as(target):
            continue
        for index_, iv, dim in zip(load.indices, reader.spatial, target.shape):
            if not (isinstance(index_, tirx.Var) and index_.same_as(iv.var)) and not (
                as_int(index_) == 0 and as_int(dim) == 1
            ):
                return None
    same = all(str(a.dom.extent) == str(b.dom.extent) for a, b in zip(reader.spatial, anchor.spatial))
    return reader if same else None


def tile_anchor(func, anchor_name: str, tiling: Tiling):
    """Return ``func`` with its anchor and fused epilogue as one tiled loop nest.

    The anchor's block keeps its name; the epilogue's becomes ``<anchor>_store``.
    Loops, outermost first: the untiled ones, row blocks, ``nt``, rows, ``mt``; inside the
    reduction loops and then ``ml``, ``nu``, ``nl``.  Other stages are kept.
    """
    parts = stages(func)
    anchor = next(p for p in parts if p.name == anchor_name)
    epilogue = fused_epilogue(parts, anchor)
    builder = _Builder(anchor, tiling)
    nest, local = builder.nest(anchor, epilogue)
    root = root_block(func)
    body_parts = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    position = parts.index(anchor)
    body_parts[position] = nest
    buffers = [local]
    if epilogue is not None:
        del body_parts[position + 1]
    old = anchor.store.buffer
    buffers += [b for b in root.alloc_buffers if epilogue is None or not b.same_as(old)]
    body = tirx.SeqStmt(body_parts) if len(body_parts) > 1 else body_parts[0]
    block = s_tir.SBlock([], [], [], "root", body, None, buffers)
    return func.with_body(s_tir.SBlockRealize([], True, block))


class _Builder:
    def __init__(self, anchor: Stage, tiling: Tiling):
        self.anchor, self.tiling = anchor, tiling
        spatial = anchor.spatial
        self.dtype = str(spatial[0].var.ty.dtype)
        self.outer = [
            LoopAxis(f"s{i}", iv.dom.extent, self.dtype)
            for i, iv in enumerate(spatial)
            if i != tiling.n and i not in tiling.m and i != (tiling.row_axis if tiling.rows else None)
        ]
        self.outer_positions = [
            i
            for i in range(len(spatial))
            if i != tiling.n and i not in tiling.m and i != (tiling.row_axis if tiling.rows else None)
        ]
        self._n_axis(spatial[tiling.n])
        self._m_axis([spatial[i] for i in tiling.m])
        self._row_axis()

    def _n_axis(self, iv):
        size, t = extent(iv), self.tiling
        if size is None:
            self.lanes, self.groups, self.n_size = 1, iv.dom.extent, None
            self.vectors, tiles = 1, iv.dom.extent
        else:
            self.lanes = vector_lanes(size, t.lanes)
            self.groups = -(-size // self.lanes)
            self.vectors = min(t.vectors, self.groups)
            tiles, self.n_size = -(-self.groups // self.vectors), size
        self.nt = LoopAxis("nt", tiles, self.dtype)
        self.nu = LoopAxis("nu", self.vectors, self.dtype)
        self.nl = LoopAxis("nl", self.lanes, self.dtype)

    def n_group(self, nt, nu):
        """Return the number of the vector that (nt, nu) is."""
        if self.n_size is None:
            return nt
        return tile_start(nt, self.vectors, self.vectors, self.groups) + nu

    def n_value(self, nt, nu, nl):
        if self.n_size is None:
            return nt
        group = self.n_group(nt, nu)
        start = group * self.lanes
        if self.n_size % self.lanes:
            start = tirx.min(start, self.n_size - self.lanes)
        return start + nl

    def _m_axis(self, ivs):
        sizes = [extent(iv) for iv in ivs]
        self.m_ivs, self.m_whole = ivs, None
        if not ivs:
            self.size, tiles = 1, 1
        elif None in sizes:
            self.size = self.tiling.size
            whole = ivs[0].dom.extent
            tiles = tirx.floordiv(whole + (self.size - 1), self.size)
        else:
            self.m_whole = 1
            for s in sizes:
                self.m_whole *= s
            self.size = min(self.tiling.size, self.m_whole)
            tiles = -(-self.m_whole // self.size)
        self.mt = LoopAxis("mt", tiles, self.dtype)
        self.ml = LoopAxis("ml", self.size, self.dtype)

    def m_values(self, mt, ml) -> list:
        """Return the values of the iterators that the ``m`` axis stands for."""
        if not self.m_ivs:
            return []
        if self.m_whole is None:
            return [tirx.min(mt * self.size + ml, self.m_ivs[0].dom.extent - 1)]
        flat = tile_start(mt, self.size, self.size, self.m_whole) + ml
        values: list = []
        for iv in reversed(self.m_ivs[1:]):
            values.insert(0, tirx.floormod(flat, extent(iv)))
            flat = tirx.floordiv(flat, extent(iv))
        return [flat, *values]

    def _row_axis(self):
        t = self.tiling
        self.ht = self.hl = None
        if t.rows:
            self.h_size = extent(self.anchor.spatial[t.row_axis])
            self.rows = min(t.rows, self.h_size)
            self.ht = LoopAxis("ht", -(-self.h_size // self.rows), self.dtype)
            self.hl = LoopAxis("hl", self.rows, self.dtype)

    def spatial_axes(self) -> list[LoopAxis]:
        """Return the loops outside the reduction, outermost first."""
        axes = list(self.outer)
        middle = [self.nt] if not self.tiling.n_inside else []
        tail = [self.nt] if self.tiling.n_inside else []
        if self.ht is None:
            # The channel tile goes outside the image so that its weights stay in cache.
            return middle + axes + [self.mt] + tail if middle else axes + [self.mt] + tail
        return axes + [self.ht] + middle + [self.hl, self.mt] + tail

    def values(self, bound: dict) -> dict[Any, Any]:
        """Map the anchor's spatial positions to expressions over new iterators."""
        result = {p: bound[a.name] for p, a in zip(self.outer_positions, self.outer)}
        result[self.tiling.n] = self.n_value(bound["nt"], bound["nu"], bound["nl"])
        for p, value in zip(self.tiling.m, self.m_values(bound["mt"], bound["ml"])):
            result[p] = value
        if self.ht is not None:
            start = tile_start(bound["ht"], self.rows, self.rows, self.h_size)
            result[self.tiling.row_axis] = start + bound["hl"]
        return result

    def nest(self, anchor: Stage, epilogue: Stage | None):
        outside, inside = self.spatial_axes(), [self.ml, self.nu, self.nl]
        old = anchor.store.buffer
        local = tirx.decl_buffer(
            [a.size for a in outside + inside], old.dtype, old.name + "_tile", scope="local"
        )
        reduce_axes = [LoopAxis(f"r{i}", iv.dom.extent, self.dtype) for i, iv in enumerate(anchor.reduce)]
        update = self._update(anchor, local, outside, inside, reduce_axes)
        store = self._store(anchor, epilogue, local, outside, inside)
        body = tirx.SeqStmt([update, store])
        for axis in reversed(outside):
            body = axis.around(body)
        return body, local

    def _update(self, anchor, local, outside, inside, reduce_axes):
        spatial = {a.name: a.iterator(SPATIAL) for a in outside + inside}
        bound = {name: iv.var for name, iv in spatial.items()}
        reduce = [a.iterator(REDUCE) for a in reduce_axes]
        mapping = {iv.var: self.values(bound)[i] for i, iv in enumerate(anchor.spatial)}
        mapping.update({old.var: new.var for old, new in zip(anchor.reduce, reduce)})
        at = [bound[a.name] for a in outside + inside]
        store = self._retarget(anchor, anchor.block.body, mapping, local, at, bound)
        init = self._retarget(anchor, anchor.block.init, mapping, local, at, bound)
        order = [*outside, *reduce_axes, *inside]
        ivs = [spatial[a.name] for a in outside] + reduce + [spatial[a.name] for a in inside]
        block = s_tir.SBlock(
            ivs,
            regions((x.source, x.indices) for x in loads(store.value) if not x.source.same_as(local)),
            regions([(local, at)]),
            anchor.name,
            store,
            init,
        )
        body = s_tir.SBlockRealize([a.loop_var for a in order], True, block)
        for axis in reversed([*reduce_axes, *inside]):
            body = axis.around(body)
        return body

    def _retarget(self, anchor, store, mapping, local, at, bound):
        """Rewrite a store into the accumulator, packed weights read at their vector."""
        n_var, old = anchor.spatial[self.tiling.n].var, anchor.store.buffer
        import tvm_ffi

        def load(node):
            if node.source.same_as(old):
                return tirx.BufferLoad(local, at)
            if is_packed(node, n_var):
                indices = [substitute(i, mapping) for i in list(node.indices)[1:-1]]
                return tirx.BufferLoad(
                    node.source, [self.n_group(bound["nt"], bound["nu"]), *indices, bound["nl"]]
                )
            return node

        value = tvm_ffi.structural_map(store.value, [(tvm.ir.TensorLoad, load)], order="post")
        return tirx.BufferStore(local, substitute(value, mapping), at)

    def _store(self, anchor, epilogue, local, outside, inside):
        spatial = {a.name: a.iterator(SPATIAL) for a in outside + inside}
        bound = {name: iv.var for name, iv in spatial.items()}
        values = self.values(bound)
        at = [bound[a.name] for a in outside + inside]
        accumulated = tirx.BufferLoad(local, at)
        if epilogue is None:
            indices = [values[i] for i in range(len(anchor.spatial))]
            mapping = {iv.var: v for iv, v in zip(anchor.spatial, indices)}
            target = [substitute(i, mapping) for i in anchor.store.indices]
            store = tirx.BufferStore(anchor.store.buffer, accumulated, target)
        else:
            import tvm_ffi

            old = anchor.store.buffer
            mapping = {iv.var: values[i] for i, iv in enumerate(epilogue.spatial)}
            value = tvm_ffi.structural_map(
                epilogue.store.value,
                [(tvm.ir.TensorLoad, lambda x: accumulated if x.source.same_as(old) else x)],
                order="post",
            )
            target = [substitute(i, mapping) for i in epilogue.store.indices]
            store = tirx.BufferStore(epilogue.store.buffer, substitute(value, mapping), target)
        axes = outside + inside
        block = s_tir.SBlock(
            [spatial[a.name] for a in axes],
            regions((x.source, x.indices) for x in loads(store.value)),
            regions([(store.buffer, store.indices)]),
            anchor.name + "_store",
            store,
        )
        fresh = {a.name: tirx.Var(a.name, self.dtype) for a in inside}
        values_ = [a.loop_var for a in outside] + [fresh[a.name] for a in inside]
        body = s_tir.SBlockRealize(values_, True, block)
        for axis in reversed(inside):
            body = axis.around(body, fresh[axis.name])
        return body


def is_packed(load, n_var) -> bool:
    """Is this a weight laid out as [vector, ..., lane] along ``n_var``?"""
    indices = list(load.indices)
    return len(indices) > 2 and n_var in variables(indices[0]) and n_var in variables(indices[-1])
