"""What tiled products share: loops over output tiles, and the guarded store of a result."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from schedules.cpu.emit import Emitter, LoopAxis, statements, with_statements
from schedules.cpu.tile import fused_epilogue
from tvmpass.core.nest import as_int, root_block, stages, substitute

from .contraction import Contraction, read_contraction
from .launch import THREADS, at_least_one
from .panels import make_panel, prefers_k_last, tiles_of, within
from .vector_width import VECTOR_BYTES, itemsize, vector_width

MAX_GRID_YZ = 65535
_LANES = 4


@dataclass(frozen=True)
class TileSize:
    """The part of the output one thread block computes, ``k`` deep per step."""

    m: int
    n: int
    k: int


class Frame:
    """The loops over the output tiles of an anchor, its panels, and its store."""

    def __init__(self, func, anchor_name: str, tile: TileSize):
        self.func, self.tile = func, tile
        self.stages = stages(func)
        self.anchor = next(stage for stage in self.stages if stage.name == anchor_name)
        self.product: Contraction = read_contraction(self.anchor)
        self.epilogue = sole_epilogue(func, self.stages, self.anchor)
        self.dtype = self.product.dtype
        self.b = self.axis("b", at_least_one(self.product.batch.size))
        self.mo = self.axis("mo", tiles_of(self.product.m.size, tile.m))
        self.no = self.axis("no", tiles_of(self.product.n.size, tile.n))
        self.ko = self.axis("ko", tiles_of(self.product.k.size, tile.k))
        k_last = [prefers_k_last(self.product, side) for side in ("lhs", "rhs")]
        self.lhs = make_panel(self.product, "lhs", tile.m, tile.k, k_last[0])
        self.rhs = make_panel(self.product, "rhs", tile.n, tile.k, k_last[1])

    def axis(self, name: str, size) -> LoopAxis:
        """Return a loop in the dtype of the anchor's loops."""
        return LoopAxis(name, size, self.dtype)

    @property
    def grid(self) -> list[LoopAxis]:
        """Return the loops over output tiles, outermost first."""
        return [self.b, self.mo, self.no]

    def store(self, emitter: Emitter, axes: list[LoopAxis], place, read):
        """Return the nest that stores a tile through the epilogue.

        ``place`` maps {loop name: variable} to the row and column within the
        tile, ``read`` to the load of the finished sum there.
        """
        stage = self.epilogue or self.anchor
        old = self.anchor.store.buffer

        def body(bound):
            m, n = self._position(bound, place)
            values = self.product.at(bound["b"], m, n)
            mapping = {iv.var: values[own.var] for iv, own in zip(stage.spatial, self.anchor.spatial)}
            total = read(bound)
            if str(total.ty.dtype) != str(old.dtype):
                total = total.astype(str(old.dtype))
            value = total
            if stage is not self.anchor:
                swap = lambda load: total if load.source.same_as(old) else load  # noqa: E731
                value = tvm_ffi.structural_map(stage.store.value, [(tvm.ir.TensorLoad, swap)], order="post")
                value = substitute(value, mapping)
            indices = [substitute(index, mapping) for index in stage.store.indices]
            return tirx.BufferStore(stage.store.buffer, value, indices)

        loops = {axis.name: axis.loop_var for axis in (*emitter.axes, *axes)}
        m, n = self._position(loops, place)
        sizes = self.product.m.size, self.product.n.size
        inside = within(loops["b"], self.product.batch.size, 1)
        inside += within(m, sizes[0], self.tile.m) + within(n, sizes[1], self.tile.n)
        return guarded(emitter.block(self.anchor.name + "_store", axes, body), inside)

    def _position(self, bound, place):
        row, column = place(bound)
        return bound["mo"] * self.tile.m + row, bound["no"] * self.tile.n + column

    def finish(self, nest, buffers) -> tirx.PrimFunc:
        """Return the function with the panels and ``nest`` in place of the anchor and its epilogue."""
        parts = statements(self.func)
        position = self.stages.index(self.anchor)
        taken = 1 if self.epilogue is None else 2
        parts[position : position + taken] = [self.lhs.nest, self.rhs.nest, nest]
        old = self.anchor.store.buffer
        kept = [b for b in root_block(self.func).alloc_buffers if self.epilogue is None or not b.same_as(old)]
        return with_statements(self.func, parts, [self.lhs.buffer, self.rhs.buffer, *buffers, *kept])

    def bind_others(self, schedule: s_tir.Schedule) -> None:
        """Give every result of the stages that the store could not take in a thread of its own."""
        for stage in self.stages[self.stages.index(self.anchor) + 1 :]:
            if stage is not self.epilogue:
                bind_results(schedule, schedule.get_sblock(stage.name))


def sole_epilogue(func, parts, anchor):
    """Return the stage that the anchor's sums go to, None where they are also asked for themselves."""
    escapes = any(anchor.store.buffer.same_as(param) for param in func.params)
    return None if escapes else fused_epilogue(parts, anchor)


def bind_results(schedule: s_tir.Schedule, block) -> None:
    """Give a thread to every result of a block, or to every vector of them where that is one access."""
    loops = schedule.get_loops(block) or [schedule.add_unit_loop(block)]
    node, last = schedule.get(block), as_int(schedule.get(loops[-1]).extent)
    lanes = 1
    if node.iter_vars and last is not None:
        widest = max(1, min(_LANES, VECTOR_BYTES // itemsize(str(node.body.buffer.dtype))))
        lanes = vector_width(node, node.iter_vars[-1].var, last, widest)
    if lanes > 1:
        outer, inner = schedule.split(loops[-1], [None, lanes])
        schedule.vectorize(inner)
        loops = [*loops[:-1], outer]
    blocks, threads = schedule.split(schedule.fuse(*loops), [None, THREADS])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")


def guarded(nest, conditions: list):
    """Return a nest whose block only runs where all conditions on its loops hold."""
    if not conditions:
        return nest
    predicate = tirx.all(*conditions)
    swap = lambda node: s_tir.SBlockRealize(node.iter_values, predicate, node.block)  # noqa: E731
    return tvm_ffi.structural_map(nest, [(s_tir.SBlockRealize, swap)], order="post")


def bind_grid(schedule, loops) -> None:
    """Bind the loops over batch, row tiles and column tiles to the grid.

    Row tiles go along x, which has no practical limit; where an extent is too large
    for y or z, or not known, all three are joined along x.
    """
    batch, rows, columns = loops
    sizes = [as_int(schedule.get(loop).extent) for loop in loops]
    if any(size is None or size > MAX_GRID_YZ for size in (sizes[0], sizes[2])):
        schedule.bind(schedule.fuse(*loops), "blockIdx.x")
        return
    schedule.bind(batch, "blockIdx.z")
    schedule.bind(columns, "blockIdx.y")
    schedule.bind(rows, "blockIdx.x")
