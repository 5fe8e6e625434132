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

import math
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.kernels import contraction_operands
from tvmpass.core.nest import Stage, as_int, extent, loads, root_block, stages, substitute, variables

from .emit import Emitter, LoopAxis, VectorAxis, around, sequence, statements, tile_start, with_statements
from .injective import unravel, vector_nest
from .inline import is_guarded

_OTHER_VECTORS = 4


@dataclass(frozen=True)
class Tiling:
    """Which iterators of the anchor are tiled, by position among the spatial ones.

    ``m`` lists adjacent positions that are walked as one axis; ``rows`` > 0
    also blocks axis ``row_axis`` so that padding can be computed per block.
    With ``rows_first`` all channel tiles of one ``m`` tile follow one another.
    """

    n: int
    lanes: int
    vectors: int = 1
    m: tuple[int, ...] = ()
    size: int = 1
    row_axis: int | None = None
    rows: int = 0
    rows_first: bool = False


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

    The anchor's block keeps its name; the store becomes ``<anchor>_store``.
    Loops, outermost first: ``nt``, the untiled ones, ``mt`` (with row blocks: the
    untiled ones, ``ht``, ``nt``, ``hl``, ``mt``); inside the reduction loops and
    then ``ml``, ``nu``, ``nl``.  Other injective stages get vectors, padding is kept.
    """
    stage_list = stages(func)
    anchor = next(stage for stage in stage_list if stage.name == anchor_name)
    epilogue = fused_epilogue(stage_list, anchor)
    tile = _Tile(anchor, tiling)
    position = stage_list.index(anchor)
    parts = statements(func)
    for i, stage in enumerate(stage_list):
        plain = not stage.reduce and stage.spatial and stage.store is not None
        if plain and stage is not epilogue and not is_guarded(stage.block):
            parts[i] = vector_nest(Emitter([], tile.dtype), stage, tiling.lanes, _OTHER_VECTORS)
    parts[position : position + (1 if epilogue is None else 2)] = [tile.nest(epilogue)]
    old = anchor.store.buffer
    kept = [b for b in root_block(func).alloc_buffers if epilogue is None or not b.same_as(old)]
    return with_statements(func, parts, [*tile.emitter.buffers, *kept])


class _Tile:
    """The axes of one tiled anchor, and the two blocks inside them."""

    def __init__(self, anchor: Stage, tiling: Tiling):
        self.anchor, self.tiling = anchor, tiling
        spatial = anchor.spatial
        self.dtype = str(spatial[0].var.ty.dtype)
        taken = {tiling.n, *tiling.m, *([tiling.row_axis] if tiling.rows else [])}
        self.plain = {
            i: LoopAxis(f"s{i}", iv.dom.extent, self.dtype) for i, iv in enumerate(spatial) if i not in taken
        }
        self._set_n(spatial[tiling.n])
        self._set_m([spatial[i] for i in tiling.m])
        self._set_rows()
        self.inside = [self.ml, self.nu, self.nl]
        self.emitter = Emitter(self._outside(), self.dtype)

    def _set_n(self, iv):
        size = extent(iv)
        self.vector = None
        if size is None:
            self.nt = LoopAxis("nt", iv.dom.extent, self.dtype)
            self.nu, self.nl = LoopAxis("nu", 1, self.dtype), LoopAxis("nl", 1, self.dtype)
        else:
            self.vector = VectorAxis(size, self.tiling.lanes, self.tiling.vectors, self.dtype)
            self.nt, self.nu, self.nl = self.vector.nt, self.vector.nu, self.vector.nl

    def _set_m(self, ivs):
        sizes = [extent(iv) for iv in ivs]
        self.m_ivs, self.m_whole, self.m_size, tiles = ivs, None, self.tiling.size, 1
        if None in sizes:
            tiles = tirx.floordiv(ivs[0].dom.extent + (self.m_size - 1), self.m_size)
        else:
            self.m_whole = math.prod(sizes)
            self.m_size = min(self.m_size, self.m_whole)
            tiles = -(-self.m_whole // self.m_size)
        self.mt = LoopAxis("mt", tiles, self.dtype)
        self.ml = LoopAxis("ml", self.m_size, self.dtype)

    def _set_rows(self):
        self.ht = self.hl = None
        if self.tiling.rows:
            self.h_size = extent(self.anchor.spatial[self.tiling.row_axis])
            self.h_step = min(self.tiling.rows, self.h_size)
            self.ht = LoopAxis("ht", -(-self.h_size // self.h_step), self.dtype)
            self.hl = LoopAxis("hl", self.h_step, self.dtype)

    def _outside(self) -> list[LoopAxis]:
        """Return the loops outside the reduction, outermost first.

        The channel tile goes outside the image so that its weights stay in
        cache, but inside a block of rows, which is padded once for all channels.
        """
        plain = list(self.plain.values())
        if self.ht is None:
            return [*plain, self.mt, self.nt] if self.tiling.rows_first else [self.nt, *plain, self.mt]
        return [*plain, self.ht, self.nt, self.hl, self.mt]

    def values(self, bound: dict) -> dict:
        """Map the anchor's spatial variables to expressions over new iterators."""
        spatial = self.anchor.spatial
        made = {spatial[i].var: bound[axis.name] for i, axis in self.plain.items()}
        n = spatial[self.tiling.n].var
        made[n] = bound["nt"] if self.vector is None else self.vector.value(bound)
        if self.m_ivs and self.m_whole is None:
            row = bound["mt"] * self.m_size + bound["ml"]
            made[self.m_ivs[0].var] = tirx.min(row, self.m_ivs[0].dom.extent - 1)
        elif self.m_ivs:
            made.update(unravel(self.m_ivs, tile_start(bound["mt"], self.m_size, self.m_whole) + bound["ml"]))
        if self.ht is not None:
            row = tile_start(bound["ht"], self.h_step, self.h_size) + bound["hl"]
            made[spatial[self.tiling.row_axis].var] = row
        return made

    def nest(self, epilogue: Stage | None):
        """Return the loops around the accumulation and the store of one tile."""
        old = self.anchor.store.buffer
        local = self.emitter.local(self.inside, accumulator_dtype(self.anchor), old.name + "_tile")
        return around(
            self.emitter.axes,
            sequence([self._accumulate(local), self._store(epilogue or self.anchor, local)]),
        )

    def _accumulate(self, local):
        anchor = self.anchor
        steps = [LoopAxis(f"r{i}", iv.dom.extent, self.dtype) for i, iv in enumerate(anchor.reduce)]

        def retarget(store):
            def body(bound):
                mapping = self.values(bound)
                mapping.update({iv.var: bound[axis.name] for iv, axis in zip(anchor.reduce, steps)})
                at = self.emitter.at(bound, self.inside)
                value = _widened(anchor, store.value, tirx.BufferLoad(local, at))
                value = self._read(value, local, at, mapping, bound)
                return tirx.BufferStore(local, substitute(value, mapping), at)

            return body

        names = {axis.name for axis in steps}
        axes = [*steps, *self.inside]
        return self.emitter.block(
            anchor.name, axes, retarget(anchor.store), retarget(anchor.block.init), names
        )

    def _read(self, value, local, at, mapping, bound):
        """Read the accumulator from the tile, and packed weights at their own vector."""
        n, old = self.anchor.spatial[self.tiling.n].var, self.anchor.store.buffer

        def load(node):
            if node.source.same_as(old):
                return tirx.BufferLoad(local, at)
            if self.vector is not None and is_packed(node, n):
                inner = [substitute(i, mapping) for i in list(node.indices)[1:-1]]
                return tirx.BufferLoad(node.source, [self.vector.group(bound), *inner, bound["nl"]])
            return node

        return tvm_ffi.structural_map(value, [(tvm.ir.TensorLoad, load)], order="post")

    def _store(self, stage: Stage, local):
        """Return the block that stores a tile: the epilogue on it, or the tile as it is."""
        fresh = [LoopAxis(axis.name, axis.size, self.dtype) for axis in self.inside]
        old = self.anchor.store.buffer

        def body(bound):
            values = self.values(bound)
            mapping = {iv.var: values[own.var] for iv, own in zip(stage.spatial, self.anchor.spatial)}
            accumulated = tirx.BufferLoad(local, self.emitter.at(bound, self.inside))
            if local.dtype != old.dtype:
                accumulated = accumulated.astype(str(old.dtype))
            value = accumulated
            if stage is not self.anchor:
                swap = lambda x: accumulated if x.source.same_as(old) else x  # noqa: E731
                value = tvm_ffi.structural_map(stage.store.value, [(tvm.ir.TensorLoad, swap)], order="post")
                value = substitute(value, mapping)
            return tirx.BufferStore(
                stage.store.buffer, value, [substitute(i, mapping) for i in stage.store.indices]
            )

        return self.emitter.block(self.anchor.name + "_store", fresh, body)


def accumulator_dtype(anchor: Stage) -> str:
    """Return the dtype of the sums: float32 for products of half-precision numbers.

    Rounding every partial sum to half precision costs accuracy and, on CPUs
    without half-precision arithmetic, two conversions per step.
    """
    dtype = str(anchor.store.buffer.dtype)
    half = dtype in ("float16", "bfloat16") and contraction_operands(anchor) is not None
    return "float32" if half else dtype


def _widened(anchor: Stage, value, own):
    """Return the anchor's update or start value with its sums in the dtype of ``own``, their load."""
    dtype = str(own.ty.dtype)
    if str(anchor.store.buffer.dtype) == dtype:
        return value
    if not any(load.source.same_as(anchor.store.buffer) for load in loads(value)):
        return value.astype(dtype)
    a, b = contraction_operands(anchor)
    return own + a.astype(dtype) * b.astype(dtype)


def is_packed(load, n_var) -> bool:
    """Is this a weight laid out as [vector, ..., lane] along ``n_var``?"""
    indices = list(load.indices)
    return len(indices) > 2 and n_var in variables(indices[0]) and n_var in variables(indices[-1])
