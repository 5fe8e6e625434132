"""Tiles for products on tensor cores: a block of warps per output tile."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from schedules.cpu.emit import Emitter, around, sequence
from schedules.cpu.loops import find_nest
from tvmpass.core.cuda_arch import WARP

from . import wmma
from .frame import Frame, TileSize, bind_grid
from .panels import Panel
from .staging import pad_rows

STORE_LANES = 4
"""Neighbouring results one thread stores at a time, where the output allows."""

BANK_PAD_BYTES = 16
"""Between rows of the tile in shared memory, so that their starts fall on different banks."""

_THREADS = {"wm": "threadIdx.y", "wn": "threadIdx.z", "lane": "threadIdx.x"}


@dataclass(frozen=True)
class Warps:
    """The warps of a thread block, ``m`` along the rows of its tile and ``n`` along the columns."""

    m: int
    n: int


def tile_warps(func, anchor_name: str, tile: TileSize, warps: Warps) -> s_tir.Schedule:
    """Return a schedule of ``func`` with its anchor in block, warp and fragment tiles.

    Loops, outermost first: ``b``, ``mo``, ``no`` on the grid, ``wm``, ``wn`` on the warps;
    inside ``ko`` over the panels, ``ks`` over their fragments, ``fm``, ``fn`` over the
    fragments of a warp.  Sums stay in fragments, go through shared memory once,
    and are stored through the epilogue by all threads.
    """
    frame = Frame(func, anchor_name, tile)
    parts = _Fragments(frame, warps)
    nest = around(frame.grid, sequence([parts.compute(), parts.store()]))
    schedule = s_tir.Schedule(frame.finish(nest, parts.buffers))
    bind_grid(schedule, schedule.get_loops(schedule.get_sblock(anchor_name))[:3])
    for name in (anchor_name, anchor_name + "_store"):
        loops = schedule.get_loops(schedule.get_sblock(name))
        for loop in loops:
            tag = _THREADS.get(schedule.get(loop).loop_var.name)
            if tag is not None:
                schedule.bind(loop, tag)
    pad_rows(schedule, schedule.get_sblock(anchor_name + "_tile"), BANK_PAD_BYTES)
    frame.bind_others(schedule)
    return schedule


class _Fragments:
    """The blocks of one output tile on tensor cores, and their buffers."""

    def __init__(self, frame: Frame, warps: Warps):
        self.frame, self.warps = frame, warps
        self.emitter = Emitter([*frame.grid, *self._warp_axes()], frame.dtype)
        self.name = frame.anchor.name
        self.rows, self.columns = frame.tile.m // warps.m, frame.tile.n // warps.n
        side = wmma.SIDE
        self.fm, self.fn = frame.axis("fm", self.rows // side), frame.axis("fn", self.columns // side)
        self.accumulator = frame.product.accumulator
        sums = [*(axis.size for axis in self.emitter.axes), self.rows, self.columns]
        self.sums = tirx.decl_buffer(sums, self.accumulator, self.name + "_sums", scope="wmma.accumulator")
        grid = [axis.size for axis in frame.grid]
        tile = [*grid, frame.tile.m, frame.tile.n]
        self.tile = tirx.decl_buffer(tile, self.accumulator, self.name + "_tile", scope="shared.dyn")
        self.buffers = [self.sums, self.tile]

    def _warp_axes(self):
        return [self.frame.axis("wm", self.warps.m), self.frame.axis("wn", self.warps.n)]

    def compute(self):
        """Return the nest in which every warp computes its part of the tile."""
        return around(self.emitter.axes[-2:], sequence([self._multiply(), self._gather()]))

    def _multiply(self):
        """Return the loops over k: fragments loaded, multiplied and added up."""
        frame, side = self.frame, wmma.SIDE
        steps = [frame.ko, frame.axis("ks", frame.tile.k // side)]
        inner = self.emitter.inside(steps)
        left, left_at = self._load(inner, frame.lhs, "a", "wm", "mo", self.rows)
        right, right_at = self._load(inner, frame.rhs, "b", "wn", "no", self.columns)
        axes = [self.fm, self.fn, *(frame.axis(name, side) for name in ("i", "j", "k"))]
        dtype = self.accumulator

        def update(bound):
            at = self._sum_at(bound)
            a = left_at(bound, bound["fm"] * side + bound["i"], bound["k"]).astype(dtype)
            b = right_at(bound, bound["fn"] * side + bound["j"], bound["k"]).astype(dtype)
            return tirx.BufferStore(self.sums, tirx.BufferLoad(self.sums, at) + a * b, at)

        def start(bound):
            return tirx.BufferStore(self.sums, tirx.const(0, dtype), self._sum_at(bound))

        product = inner.block(self.name, axes, update, start, {"ko", "ks", "k"})
        return around(steps, sequence([left, right, product]))

    def _load(self, emitter: Emitter, panel: Panel, side: str, warp: str, tile: str, extent: int):
        """Return the nest that loads one operand's fragments, and how they are read."""
        shape = [axis.size for axis in emitter.axes] + (
            [extent, wmma.SIDE] if panel.k_last else [wmma.SIDE, extent]
        )
        dtype = str(panel.buffer.dtype)
        buffer = tirx.decl_buffer(shape, dtype, panel.name + "_fragment", scope=f"wmma.matrix_{side}")
        self.buffers.append(buffer)
        axes = [self.frame.axis("f", extent // wmma.SIDE), self.frame.axis("x", wmma.SIDE)]
        axes.append(self.frame.axis("k", wmma.SIDE))
        if not panel.k_last:
            axes[1:] = axes[:0:-1]

        def indices(bound, x, k):
            return [*emitter.at(bound), *([x, k] if panel.k_last else [k, x])]

        def body(bound):
            x = bound["f"] * wmma.SIDE + bound["x"]
            k = bound["ks"] * wmma.SIDE + bound["k"]
            value = panel.at(bound["b"], bound[tile], bound["ko"], bound[warp] * extent + x, k)
            return tirx.BufferStore(buffer, value, indices(bound, x, bound["k"]))

        nest = emitter.block(panel.name + "_fragment", axes, body)
        return nest, lambda bound, x, k: tirx.BufferLoad(buffer, indices(bound, x, k))

    def _sum_at(self, bound) -> list:
        row, column = bound["fm"] * wmma.SIDE + bound["i"], bound["fn"] * wmma.SIDE + bound["j"]
        return [*self.emitter.at(bound), row, column]

    def _gather(self):
        """Return the nest that brings the sums of all warps together in shared memory."""
        fm, fn = self.frame.axis("fm", self.fm.size), self.frame.axis("fn", self.fn.size)
        axes = [fm, fn, *(self.frame.axis(name, wmma.SIDE) for name in ("i", "j"))]

        def body(bound):
            row, column = self._sum_at(bound)[-2:]
            row, column = bound["wm"] * self.rows + row, bound["wn"] * self.columns + column
            value = tirx.BufferLoad(self.sums, self._sum_at(bound))
            return tirx.BufferStore(self.tile, value, [bound["b"], bound["mo"], bound["no"], row, column])

        return self.emitter.block(self.name + "_tile", axes, body)

    def store(self):
        """Return the nest in which all threads store the tile through the epilogue."""
        tile, warps = self.frame.tile, self.warps
        lanes = STORE_LANES
        while tile.m * tile.n % (warps.m * warps.n * WARP * lanes):
            lanes //= 2
        rounds = tile.m * tile.n // (warps.m * warps.n * WARP * lanes)
        axes = [self.frame.axis("it", rounds), *self._warp_axes(), self.frame.axis("lane", WARP)]
        axes.append(self.frame.axis("nl", lanes))

        def place(bound):
            warp = (bound["it"] * warps.m + bound["wm"]) * warps.n + bound["wn"]
            flat = (warp * WARP + bound["lane"]) * lanes + bound["nl"]
            return tirx.floordiv(flat, tile.n), tirx.floormod(flat, tile.n)

        def read(bound):
            return tirx.BufferLoad(self.tile, [bound["b"], bound["mo"], bound["no"], *place(bound)])

        return self.frame.store(Emitter(self.frame.grid, self.frame.dtype), axes, place, read)


def tensorize_fragments(schedule: s_tir.Schedule, anchor: str) -> None:
    """Replace loops over fragments by tensor-core instructions."""
    product = find_nest(schedule, anchor)
    step = product.reducing[0]
    accumulator = str(product.block.body.buffer.dtype)
    row_major = {}
    for side, suffix in (("a", "_lhs_fragment"), ("b", "_rhs_fragment")):
        nest = find_nest(schedule, anchor + suffix)
        # The operand's loops over a fragment end in k where k is its contiguous dimension.
        k_last = nest.loops[-1].loop_var.name == "k"
        row_major[side] = k_last == (side == "a")
        dtype = str(nest.block.body.buffer.dtype)
        block = schedule.get_sblock(anchor + suffix)
        schedule.tensorize(schedule.get_loops(block)[-2], wmma.load(dtype, side, row_major[side]))
    block = schedule.get_sblock(anchor)
    init = schedule.decompose_reduction(block, schedule.get_loops(block)[step])
    schedule.tensorize(schedule.get_loops(init)[-2], wmma.fill(accumulator))
    intrinsic = wmma.multiply(dtype, accumulator, row_major["a"], row_major["b"])
    schedule.tensorize(schedule.get_loops(block)[-3], intrinsic)
    gather = schedule.get_sblock(anchor + "_tile")
    schedule.tensorize(schedule.get_loops(gather)[-2], wmma.store(accumulator))
