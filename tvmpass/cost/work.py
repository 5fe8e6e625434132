"""Count the work that a TIR function does, as its loops are written.

One walk in Python over loops, blocks and stores (about 0.5 ms per kernel).
An expression is counted once per statement however often it is written, and
as often as the outermost loop it depends on demands: that is what the code
generator's common-subexpression and loop-invariant passes make of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from .affine import IRREGULAR, Affine, IndexReader, irregular
from .extents import extent_value
from .operations import (
    ARITHMETIC,
    CHEAP_CALLS,
    INTRINSICS,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Array,
    Loop,
    Work,
)
from .traffic import Access, traffic


def measure(
    func: tirx.PrimFunc,
    caches: Sequence[float],
    example_extents: Mapping[str, int] | None = None,
) -> Work:
    """Count the work of ``func``.

    ``caches`` are the sizes in bytes of the cache levels, smallest first;
    ``example_extents`` gives symbolic dimensions a value by name.
    """
    walker = Walker(caches, example_extents or {})
    for parameter in func.params:
        if tirx.buffer.is_buffer_var(parameter):
            walker.declare(parameter, parameter=True)
    walker.statement(func.body)
    return walker.work


class Walker:
    """Walks a function statement by statement and counts into `work`."""

    def __init__(self, caches: Sequence[float], example_extents: Mapping[str, int]):
        self.work = Work()
        self.caches = caches
        self.examples = example_extents
        self.loops: list[Loop] = []
        self.environment: dict[int, Affine] = {}
        self.lets: dict[int, tuple[int, int]] = {}
        self.reader = IndexReader(
            self.environment, lambda depth: self.loops[depth].extent, self._load_in_index
        )
        self.seen: dict[tuple, tuple[int, int]] = {}
        self.visited: dict[int, tuple[int, int]] = {}
        self.sizes: dict[int, float] = {}
        self.read_here: set[int] = set()
        self.accumulator = 0
        self.accesses: list[Access] = []
        self.extents: list[float] = []
        self.times_of: dict[int, float] = {}
        self.vector = -1
        self.fast = -1

    def declare(self, buffer, parameter: bool = False) -> Array:
        """Note a buffer; strides are row-major where none are given."""
        ty = buffer.ty
        shape = tuple(self.extent(e) for e in ty.shape)
        strides = tuple(self.extent(e) for e in ty.strides)
        if not strides:
            running, reverse = 1.0, []
            for size in reversed(shape):
                reverse.append(running)
                running *= size
            strides = tuple(reversed(reverse))
        item = item_bytes(str(ty.dtype))
        array = Array(shape, item, strides, parameter, str(ty.storage_scope) not in ("", "global"))
        self.work.arrays[hash(buffer)] = array
        return array

    def extent(self, expr) -> float:
        return extent_value(expr, self.examples)

    def statement(self, stmt) -> None:
        kind = type(stmt)
        if kind is tirx.For:
            self._loop(stmt)
        elif kind is tirx.SeqStmt:
            for part in stmt.seq:
                self.statement(part)
        elif kind is s_tir.SBlockRealize:
            self._block(stmt)
        elif kind is tirx.BufferStore:
            self._store(stmt)
        elif kind is tirx.IfThenElse:
            self._enter_statement()
            self._guard(self.value(stmt.condition)[1])
            self.statement(stmt.then_case)
            if stmt.else_case is not None:
                self.statement(stmt.else_case)
        elif kind in (tirx.LetStmt, tirx.Bind):
            self._enter_statement()
            self._bind(stmt.var, stmt.value)
            if kind is tirx.LetStmt and getattr(stmt, "body", None) is not None:
                self.statement(stmt.body)
        elif kind in (tirx.AllocBuffer, tirx.DeclBuffer):
            if hash(stmt.buffer) not in self.work.arrays:
                self.declare(stmt.buffer)
        elif kind is tirx.Evaluate:
            self._enter_statement()
            self.value(stmt.value)
        elif getattr(stmt, "body", None) is not None:
            self.statement(stmt.body)

    def _loop(self, loop) -> None:
        extent = self.extent(loop.extent)
        if extent <= 1.0:  # never turns: neither a dependence nor overhead
            self.environment[hash(loop.loop_var)] = {}
            self.statement(loop.body)
            return
        kind = int(loop.kind)
        self.environment[hash(loop.loop_var)] = {len(self.loops): 1.0}
        self.loops.append(Loop(extent, kind))
        self.extents.append(extent)
        work = self.work
        work.depth = max(work.depth, len(self.loops))
        if kind in (SERIAL, PARALLEL):
            work.count("iterations", math.prod(self.extents))
        if kind in (PARALLEL, THREAD):
            parallel = extent
            for outer in self.loops[:-1]:
                parallel *= outer.extent if outer.kind in (PARALLEL, THREAD) else 1.0
            work.parallel = max(work.parallel, parallel)
        self.statement(loop.body)
        self.loops.pop()
        self.extents.pop()

    def _block(self, realize) -> None:
        block = realize.block
        for buffer in block.alloc_buffers:
            self.declare(buffer)
        reduction = 1.0
        marked: list[Loop] = []
        values = realize.iter_values
        for index, axis in enumerate(block.iter_vars):
            steps = self.reader.read(values[index])
            self.environment[hash(axis.var)] = steps
            if int(axis.iter_type) == 2:
                for depth in steps:
                    loop = self.loops[depth]
                    if not loop.reduces:
                        loop.reduces = True
                        marked.append(loop)
                        reduction *= loop.extent
        if type(realize.predicate) is not tirx.IntImm:
            self._enter_statement()
            self._guard(self.value(realize.predicate)[1])
        if block.init is not None:
            # Without decompose_reduction the first iteration is told by a test in every one.
            self._guard((1 << len(self.loops)) - 1)
            self._init(block.init)
        self.work.reduction = max(self.work.reduction, reduction)
        self.statement(block.body)
        for loop in marked:
            loop.reduces = False

    def _init(self, init) -> None:
        whole = self.extents
        self.extents = [1.0 if loop.reduces else loop.extent for loop in self.loops]
        self.statement(init)
        self.extents = whole

    def _guard(self, mask: int) -> None:
        self._enter_statement()
        self.count("guard", mask)

    def _enter_statement(self) -> None:
        """Forget what was seen: values are shared within one statement only."""
        self.seen = {}
        self.visited = {}
        self.sizes = {}
        self.times_of = {}
        self.read_here = set()
        self.accesses = []
        self.vector = next((i for i, loop in enumerate(self.loops) if loop.kind == VECTORIZED), -1)
        self.fast = self.vector if self.vector >= 0 else len(self.loops) - 1

    def _times(self, mask: int) -> float:
        """Return how often a value that depends on the loops of ``mask`` is computed.

        Inner loops that it does not depend on are left out (it moves before
        them), and so are unrolled ones further out (their copies are shared).
        """
        times = self.times_of.get(mask)
        if times is None:
            times = 1.0
            for depth in range(min(mask.bit_length(), len(self.loops))):
                if mask >> depth & 1 or self.loops[depth].kind not in (UNROLLED, VECTORIZED):
                    times *= self.extents[depth]
            self.times_of[mask] = times
        return times

    def count(self, what: str, mask: int) -> None:
        vector = self.vector >= 0 and mask >> self.vector & 1
        self.work.count(what + ".v" if vector else what, self._times(mask))

    def _store(self, store) -> None:
        self._enter_statement()
        work = self.work
        work.statements += 1
        self.accumulator = hash(store.buffer) if any(loop.reduces for loop in self.loops) else 0
        number, mask = self.value(store.value)
        work.written = max(work.written, self.sizes.get(number, 1.0))
        updates = self.accumulator in self.read_here
        self.accumulator = 0
        array = self._array(store.buffer)
        array.stored = True
        steps = [self.reader.read(index) for index in store.indices]
        if updates:  # the accumulators stay in registers: no load or store per step
            self._reduction_update((1 << len(self.loops)) - 1)
        else:
            self.count("store." + self._stride_class(array, steps), mask | mask_of(steps))
        self._access(array, steps)
        inner = 1.0
        for loop in self.loops:
            if loop.kind in (UNROLLED, VECTORIZED):
                inner *= loop.extent
        lanes = self.loops[self.vector].extent if self.vector >= 0 else 1.0
        work.lanes = max(work.lanes, lanes)
        work.unrolled = max(work.unrolled, inner / lanes)
        work.code += inner / lanes * (1 + len(self.seen))
        extents = [loop.extent for loop in self.loops]
        for level, moved in enumerate(traffic(self.accesses, extents, self.caches)):
            work.moved[level] += moved

    def _reduction_update(self, mask: int) -> None:
        """Count multiply-adds and how many of them wait for one another."""
        outermost = next(i for i, loop in enumerate(self.loops) if loop.reduces)
        tile = 1.0
        for loop in self.loops[outermost:]:
            if not loop.reduces:
                tile *= loop.extent
        self.work.tile = max(self.work.tile, tile)
        self.count("fma", mask)
        self.work.count("chain", self._times(mask) / tile)

    def _array(self, buffer) -> Array:
        found = self.work.arrays.get(hash(buffer))
        return found if found is not None else self.declare(buffer)

    def _stride_class(self, array: Array, steps: Sequence[Affine]) -> str:
        """Say how an access moves with the fastest loop: unit, same, strided, gather."""
        if self.fast < 0:
            return "unit"
        total = 0.0
        for stride, step in zip(array.strides, steps):
            moved = step.get(self.fast, 0.0)
            # A fraction is an outer index of a flat loop: it rests for most iterations.
            total += stride * moved if stride and abs(moved) >= 1.0 else 0.0
        if total != total or abs(total) == IRREGULAR:
            return "gather"
        if abs(total) < 1.0:
            return "same"
        return "unit" if abs(total) == 1.0 else "strided"

    def _access(self, array: Array, steps: Sequence[Affine]) -> None:
        self.accesses.append(Access(tuple(zip(steps, array.shape)), array.item_bytes))

    def _load_in_index(self, load) -> Affine:
        mask = self.value(load)[1]
        return irregular({i: 1.0 for i in range(mask.bit_length()) if mask >> i & 1})

    def value(self, expr) -> tuple[int, int]:
        """Count ``expr``; return its number in this statement and its loops as bits."""
        kind = type(expr)
        if kind is tirx.Var:
            return self._variable(hash(expr))
        if kind is tirx.IntImm or kind is tirx.FloatImm:
            return hash((kind, expr.value)), 0
        # Inlining shares subtrees: each is walked once, or the walk would be exponential.
        address = hash(expr)
        found = self.visited.get(address)
        if found is None:
            found = self.visited[address] = self._compound(kind, expr)
        return found

    def _variable(self, address: int) -> tuple[int, int]:
        bound = self.lets.get(address)
        if bound is not None:
            return bound
        steps = self.environment.get(address)
        return address, 0 if steps is None else mask_of([steps])

    def _compound(self, kind: type, expr) -> tuple[int, int]:
        if kind is tvm.ir.TensorLoad:
            return self._load(expr)
        operation = ARITHMETIC.get(kind)
        if operation is not None:
            return self._apply(operation, (kind, self.value(expr.a), self.value(expr.b)))
        if kind is tvm.ir.Call:
            return self._call(expr)
        if kind is tirx.Cast:
            return self._apply("cast", (kind, str(expr.ty), self.value(expr.value)))
        if kind is tirx.Select:
            parts = (self.value(expr.condition), self.value(expr.true_value), self.value(expr.false_value))
            return self._apply("select", (kind, *parts))
        if kind is tirx.Not:
            return self._apply("select", (kind, self.value(expr.a)))
        if kind is tirx.Let:
            self._bind(expr.var, expr.value)
            return self.value(expr.body)
        if kind is tirx.Broadcast:
            return self.value(expr.value)
        return hash(expr), 0

    def _bind(self, var, value) -> None:
        """Note what a Let gives a name: its loops, and as an index its steps."""
        self.lets[hash(var)] = number, _ = self.value(value)
        self.sizes.setdefault(number, 1.0)
        self.sizes[number] = min(self.sizes[number], 1.0)  # read by name from here on
        if not str(value.ty).startswith(("float", "bfloat")):
            self.environment[hash(var)] = self.reader.read(value)

    def _apply(self, operation: str, key: tuple) -> tuple[int, int]:
        found = self.seen.get(key)
        if found is None:
            mask, size = 0, 1.0
            for part in key:
                if type(part) is tuple:
                    mask |= part[1]
                    size += self.sizes.get(part[0], 1.0)
            number = len(self.seen) + 1
            found = self.seen[key] = (number, mask)
            self.sizes[number] = size
            self.count(operation, mask)
        return found

    def _call(self, call) -> tuple[int, int]:
        name = str(getattr(call.op, "name", call.op)).rsplit(".", 1)[-1]
        arguments = call.args
        parts = tuple(self.value(arguments[i]) for i in range(len(arguments)))
        if name == "if_then_else":
            operation = "branch"
        elif name in INTRINSICS:
            operation = INTRINSICS[name]
        else:
            operation = "add" if name in CHEAP_CALLS else "call"
        return self._apply(operation, (name, *parts))

    def _load(self, load) -> tuple[int, int]:
        buffer = load.source
        array = self._array(buffer)
        steps = [self.reader.read(index) for index in load.indices]
        key = ("load", tvm_ffi.structural_hash(load))
        found = self.seen.get(key)
        if found is None:
            mask = mask_of(steps)
            found = self.seen[key] = (len(self.seen) + 1, mask)
            self.read_here.add(hash(buffer))
            array.loaded = True
            if hash(buffer) != self.accumulator:
                self.count("load." + self._stride_class(array, steps), mask)
            self._access(array, steps)
        return found


def mask_of(steps: Sequence[Affine]) -> int:
    """Return the loops that some steps depend on, as bits."""
    mask = 0
    for affine in steps:
        for depth in affine:
            mask |= 1 << depth
    return mask


def item_bytes(dtype: str) -> float:
    """Return the bytes of one scalar of ``dtype``."""
    digits = "".join(c for c in dtype.split("x")[0] if c.isdigit())
    return max(1.0, int(digits) / 8) if digits else 1.0
