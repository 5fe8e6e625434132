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

from tvmpass.core.nest import substitute

from .lanes import Lanes, uniform_choices
from .launch import COPY_LOOP, LANE_LOOP, STEP_LOOP, SWEEP_LOOP, at_least_one, bind, ceil_div, sequence
from .parts import COLUMN, ROW, Group, Part
from .passes import plan_passes
from .positions import product, unravel, unravel_lanes
from .threads import assign, combine_threads

_FEW_STEPS = 8


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

    def __init__(self, group: Group, tiling: Tiling, first_row: int = 0, rows: int | None = None):
        """Take ``rows`` rows from ``first_row`` on, by default all."""
        self.group, self.tiling, self.first_row = group, tiling, first_row
        axes = [*group.rows, *group.columns]
        self.dtype = str(axes[0].var.ty.dtype) if axes else "int32"
        self.block, self.x, self.y = (tirx.Var(name, self.dtype) for name in ("block", "tx", "ty"))
        self.lanes = Lanes(tirx.Var(LANE_LOOP, self.dtype), tiling.lanes)
        self.step = tirx.Var(STEP_LOOP, self.dtype)
        self.buffers: list = []
        self.known: dict[Any, Any] = {}
        """Where results of the launch are: buffer -> local buffer, in elements of `_own_index`."""
        self.scattered = False
        """Is some element of a vector read or written on its own?"""
        column_width = 1 if tiling.across else tiling.lanes
        self.column_count = product([axis.size for axis in group.columns])
        self.column_groups = ceil_div(self.column_count, column_width)
        self.steps = ceil_div(self.column_groups, tiling.threads)
        keeps = tiling.keep and not tiling.across and isinstance(self.steps, int)
        self.passes = plan_passes(group, keeps)
        row_width = tiling.lanes if tiling.across else 1
        self.row_count = product([axis.size for axis in group.rows]) if rows is None else rows
        self.row_groups = ceil_div(self.row_count, row_width)

    def statements(self) -> list:
        """Return what a thread does."""
        return [s for part in self.passes.parts for s in self._write(part)]

    def bound(self, statements: list):
        """Return ``statements`` in loops bound to this launch's blocks and threads."""
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
        if not self.tiling.across or (self.tiling.lanes == 1 and not self.first_row):
            return unravel(axes, group)
        return unravel_lanes(axes, self.group.flat, group, self.lanes, self.first_row)

    def _column_values(self) -> dict:
        group = self._column_group()
        if self.tiling.across or self.tiling.lanes == 1:
            return unravel(self.group.columns, group)
        return unravel(self.group.columns, group * self._const(self.tiling.lanes) + self.lanes.lane)

    # Passes

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
        return statements + self._stored(part, result, at, width, guard)

    def _stored(self, part: Part, result, at, width: int, guard) -> list:
        """Return stores of a row's results that others read, by one thread of the row."""
        if self.tiling.threads > 1:
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
        self.scattered |= not together and str(buffer.dtype) != "bool"
        return self._lane_loop(
            [tirx.BufferStore(buffer, value, indices)], COPY_LOOP if together else LANE_LOOP
        )

    def _column_part(self, part: Part) -> list:
        width, kept = self.tiling.lanes, part.buffers[0] in self.passes.kept
        steps = self.steps if kept else 1
        result = self._local(part.buffers[0], width * steps)
        lane = self.lanes.lane if width > 1 else self._const(0)
        at = self.step * self._const(width) + lane if kept else lane
        body = self._computed(part.values, width, lambda values: [tirx.BufferStore(result, values[0], [at])])
        if part.buffers[0] in self.group.stored:
            body.append(self._store(part.buffers[0], part, result, at, width))
        guard = tirx.all(self._row_guard(), self._column_group() < self.column_groups)
        return [self._step_loop(tirx.IfThenElse(guard, sequence(body), None))]

    def _reduction(self, part: Part) -> list:
        reducer, width = part.reducer, self.tiling.lanes
        accumulators = [self._buffer(b, width, "_part") for b in part.buffers]
        lane = self.lanes.lane if width > 1 else self._const(0)

        def accumulate(values):
            held = [tirx.BufferLoad(a, [lane]) for a in accumulators]
            binds, elements = reducer.bind_elements(values)
            return [*binds, *assign(accumulators, lane, reducer.combine(held, elements))]

        body = self._computed(part.values, width, accumulate)
        guard = tirx.all(self._row_guard(), self._column_group() < self.column_groups)
        start = [tirx.BufferStore(a, v, [lane]) for a, v in zip(accumulators, reducer.identities)]
        statements = [self._lane_loop(start, LANE_LOOP) if width > 1 else sequence(start)]
        statements.append(self._step_loop(tirx.IfThenElse(guard, sequence(body), None)))
        if not self.tiling.across:
            for other in range(1, width):
                left = [tirx.BufferLoad(a, [self._const(0)]) for a in accumulators]
                right = [tirx.BufferLoad(a, [self._const(other)]) for a in accumulators]
                statements += assign(accumulators, self._const(0), reducer.combine(left, right))
        statements += combine_threads(self, reducer, accumulators)
        for buffer, accumulator in zip(part.buffers, accumulators):
            self.known[buffer] = accumulator
        rows = width if self.tiling.across else 1
        at = self.lanes.lane if rows > 1 else self._const(0)
        return statements + self._stored(part, accumulators, at, rows, self._row_guard())

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
        self.scattered |= any(self.lanes.has_scalar_load(value) for value in taken)
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
            part = self.passes.source.get(load.source)
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
        # Elements that are held need every index known; otherwise few copies of the body are enough.
        few = bool(self.passes.kept) or (isinstance(self.steps, int) and self.steps <= _FEW_STEPS)
        var = tirx.Var(STEP_LOOP if few else SWEEP_LOOP, self.dtype)
        size = self._const(self.steps) if isinstance(self.steps, int) else self.steps
        body = substitute(body, {self.step: var})
        return tirx.For(var, self._const(0), size, tirx.ForKind.SERIAL, body)
