"""Tiles for products on plain arithmetic units: a block of threads per output tile."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from schedules.cpu.emit import Emitter, around, sequence

from .frame import Frame, TileSize, bind_grid


@dataclass(frozen=True)
class ThreadTile:
    """The part of the output one thread computes: ``m`` rows, ``n`` columns in vectors of ``lanes``."""

    m: int
    n: int
    lanes: int


def tile_blocks(func, anchor_name: str, tile: TileSize, thread: ThreadTile) -> s_tir.Schedule:
    """Return a schedule of ``func`` with its anchor in block and thread tiles.

    Loops, outermost first: ``b``, ``mo``, ``no`` on the grid, ``ty``, ``tx`` on the
    threads; inside ``ko`` over the panels, ``ki``, ``mi``, ``nv``, ``nl``.  The columns of one
    thread are ``nv`` vectors that lie ``tx`` apart, so that neighbouring threads read
    and write neighbouring vectors.  Sums stay in registers.
    """
    frame = Frame(func, anchor_name, tile)
    lanes = 1 if frame.rhs.k_last else thread.lanes
    ty, tx = frame.axis("ty", tile.m // thread.m), frame.axis("tx", tile.n // thread.n)
    emitter = Emitter([*frame.grid, ty, tx], frame.dtype)
    inner = [frame.axis("mi", thread.m), frame.axis("nv", thread.n // lanes), frame.axis("nl", lanes)]
    columns = tile.n // thread.n
    sums = emitter.local(inner, frame.product.accumulator, anchor_name + "_sums")

    def place(bound):
        column = (bound["nv"] * columns + bound["tx"]) * lanes + bound["nl"]
        return bound["ty"] * thread.m + bound["mi"], column

    def at(bound, axes=inner):
        return emitter.at(bound, axes)

    def update(bound):
        row, column = place(bound)
        b, step, k, dtype = bound["b"], bound["ko"], bound["ki"], str(sums.dtype)
        left = frame.lhs.at(b, bound["mo"], step, row, k).astype(dtype)
        right = frame.rhs.at(b, bound["no"], step, column, k).astype(dtype)
        return tirx.BufferStore(sums, tirx.BufferLoad(sums, at(bound)) + left * right, at(bound))

    def start(bound):
        return tirx.BufferStore(sums, tirx.const(0, str(sums.dtype)), at(bound))

    ki = frame.axis("ki", tile.k)
    product = emitter.block(anchor_name, [frame.ko, ki, *inner], update, start, {"ko", "ki"})
    fresh = [frame.axis(axis.name, axis.size) for axis in inner]
    store = frame.store(emitter, fresh, place, lambda bound: tirx.BufferLoad(sums, at(bound)))
    nest = around(emitter.axes, sequence([product, store]))
    schedule = s_tir.Schedule(frame.finish(nest, emitter.buffers))
    loops = schedule.get_loops(schedule.get_sblock(anchor_name))
    bind_grid(schedule, loops[:3])
    ty_loop, tx_loop = schedule.get_loops(schedule.get_sblock(anchor_name))[-7:-5]
    schedule.bind(ty_loop, "threadIdx.y")
    schedule.bind(tx_loop, "threadIdx.x")
    frame.bind_others(schedule)
    return schedule
