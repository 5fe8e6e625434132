"""One launch over rows: results in registers, reductions shared by the threads of a row.

The threads of a block form a grid, threads of a row by rows of a block.
Neighbouring threads take neighbouring columns of a row, or (``across``)
neighbouring rows.  Every thread takes ``lanes`` neighbours at a time, in vector
loads and stores where memory allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import loads, substitute, variables

from .lanes import Lanes, is_choice, uniform_choices
from .launch import at_least_one, bind, ceil_div, sequence
from .parts import COLUMN, ROW, Group, Part
from .threads import combine_threads

COPY_LOOP, LANE_LOOP, STEP_LOOP = "copy", "lane", "step"
"""Names of the loops that `vectorize-lanes` and `unroll-lanes` look for."""


@dataclass(frozen=True)
class Tiling:
    """How the threads of a block share rows.

    ``threads`` per row (a power of two), ``rows`` at a time per block, ``lanes``
    neighbours per thread: columns, or rows if ``across``.  ``keep``: a thread
    holds its elements of a row in registers from one pass to the next.
    """

    threads: int
    rows: int
    lanes: int = 1
    across: bool = False
    keep: bool = False


class Launch:
    """Writes the code of one group of parts."""

    def __init__(self, group: Group, tiling: Tiling):
        self.group, self.tiling = group, tiling
        axes = [*group.rows, *group.columns]
        self.dtype = str(axes[0].var.ty.dtype) if axes else "int32"
        self.block, self.x, self.y = (tirx.Var(name, self.dtype) for name in ("block", "tx", "ty"))
        self.lanes = Lanes(tirx.Var(LANE_LOOP, self.dtype), tiling.lanes)
        self.step = tirx.Var(STEP_LOOP, self.dtype)
        self.buffers: list = []
        self.known: dict[Any, Any] = {}
        """Where results of the launch are: buffer -> local buffer, in elements of `_own_index`."""
        self.inputs: list[Part] = []
        """Loads of input that several passes share."""
        self.level = {buffer: part for part in group.parts for buffer in part.buffers}
        column_width = 1 if tiling.across else tiling.lanes
        self.column_count = _product([axis.size for axis in group.columns], self.dtype)
        self.column_groups = ceil_div(self.column_count, column_width)
        self.steps = ceil_div(self.column_groups, tiling.threads)
        row_width = tiling.lanes if tiling.across else 1
        self.row_count = _product([axis.size for axis in group.rows], self.dtype)
        self.row_groups = ceil_div(self.row_count, row_width)

    def statement(self):
        """Return the launch: loops bound to blocks and threads around all parts."""
        statements = [s for part in self._passes() for s in self._write(part)]
        # threadIdx.x runs fastest: along columns, or along rows.
        sizes = (self.tiling.threads, self.tiling.rows)
        size_x, size_y = sizes[::-1] if self.tiling.across else sizes
        body = bind(self.x, size_x, "threadIdx.x", sequence(statements))
        if size_y > 1:
            body = bind(self.y, size_y, "threadIdx.y", body)
        else:
            body = substitute(body, {self.y: self._const(0)})
        grid = at_least_one(ceil_div(self.row_groups, self.tiling.rows))
        return bind(self.block, grid, "blockIdx.x", body)

    # Positions

    def _const(self, value: int):
        return tirx.const(value, self.dtype)

    @property
    def thread_of_row(self):
        """Return the number of this thread among those of its row."""
        return self.y if self.tiling.across else self.x

    @property
    def row_group(self):
        """Return which row (or vector of rows) this thread works on."""
        own = self.x if self.tiling.across else self.y
        return self.block * self._const(self.tiling.rows) + own

    def _row_guard(self):
        return self.row_group < self.row_groups

    def _column_group(self):
        return self.step * self._const(self.tiling.threads) + self.thread_of_row

    def _row_values(self) -> dict:
        """Map row variables to this thread's row, in vectors along the last."""
        axes, group = self.group.rows, self.row_group
        if not self.tiling.across or self.tiling.lanes == 1:
            return unravel(axes, group)
        return _unravel_lanes(axes, self.group.flat, group, self.lanes)

    def _column_values(self) -> dict:
        group = self._column_group()
        if self.tiling.across or self.tiling.lanes == 1:
            return unravel(self.group.columns, group)
        return unravel(self.group.columns, group * self._const(self.tiling.lanes) + self.lanes.lane)

    # Passes

    def _passes(self) -> list[Part]:
        """Return the parts to compute, with loads of input that several of them share first."""
        parts = []
        for part in self.group.parts:
            values = tuple(self._expand(value) for value in part.values)
            if part.level == COLUMN and not self._is_kept(part) and not self._is_stored(part):
                continue
            parts.append(Part(part.name, part.level, part.buffers, part.indices, values, part.reducer))
        if not self._keeps():
            return parts
        return self._with_shared_loads(parts)

    def _keeps(self) -> bool:
        return self.tiling.keep and not self.tiling.across and isinstance(self.steps, int)

    def _is_kept(self, part: Part) -> bool:
        """Is a column part's result used in several passes, so that it pays to hold it?"""
        return any(part is p for p in self.inputs) or (self._keeps() and self._readers(part) > 1)

    def _readers(self, part: Part) -> int:
        """Return in how many passes a column part's result is needed."""
        count = 0
        for other in self.group.parts:
            if any(load.source in part.buffers for value in other.values for load in loads(value)):
                virtual = other.level == COLUMN and not self._is_kept(other) and not self._is_stored(other)
                count += self._readers(other) if virtual else 1
        return count

    def _is_stored(self, part: Part) -> bool:
        return any(buffer in self.group.stored for buffer in part.buffers)

    def _expand(self, value):
        """Put the values of column parts that are not kept in the place of their loads."""

        def own_value(load):
            part = self.level.get(load.source)
            if part is None or part.level != COLUMN or self._is_kept(part):
                return load
            return self._expand(part.values[0])

        return tvm_ffi.structural_map(value, [(tvm.ir.TensorLoad, own_value)], order="post")

    def _with_shared_loads(self, parts: list[Part]) -> list[Part]:
        columns = {axis.var for axis in self.group.columns}
        seen: list[tuple[Any, set[int]]] = []
        for number, part in enumerate(parts):
            for value in part.values:
                for load in _unconditional_loads(value):
                    if load.source in self.level or not any(columns & variables(i) for i in load.indices):
                        continue
                    same = next((s for s in seen if tvm_ffi.structural_equal(s[0], load)), None)
                    if same is None:
                        seen.append((load, {number}))
                    else:
                        same[1].add(number)
        rows = {axis.var for axis in self.group.rows}
        for load, users in seen:
            moves = set().union(*map(variables, load.indices))
            if len(users) < 2 or not columns <= moves or not rows <= moves:
                continue
            shape = [axis.size for axis in (*self.group.rows, *self.group.columns)]
            copy = tirx.decl_buffer(shape, str(load.ty.dtype), load.source.name + "_row", scope="local")
            place = tuple(axis.var for axis in (*self.group.rows, *self.group.columns))
            loaded = Part(copy.name, COLUMN, (copy,), place, (load,))
            swapped = tirx.BufferLoad(copy, list(place))
            parts = [_swap(part, load, swapped) for part in parts]
            parts.insert(min(users), loaded)
            self.level[copy] = loaded
            self.inputs.append(loaded)
        return parts

    def _write(self, part: Part) -> list:
        if part.level == ROW:
            return self._row_part(part)
        if part.level == COLUMN:
            return self._column_part(part)
        return self._reduction(part)

    def _row_part(self, part: Part) -> list:
        width = self.tiling.lanes if self.tiling.across else 1
        result = self._local(part.buffers[0], width)
        at = self.lanes.lane if width > 1 else self._const(0)
        body = self._computed(part.values, width, lambda values: [tirx.BufferStore(result, values[0], [at])])
        guard = self._row_guard()
        statements = [tirx.IfThenElse(guard, sequence(body), None)]
        return statements + self._stored(part, result, at, width, guard, one_thread=True)

    def _stored(self, part: Part, result, at, width: int, guard, one_thread: bool) -> list:
        if one_thread and self.tiling.threads > 1:
            guard = tirx.all(guard, tirx.EQ(self.thread_of_row, self._const(0)))
        made = []
        for number, buffer in enumerate(part.buffers):
            if buffer in self.group.stored:
                source = result[number] if isinstance(result, list) else result
                made.append(tirx.IfThenElse(guard, self._store(buffer, part, source, at, width), None))
        return made

    def _store(self, buffer, part: Part, source, at, width: int):
        indices = [self._placed(i) for i in part.indices]
        value = tirx.BufferLoad(source, [at])
        if width == 1:
            return tirx.BufferStore(buffer, value, indices)
        together = self.lanes.is_contiguous(tirx.BufferLoad(buffer, indices))
        return self._lane_loop(
            [tirx.BufferStore(buffer, value, indices)], COPY_LOOP if together else LANE_LOOP
        )

    def _column_part(self, part: Part) -> list:
        width, kept = self.tiling.lanes, self._is_kept(part)
        steps = self.steps if kept else 1
        result = self._local(part.buffers[0], width * steps)
        lane = self.lanes.lane if width > 1 else self._const(0)
        at = self.step * self._const(width) + lane if kept else lane
        body = self._computed(part.values, width, lambda values: [tirx.BufferStore(result, values[0], [at])])
        if self._is_stored(part):
            body.append(self._store(part.buffers[0], part, result, at, width))
        guard = tirx.all(self._row_guard(), self._column_group() < self.column_groups)
        return [self._step_loop(tirx.IfThenElse(guard, sequence(body), None))]

    def _reduction(self, part: Part) -> list:
        reducer, width = part.reducer, self.tiling.lanes
        accumulators = [self._buffer(b, width, "_part") for b in part.buffers]
        lane = self.lanes.lane if width > 1 else self._const(0)

        def accumulate(values):
            held = [tirx.BufferLoad(a, [lane]) for a in accumulators]
            return _assign(accumulators, lane, reducer.combine(held, values))

        body = self._computed(part.values, width, accumulate)
        guard = tirx.all(self._row_guard(), self._column_group() < self.column_groups)
        start = [tirx.BufferStore(a, v, [lane]) for a, v in zip(accumulators, reducer.identities)]
        statements = [self._lane_loop(start, LANE_LOOP) if width > 1 else sequence(start)]
        statements.append(self._step_loop(tirx.IfThenElse(guard, sequence(body), None)))
        if not self.tiling.across:
            for other in range(1, width):
                left = [tirx.BufferLoad(a, [self._const(0)]) for a in accumulators]
                right = [tirx.BufferLoad(a, [self._const(other)]) for a in accumulators]
                statements += _assign(accumulators, self._const(0), reducer.combine(left, right))
        statements += combine_threads(self, reducer, accumulators, part.name)
        for buffer, accumulator in zip(part.buffers, accumulators):
            self.known[buffer] = accumulator
        rows = width if self.tiling.across else 1
        at = self.lanes.lane if rows > 1 else self._const(0)
        return statements + self._stored(part, accumulators, at, rows, self._row_guard(), one_thread=True)

    # Pieces

    def _computed(self, values, width: int, use) -> list:
        """Return copies of what the values need, then a loop that computes and uses them."""
        copies: list = []
        if width == 1:
            return use([self._resolved(value) for value in values])

        def temporary(expr):
            for known, buffer in copies:
                if tvm_ffi.structural_equal(known, expr):
                    return tirx.BufferLoad(buffer, [self.lanes.lane])
            made = tirx.decl_buffer([width], str(expr.ty.dtype), "vector", scope="local")
            self.buffers.append(made)
            copies.append((expr, made))
            return tirx.BufferLoad(made, [self.lanes.lane])

        taken = [self.lanes.take_out(self._resolved(value), temporary) for value in values]
        statements = [
            self._lane_loop(
                [tirx.BufferStore(buffer, uniform_choices(expr, self.lanes), [self.lanes.lane])], COPY_LOOP
            )
            for expr, buffer in copies
        ]
        return [*statements, self._lane_loop(use(taken), LANE_LOOP)]

    def _resolved(self, value):
        """Return a value with this thread's positions, and registers for the launch's own results."""
        place = {**self._row_values(), **self._column_values()}

        def own(load):
            part = self.level.get(load.source)
            if part is None:
                return load
            return tirx.BufferLoad(self.known[load.source], [self._own_index(part)])

        value = tvm_ffi.structural_map(value, [(tvm.ir.TensorLoad, own)], order="post")
        return substitute(value, place)

    def _own_index(self, part: Part):
        width = self.tiling.lanes
        lane = self.lanes.lane if width > 1 else self._const(0)
        if part.level == COLUMN:
            return self.step * self._const(width) + lane
        return lane if self.tiling.across else self._const(0)

    def _placed(self, index):
        return substitute(index, {**self._row_values(), **self._column_values()})

    def _local(self, buffer, size: int):
        made = self._buffer(buffer, size, "_local")
        self.known[buffer] = made
        return made

    def _buffer(self, like, size, suffix: str, scope: str = "local"):
        made = tirx.decl_buffer([size], str(like.dtype), like.name + suffix, scope=scope)
        self.buffers.append(made)
        return made

    def _lane_loop(self, statements: list, name: str):
        var = tirx.Var(name, self.dtype)
        body = substitute(sequence(statements), {self.lanes.lane: var})
        return tirx.For(var, self._const(0), self._const(self.tiling.lanes), tirx.ForKind.SERIAL, body)

    def _step_loop(self, body):
        var = tirx.Var(STEP_LOOP, self.dtype)
        size = self._const(self.steps) if isinstance(self.steps, int) else self.steps
        body = substitute(body, {self.step: var})
        return tirx.For(var, self._const(0), size, tirx.ForKind.SERIAL, body)


