"""Transposes through a tile in shared memory: coalesced reads and coalesced writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.nest import as_int, loads, moving_index, substitute, variables

from .lanes import is_choice, item_bytes
from .launch import STEP_LOOP, at_least_one, bind, ceil_div, sequence
from .parts import Axis, Group, read_groups
from .positions import product, unravel

_SMALLEST = 8
"""A direction with fewer elements is not worth a tile."""

_WIDEST = 32
_BANK_BYTES = 4


@dataclass(frozen=True)
class Crossing:
    """A launch that reads along ``along`` what it writes along ``across``, its last rows."""

    group: Group
    outer: tuple[Axis, ...]
    along: tuple[Axis, ...]
    across: tuple[Axis, ...]
    loads: tuple[Any, ...]

    @property
    def sizes(self) -> tuple[Any, Any]:
        """Return the number of elements along and across, ints where known."""
        return _count(self.along), _count(self.across)


def find_crossing(func: tirx.PrimFunc) -> Crossing | None:
    """Return how ``func`` transposes, None where it is not one launch of one stage that does."""
    groups = read_groups(func)
    if not groups or len(groups) > 1 or groups[0].reduces or len(groups[0].parts) != 1:
        return None
    group = groups[0]
    rows, value = group.rows, group.parts[0].values[0]
    crossed: dict[int, list] = {}
    for load in loads(value):
        place = _crossed_axis(load, rows)
        if place is not None:
            crossed.setdefault(place, []).append(load)
    if len(crossed) != 1 or _chooses(value):
        return None
    last, found = next(iter(crossed.items()))
    first = last
    while first > 0 and all(_lies_before(load, rows[first - 1], rows[first]) for load in found):
        first -= 1
    made = Crossing(group, rows[:first], rows[first : last + 1], rows[last + 1 :], tuple(found))
    small = [size for size in made.sizes if isinstance(size, int) and size < _SMALLEST]
    return None if small else made


def launch_transposed(func: tirx.PrimFunc, crossing: Crossing, threads: int) -> tirx.PrimFunc:
    """Return ``func`` as blocks of ``threads`` that turn a tile each in shared memory."""
    writer = _Tile(crossing, threads)
    root = s_tir.SBlock([], [], [], "root", writer.statement(), None, list(writer.buffers.values()))
    return func.with_body(s_tir.SBlockRealize([], True, root))


class _Tile:
    def __init__(self, crossing: Crossing, threads: int):
        self.crossing, self.threads = crossing, threads
        self.part = crossing.group.parts[0]
        self.dtype = str(crossing.across[0].var.ty.dtype)
        self.block, self.thread = tirx.Var("block", self.dtype), tirx.Var("tx", self.dtype)
        along, across = crossing.sizes
        self.across = min(_WIDEST, _power_from(across)) if isinstance(across, int) else _WIDEST
        self.along = max(_WIDEST, 1024 // self.across)
        if isinstance(along, int):
            self.along = min(self.along, _power_from(along))
        # A round of all threads walks whole lines of the tile, in both directions.
        self.rounds = max(1, self.along * self.across // threads)
        self.buffers: dict[Any, Any] = {}
        for load in crossing.loads:
            if not any(tvm_ffi.structural_equal(load, known) for known in self.buffers):
                dtype = str(load.ty.dtype)
                pitch = self.along + max(1, _BANK_BYTES // item_bytes(dtype))
                self.buffers[load] = tirx.decl_buffer(
                    [self.across * pitch], dtype, load.source.name + "_tile", scope="shared"
                )

    def _const(self, value: int):
        return tirx.const(value, self.dtype)

    def statement(self):
        crossing = self.crossing
        along, across = crossing.sizes
        tiles_along, tiles_across = ceil_div(along, self.along), ceil_div(across, self.across)
        outer = _count(crossing.outer)
        grid = outer * tiles_along * tiles_across
        sizes = [Axis(tirx.Var("tile_along", self.dtype), self._expr(tiles_along))]
        sizes.append(Axis(tirx.Var("tile_across", self.dtype), self._expr(tiles_across)))
        tile = unravel((*crossing.outer, *sizes), self.block)
        outer_values = {axis.var: tile[axis.var] for axis in crossing.outer}
        starts = (
            tile[sizes[0].var] * self._const(self.along),
            tile[sizes[1].var] * self._const(self.across),
        )
        body = [self._read(outer_values, starts), self._write(outer_values, starts)]
        inner = bind(self.thread, self.threads, "threadIdx.x", sequence(body))
        return bind(self.block, at_least_one(grid), "blockIdx.x", inner)

    def _expr(self, value):
        return self._const(value) if isinstance(value, int) else value

    def _place(self, outer_values: dict, starts, local_along, local_across):
        """Return where an element of the tile is, and whether there is one."""
        along, across = self.crossing.sizes
        at = (starts[0] + local_along, starts[1] + local_across)
        mapping = dict(outer_values)
        mapping.update(unravel(self.crossing.along, at[0]))
        mapping.update(unravel(self.crossing.across, at[1]))
        guard = tirx.all(at[0] < self._expr(along), at[1] < self._expr(across))
        if self.along * self.across < self.threads:
            guard = tirx.all(guard, self.thread < self._const(self.along * self.across))
        first = self.crossing.outer[0] if self.crossing.outer else None
        if first is not None and first.extent is None:
            guard = tirx.all(guard, outer_values[first.var] < first.size)
        return mapping, guard

    def _locals(self, step, fast: int):
        """Return the two positions of a thread in the tile, the first along ``fast`` elements."""
        number = step * self._const(self.threads) + self.thread
        return tirx.floormod(number, self._const(fast)), tirx.floordiv(number, self._const(fast))

    def _read(self, outer_values, starts):
        step = tirx.Var(STEP_LOOP, self.dtype)
        local_along, local_across = self._locals(step, self.along)
        mapping, guard = self._place(outer_values, starts, local_along, local_across)
        stores = [
            tirx.BufferStore(buffer, substitute(load, mapping), [self._at(buffer, local_along, local_across)])
            for load, buffer in self.buffers.items()
        ]
        return self._rounds(step, tirx.IfThenElse(guard, sequence(stores), None))

    def _write(self, outer_values, starts):
        step = tirx.Var(STEP_LOOP, self.dtype)
        local_across, local_along = self._locals(step, self.across)
        mapping, guard = self._place(outer_values, starts, local_along, local_across)

        def turned(load):
            for known, buffer in self.buffers.items():
                if tvm_ffi.structural_equal(load, known):
                    return tirx.BufferLoad(buffer, [self._at(buffer, local_along, local_across)])
            return load

        value = tvm_ffi.structural_map(self.part.values[0], [(tvm.ir.TensorLoad, turned)], order="post")
        indices = [substitute(i, mapping) for i in self.part.indices]
        store = tirx.BufferStore(self.part.buffers[0], substitute(value, mapping), indices)
        return self._rounds(step, tirx.IfThenElse(guard, store, None))

    def _at(self, buffer, local_along, local_across):
        pitch = int(buffer.shape[0]) // self.across
        return local_across * self._const(pitch) + local_along

    def _rounds(self, step, body):
        return tirx.For(step, self._const(0), self._const(self.rounds), tirx.ForKind.SERIAL, body)


def _chooses(value) -> bool:
    """Does a value hold a choice? What is chosen may lie out of bounds elsewhere."""
    calls: list = []
    tvm_ffi.structural_walk(value, [(tvm.ir.Call, calls.append)])
    return any(is_choice(call) for call in calls)


def _crossed_axis(load, rows: Sequence[Axis]) -> int | None:
    """Return the row axis that a load walks contiguously, where that is not the last."""
    index = moving_index(load)
    if not isinstance(index, tirx.Var):
        return None
    used = set().union(*map(variables, load.indices))
    if not any(axis.var in used for axis in rows[-1:]):
        return None
    for place, axis in enumerate(rows[:-1]):
        if axis.var.same_as(index) and any(after.var in used for after in rows[place + 1 :]):
            return place
    return None


def _lies_before(load, first: Axis, second: Axis) -> bool:
    """Do the two axes index neighbouring dimensions of a load, the second over all of its own?"""
    for before, index, dim in zip(load.indices, load.indices[1:], load.source.shape[1:]):
        if isinstance(before, tirx.Var) and isinstance(index, tirx.Var):
            whole = as_int(dim) is not None and as_int(dim) == second.extent
            if before.same_as(first.var) and index.same_as(second.var) and whole:
                return True
    return False


def _count(axes: Sequence[Axis]):
    return product([axis.size for axis in axes])


def _power_from(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
