"""Rows of padding: neither written nor multiplied with.

A window over few rows of an image lies in the padding for a good part: of the
five rows of a 5x5 window over two rows only two hold pixels.  Here the padded
buffer loses these rows, and the anchor says which rows it reads; once the loops
over rows are unrolled, what it says is known and the products with zero go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.nest import (
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

from .contraction import find_axes
from .emit import Emitter, statements, with_statements
from .inline import is_guarded
from .loops import find_nest

MAX_UNROLLED = 64
"""Rows of output times rows of the window, as code is made for each pair."""


@dataclass(frozen=True)
class PaddedRows:
    """The padding in front of an anchor: which rows of the padded image hold pixels."""

    padding: Stage
    anchor: Stage
    dimension: int
    first: int
    rows: int
    choice: Any
    """The padding's value: ``if_then_else(where, pixel, padding)``."""
    columns: tuple[Any, ...]
    """Those parts of its condition that are not about rows."""


def padded_rows(func, anchor_name: str | None) -> PaddedRows | None:
    """Return how the anchor's image is padded, None where its rows are not, or not recognised."""
    parts = stages(func) or []
    anchor = next((part for part in parts if part.name == anchor_name), None)
    if anchor is None or not anchor.spatial:
        return None
    row = find_axes(anchor).row
    padding = next((p for p in parts if not p.reduce and p.store is not None and is_guarded(p.block)), None)
    if row is None or padding is None or not anchor.reduce:
        return None
    height = extent(anchor.spatial[row])
    window = extent(anchor.reduce[0])
    if height is None or window is None or height * window > MAX_UNROLLED:
        return None
    reads = [load for load in loads(anchor.store.value) if load.source.same_as(padding.store.buffer)]
    places = {
        place
        for load in reads
        for place, index in enumerate(load.indices)
        if {anchor.spatial[row].var, anchor.reduce[0].var} <= variables(index)
    }
    if len(places) != 1:
        return None
    return _read_padding(padding, anchor, places.pop())


def _read_padding(padding: Stage, anchor: Stage, dimension: int) -> PaddedRows | None:
    """Split the padding's condition into rows and the rest."""
    choice = padding.store.value
    iters = list(padding.spatial)
    plain = all(isinstance(i, tirx.Var) and i.same_as(iv.var) for i, iv in zip(padding.store.indices, iters))
    size = extent(iters[dimension])
    if not (isinstance(choice, tvm.ir.Call) and plain and size is not None and len(iters) > dimension):
        return None
    var = iters[dimension].var
    about_rows, columns = [], []
    for part in _conjuncts(choice.args[0]):
        (about_rows if variables(part) == {var} else columns).append(part)
    analyzer = tvm.sym.Analyzer()

    def holds(row: int) -> bool:
        value = {var: tirx.const(row, str(var.ty.dtype))}
        return all(as_int(analyzer.simplify(substitute(part, value))) == 1 for part in about_rows)

    inside = [row for row in range(size) if holds(row)]
    known = bool(inside) and len(inside) < size and inside[-1] - inside[0] + 1 == len(inside)
    mixed = any(var in variables(part) for part in columns)
    if not known or mixed or not columns:
        return None
    return PaddedRows(padding, anchor, dimension, inside[0], len(inside), choice, tuple(columns))


def _conjuncts(condition) -> list[Any]:
    if isinstance(condition, tvm.ir.prim.expr.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def drop_padded_rows(func, found: PaddedRows):
    """Return ``func`` with the padded buffer short of its rows of padding."""
    padding, dimension = found.padding, found.dimension
    old = padding.store.buffer
    dtype = str(padding.spatial[0].var.ty.dtype)
    emitter = Emitter([], dtype)
    sizes = [iv.dom.extent for iv in padding.spatial]
    sizes[dimension] = tirx.const(found.rows, dtype)
    fresh = tirx.decl_buffer(sizes, str(old.dtype), old.name)
    axes = [emitter.axis(f"c{i}", as_int(size) or size) for i, size in enumerate(sizes)]

    def body(bound):
        mapping = {iv.var: bound[axis.name] for iv, axis in zip(padding.spatial, axes)}
        mapping[padding.spatial[dimension].var] += found.first
        where = tirx.all(*(substitute(part, mapping) for part in found.columns))
        pixel, zero = (substitute(arg, mapping) for arg in list(found.choice.args)[1:])
        value = tirx.if_then_else(where, tvm.sym.Analyzer().simplify(pixel), zero)
        return tirx.BufferStore(fresh, value, [bound[axis.name] for axis in axes])

    parts = statements(func)
    order = [stage.name for stage in stages(func)]
    parts[order.index(padding.name)] = emitter.block(padding.name, axes, body)
    place = order.index(found.anchor.name)
    parts[place] = _with_guard(parts[place], found, fresh)
    kept = [fresh if b.same_as(old) else b for b in root_block(func).alloc_buffers]
    return with_statements(func, parts, kept)


def _with_guard(statement, found: PaddedRows, fresh):
    """Return the anchor reading the shorter buffer where its row holds pixels."""
    old, zero = found.padding.store.buffer, list(found.choice.args)[2]

    def load(node):
        if not node.source.same_as(old):
            return node
        indices = list(node.indices)
        row = indices[found.dimension] - found.first
        indices[found.dimension] = tirx.max(tirx.min(row, found.rows - 1), 0)
        where = tirx.all(row >= 0, row < found.rows)
        return tirx.if_then_else(where, tirx.BufferLoad(fresh, indices), zero)

    def block(node):
        store = tvm_ffi.structural_map(node.body, [(tvm.ir.TensorLoad, load)], order="post")
        read = [x for x in loads(store.value) if not x.source.same_as(store.buffer)]
        reads = regions((x.source, x.indices) for x in read)
        return s_tir.SBlock(node.iter_vars, reads, node.writes, node.name_hint, store, node.init)

    return tvm_ffi.structural_map(statement, [(s_tir.SBlock, block)], order="post")


def unroll_rows(schedule, anchor_name: str) -> None:
    """Unroll the anchor's loops over rows of a block and over rows of the window."""
    nest = find_nest(schedule, anchor_name)
    every = schedule.get_loops(schedule.get_sblock(anchor_name))
    for place in _row_loops(nest):
        schedule.unroll(every[place])


def row_pairs(schedule, anchor_name: str | None) -> int | None:
    """Return how often `unroll_rows` would write the code out, None where an extent is open."""
    nest = find_nest(schedule, anchor_name or "")
    if nest is None:
        return None
    total = 1
    for place in _row_loops(nest):
        size = as_int(nest.loops[place].extent)
        if size is None:
            return None
        total *= size
    return total


def _row_loops(nest) -> list[int]:
    rows = [place for place, loop in enumerate(nest.loops) if loop.loop_var.name == "hl"]
    return [*rows, *nest.reducing[:1]]
