"""Building blocks of TIR: loop axes, blocks inside them, tiles that overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import s_tir, tirx

from tvmpass.core.nest import REDUCE, SPATIAL, loads, regions, root_block


class LoopAxis:
    """A loop with its variable; ``size`` is an int or a symbolic extent."""

    def __init__(self, name: str, size, dtype: str):
        self.name = name
        self.dtype = dtype if isinstance(size, int) else str(size.ty.dtype)
        self.size = tirx.const(size, dtype) if isinstance(size, int) else size
        self.loop_var = tirx.Var(name, self.dtype)

    def iterator(self, kind: int):
        """Return a fresh block iterator over the axis."""
        var = tirx.Var("v_" + self.name, self.dtype)
        return tirx.IterVar(tvm.ir.Range(tirx.const(0, self.dtype), self.size), var, kind)

    def around(self, body):
        """Return the loop around ``body``."""
        return tirx.For(self.loop_var, tirx.const(0, self.dtype), self.size, tirx.ForKind.SERIAL, body)


def around(axes, body):
    """Return ``body`` inside the loops of ``axes``, the first outermost."""
    for axis in reversed(list(axes)):
        body = axis.around(body)
    return body


def sequence(parts):
    """Return statements as one."""
    return tirx.SeqStmt(list(parts)) if len(parts) > 1 else parts[0]


def vector_lanes(size: int | None, widest: int) -> int:
    """Return the widest power-of-two vector that fits in ``size`` elements."""
    lanes = 1
    while size is not None and lanes * 2 <= min(size, widest):
        lanes *= 2
    return lanes


def tile_start(index, size: int, whole: int):
    """Return where tile ``index`` of ``size`` starts; the last one ends at ``whole``."""
    start = index * size
    return tirx.min(start, whole - size) if whole % size else start


class VectorAxis:
    """An axis of known ``size`` in ``lanes`` x ``vectors`` x tiles, the last ones overlapping.

    Its loops are ``nt`` over tiles, ``nu`` over the vectors of a tile and ``nl``
    over lanes.
    """

    def __init__(self, size: int, lanes: int, vectors: int, dtype: str):
        self.size, self.dtype = size, dtype
        self.lanes = vector_lanes(size, lanes)
        self.groups = -(-size // self.lanes)
        self.vectors = min(vectors, self.groups)
        self.nt = LoopAxis("nt", -(-self.groups // self.vectors), dtype)
        self.nu, self.nl = self.inner()

    def inner(self) -> tuple[LoopAxis, LoopAxis]:
        """Return fresh loops over one tile, for a second nest inside ``nt``."""
        return LoopAxis("nu", self.vectors, self.dtype), LoopAxis("nl", self.lanes, self.dtype)

    def group(self, bound):
        """Return the number of the vector, given the variables of ``nt`` and ``nu``."""
        return tile_start(bound["nt"], self.vectors, self.groups) + bound["nu"]

    def value(self, bound):
        """Return the element, given the variables of all three loops."""
        return tile_start(self.group(bound), self.lanes, self.size) + bound["nl"]


@dataclass
class Emitter:
    """Makes blocks inside a set of outer loops, and the buffers they share."""

    axes: list[LoopAxis]
    dtype: str
    buffers: list = field(default_factory=list)

    def axis(self, name: str, size) -> LoopAxis:
        return LoopAxis(name, size, self.dtype)

    def inside(self, axes) -> Emitter:
        """Return an emitter with further outer loops; buffers are shared."""
        return Emitter([*self.axes, *axes], self.dtype, self.buffers)

    def local(self, axes, dtype: str, name: str):
        """Return a register buffer over all outer loops and ``axes``."""
        shape = [axis.size for axis in (*self.axes, *axes)]
        buffer = tirx.decl_buffer(shape, dtype, name, scope="local")
        self.buffers.append(buffer)
        return buffer

    def at(self, bound, axes=()) -> list:
        """Return the bound variables of the outer loops and of ``axes``."""
        return [bound[axis.name] for axis in (*self.axes, *axes)]

    def block(
        self,
        name: str,
        axes,
        body: Callable[[dict], tirx.BufferStore],
        init: Callable | None = None,
        reduce=(),
    ):
        """Return a block in loops over ``axes``, to be put inside the outer loops.

        ``body`` and ``init`` map {axis name: iterator variable} to a store;
        ``reduce`` names the axes that are reduced over.
        """
        every = [*self.axes, *axes]
        kinds = {axis.name: REDUCE if axis.name in reduce else SPATIAL for axis in every}
        iterators = {axis.name: axis.iterator(kinds[axis.name]) for axis in every}
        bound = {key: iterator.var for key, iterator in iterators.items()}
        store = body(bound)
        read = loads(store.value)
        if init is not None:
            read = [load for load in read if not load.source.same_as(store.buffer)]
        block = s_tir.SBlock(
            [iterators[axis.name] for axis in every],
            regions((load.source, load.indices) for load in read),
            regions([(store.buffer, store.indices)]),
            name,
            store,
            None if init is None else init(bound),
        )
        return around(axes, s_tir.SBlockRealize([axis.loop_var for axis in every], True, block))


def statements(func) -> list:
    """Return the top-level statements of a function's root block."""
    body = root_block(func).body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def with_statements(func, parts, buffers):
    """Return ``func`` with other top-level statements and allocated buffers."""
    block = s_tir.SBlock([], [], [], "root", sequence(parts), None, list(buffers))
    return func.with_body(s_tir.SBlockRealize([], True, block))
