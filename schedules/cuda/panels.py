"""Panels: the operands of a product cut into the blocks that one step of its tiles reads.

A panel is indexed [batch, tile, step of k, row in the tile, column in the tile]; what
lies outside of the operand is zero there.  It is a plain block of its own at first;
`staging` moves it into shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from schedules.cpu.emit import Emitter, LoopAxis
from tvmpass.core.nest import as_int, substitute

from .contraction import Contraction, Joined, flat_offset
from .launch import at_least_one


@dataclass(frozen=True)
class Panel:
    """One operand in blocks of ``size`` along m (lhs) or n (rhs), by ``depth`` along k.

    ``k_last`` puts k in the contiguous dimension of the block.
    """

    name: str
    buffer: Any
    nest: Any
    k_last: bool

    def at(self, b, tile, step, x, k) -> tirx.BufferLoad:
        """Return the load of one element, ``x`` and ``k`` counted within the block."""
        inner = [x, k] if self.k_last else [k, x]
        return tirx.BufferLoad(self.buffer, [b, tile, step, *inner])


def tiles_of(size, tile: int):
    """Return how many tiles cover ``size``, rounded up; an int where that is known."""
    known = as_int(size)
    return -(-known // tile) if known is not None else tirx.floordiv(size + (tile - 1), tile)


def within(position, size, tile: int) -> list:
    """Return the condition that ``position`` is inside ``size``, none where tiles always are."""
    known = as_int(size)
    return [] if known is not None and known % tile == 0 else [position < size]


def make_panel(product: Contraction, side: str, size: int, depth: int, k_last: bool) -> Panel:
    """Return the panel of the left (``side`` = lhs) or right (rhs) operand."""
    load, whole = (product.lhs, product.m) if side == "lhs" else (product.rhs, product.n)
    dtype, name = product.dtype, f"{product.anchor.name}_{side}"
    outer = [
        LoopAxis("b", at_least_one(product.batch.size), dtype),
        LoopAxis("t", tiles_of(whole.size, size), dtype),
        LoopAxis("s", tiles_of(product.k.size, depth), dtype),
    ]
    inner = [LoopAxis("x", size, dtype), LoopAxis("k", depth, dtype)]
    inner = inner if k_last else inner[::-1]
    axes = [*outer, *inner]
    buffer = tirx.decl_buffer([axis.size for axis in axes], str(load.source.dtype), name)

    def body(bound):
        x, k = bound["t"] * size + bound["x"], bound["s"] * depth + bound["k"]
        zero = tirx.const(0, dtype)
        m, n = (x, zero) if side == "lhs" else (zero, x)
        mapping = product.at(bound["b"], m, n, k)
        value = tirx.BufferLoad(load.source, [substitute(index, mapping) for index in load.indices])
        inside = within(bound["b"], product.batch.size, 1)
        inside += within(x, whole.size, size) + within(k, product.k.size, depth)
        if inside:
            value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, value.ty.dtype))
        return tirx.BufferStore(buffer, value, [bound[axis.name] for axis in axes])

    return Panel(name, buffer, Emitter([], dtype).block(name, axes, body), k_last)


def prefers_k_last(product: Contraction, side: str) -> bool:
    """Is the operand read in longer vectors along k than along its rows or columns?"""
    load, across = (product.lhs, product.m) if side == "lhs" else (product.rhs, product.n)
    along_k = contiguous_run(product, load, product.k)
    along_x = contiguous_run(product, load, across)
    return along_k >= along_x if side == "lhs" else along_k > along_x


def contiguous_run(product: Contraction, load, joined: Joined, longest: int = 16) -> int:
    """Return the longest power of two of aligned neighbours that ``load`` reads along an axis."""
    if as_int(joined.size) == 1:
        return 1
    run = longest
    while run > 1 and not _is_run(product, load, joined, run):
        run //= 2
    return run


def _is_run(product: Contraction, load, joined: Joined, run: int) -> bool:
    size = as_int(joined.size)
    if size is not None and size % run:
        return False
    analyzer = tvm.sym.Analyzer()
    for axis in (*product.batch.axes, *product.m.axes, *product.n.axes, *product.k.axes):
        analyzer.bind(axis.var, tvm.ir.Range(tirx.const(0, axis.var.ty.dtype), axis.size))
    group, lane = tirx.Var("group", product.dtype), tirx.Var("lane", product.dtype)
    zero = tirx.const(0, product.dtype)
    analyzer.bind(lane, tvm.ir.Range(zero, tirx.const(run, product.dtype)))
    if size is not None:
        analyzer.bind(group, tvm.ir.Range(zero, tirx.const(size // run, product.dtype)))
    offset = flat_offset(load)
    start = analyzer.simplify(substitute(offset, joined.values(group * run)))
    there = analyzer.simplify(substitute(offset, joined.values(group * run + lane)))
    aligned = as_int(analyzer.simplify(tirx.floormod(start, run))) == 0
    return aligned and analyzer.can_prove_equal(there - start, lane)