def unravel(axes, position) -> dict:
    """Map axis variables to their values at a position in the order of the axes."""
    mapping: dict = {}
    for axis in reversed(axes[1:]):
        size = axis.size if axis.extent is not None else at_least_one(axis.size)
        mapping[axis.var] = tirx.floormod(position, size)
        position = tirx.floordiv(position, size)
    if axes:
        mapping[axes[0].var] = position
    return mapping


def _unravel_lanes(axes, flat: int, group, lanes: Lanes) -> dict:
    """Unravel a position counted in vectors along the last ``flat`` axes, taken as one."""
    outer, inner = axes[: len(axes) - flat], axes[len(axes) - flat :]
    size = 1
    for axis in inner:
        size *= axis.extent
    vectors = size // lanes.width
    dtype = str(group.ty.dtype)
    within = tirx.floormod(group, tirx.const(vectors, dtype)) if outer else group
    mapping = unravel(inner, within * tirx.const(lanes.width, dtype) + lanes.lane)
    if outer:
        mapping.update(unravel(outer, tirx.floordiv(group, tirx.const(vectors, dtype))))
    return mapping


def _product(sizes, dtype: str):
    """Return the product of extents, an int where all are known."""
    known, rest = 1, None
    for size in sizes:
        if isinstance(size, tirx.IntImm):
            known *= int(size)
        else:
            rest = size if rest is None else rest * size
    if rest is None:
        return known
    return rest if known == 1 else rest * tirx.const(known, str(rest.ty.dtype))


def _assign(buffers, at, values) -> list:
    """Store values that may depend on what the buffers held before."""
    if len(buffers) == 1:
        return [tirx.BufferStore(buffers[0], values[0], [at])]
    held = [tirx.Var(f"new{i}", str(value.ty.dtype)) for i, value in enumerate(values)]
    binds = [tirx.Bind(var, value) for var, value in zip(held, values)]
    return [*binds, *(tirx.BufferStore(b, v, [at]) for b, v in zip(buffers, held))]


def _unconditional_loads(value) -> list:
    """Return the loads of a value that are not inside of a choice."""
    chosen: list = []

    def note(call) -> None:
        if is_choice(call):
            chosen.extend(loads(call))

    tvm_ffi.structural_walk(value, [(tvm.ir.Call, note)], order="pre")
    return [load for load in loads(value) if not any(load.same_as(c) for c in chosen)]


def _swap(part: Part, old, new) -> Part:
    same = lambda load: new if tvm_ffi.structural_equal(load, old) else load  # noqa: E731
    values = tuple(tvm_ffi.structural_map(v, [(tvm.ir.TensorLoad, same)], order="post") for v in part.values)
    return Part(part.name, part.level, part.buffers, part.indices, values, part.reducer)



