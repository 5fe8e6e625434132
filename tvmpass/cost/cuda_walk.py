"""Follow the device launches of a CUDA PrimFunc: axes, loops, guards, buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.cuda_arch import WARP

from .cuda_lanes import Irregular, LaneReader
from .cuda_launch import Launch
from .cuda_tensor import FRAGMENT, tensor_call
from .operations import PARALLEL, SERIAL, THREAD, UNROLLED, VECTORIZED, Array, Loop, Work
from .work import Walker

_PIPELINE_STAGES = "software_pipeline_stage"
_ASYNC_STAGES = "software_pipeline_async_stages"
_UNROLL = "pragma_auto_unroll_max_step"
_UNROLLED_ANYWAY = 64
"""Iterations of a nest of constant loops that the CUDA compiler unrolls unasked."""


def thread_axes(node: Any, extent_of) -> dict[str, float]:
    """Return the CUDA axes that ``node`` and what is in it bind, blocks first."""
    found: dict[str, float] = {}

    def note(tag: str, extent) -> None:
        if tag.startswith(("blockIdx", "threadIdx")):
            found[tag] = max(found.get(tag, 1.0), extent_of(extent))

    def loop(node) -> None:
        if node.thread_binding is not None:
            note(str(node.thread_binding.thread_tag), node.extent)

    def attr(node) -> None:
        if node.attr_key == "thread_extent":
            note(str(node.node.thread_tag), node.value)

    tvm_ffi.structural_walk(node, [(tirx.For, loop), (tirx.AttrStmt, attr)])
    return dict(sorted(found.items()))


class LaunchWalker(Walker):
    """Follows blocks and threads; what a statement costs, a subclass counts (`cuda_work`)."""

    def __init__(self, examples: Mapping[str, int]):
        super().__init__((), examples)
        self.launches: list[Launch] = []
        self._open: Launch | None = None
        self.arrays: dict[int, Array] = self.work.arrays
        self.scopes: dict[int, str] = {}
        self.values: dict[int, int | np.ndarray] = {}
        self.lanes = LaneReader(self.values, examples)
        self.axes: dict[str, int] = {}
        self.active = np.ones(1, dtype=bool)
        self.outer = 0
        self.guards: list[np.ndarray] = []
        self.versions = 1.0
        self.asynchronous = False
        self.unrolls = float(_UNROLLED_ANYWAY)
        self.nest = 1.0
        self.unrolled_from = 0
        self.dirty: dict[int, list[Loop]] = {}
        self.written_in: dict[int, list[Loop]] = {}

    # Launches

    @property
    def launch(self) -> Launch:
        """Return the open launch."""
        assert self._open is not None
        return self._open

    def _ensure_launch(self) -> None:
        """Open a launch of one thread for code that is bound to none."""
        if self._open is None:
            self.open({})

    def open(self, axes: Mapping[str, float]) -> None:
        """Begin a device launch over ``axes``; none of them means one thread."""
        grid = {tag: size for tag, size in axes.items() if tag.startswith("block")}
        block = {tag: size for tag, size in axes.items() if tag.startswith("thread")}
        self.outer = len(self.loops)
        launch = self._open = Launch(grid, block, math.prod(self.extents), Work(arrays=self.arrays))
        self.launches.append(launch)
        self.work = launch.work
        self.lanes.forget()
        for tag, extent in axes.items():
            if extent > 1.0:
                self.axes[tag] = len(self.loops)
                self.loops.append(Loop(extent, THREAD, tag=tag))
                self.extents.append(extent)
        self.active = np.ones(int(launch.threads), dtype=bool)

    def close(self) -> None:
        """End the launch, if one is open."""
        if self._open is None:
            return
        del self.loops[self.outer :], self.extents[self.outer :]
        self._open, self.axes, self.dirty = None, {}, {}

    def _bind_axis(self, variable, tag: str) -> None:
        """Let a variable stand for an axis of the open launch."""
        depth = self.axes.get(tag)
        self.environment[hash(variable)] = {} if depth is None else {depth: 1.0}
        self.values[hash(variable)] = 0 if depth is None else self._lane_values(tag)

    def _lane_values(self, tag: str) -> int | np.ndarray:
        """Return an axis' value per thread; of the blocks, the middle one stands for all."""
        launch = self.launch
        if tag in launch.grid:
            return int(launch.grid[tag]) // 2
        sizes = [int(launch.block.get(f"threadIdx.{axis}", 1)) for axis in "xyz"]
        position = "xyz".index(tag[-1])
        threads = np.arange(math.prod(sizes))
        return threads // math.prod(sizes[:position]) % sizes[position]

    # Statements

    def statement(self, stmt) -> None:
        kind = type(stmt)
        if kind is tirx.AttrStmt and stmt.attr_key in ("thread_extent", "virtual_thread"):
            self._axis(stmt.node.var, stmt.value, str(stmt.node.thread_tag), stmt)
        elif kind is tirx.IfThenElse and self._open is not None:
            self._if(stmt)
        elif kind is tirx.Evaluate and isinstance(stmt.value, tvm.ir.Call):
            self._evaluate(stmt.value)
        else:
            super().statement(stmt)

    def _axis(self, variable, extent, tag: str, node) -> None:
        if not tag.startswith(("blockIdx", "threadIdx")):
            self._serial(variable, self.extent(extent), UNROLLED, node.body)
            return
        opened = self._open is None
        if opened:
            self.open(thread_axes(node, self.extent))
        self._bind_axis(variable, tag)
        self.statement(node.body)
        if opened:
            self.close()

    def _loop(self, loop) -> None:
        outer = self.unrolls
        steps = loop.annotations.get(_UNROLL) if loop.annotations else None
        if steps is not None:
            self.unrolls = max(self.unrolls, float(steps))
        if loop.thread_binding is not None:
            self._axis(loop.loop_var, loop.extent, str(loop.thread_binding.thread_tag), loop)
        else:
            self._own_loop(loop)
        self.unrolls = outer

    def _own_loop(self, loop) -> None:
        kind = int(loop.kind)
        stages = _numbers(loop.annotations, _PIPELINE_STAGES)
        if not stages:
            self._serial(loop.loop_var, self.extent(loop.extent), kind, loop.body)
            return
        versions, asynchronous = self.versions, self.asynchronous
        self.versions *= max(stages) - min(stages) + 1.0
        self.asynchronous |= bool(_numbers(loop.annotations, _ASYNC_STAGES))
        if self._open is not None:
            self._open.stages = max(self._open.stages, self.versions)
        self._serial(loop.loop_var, self.extent(loop.extent), kind, loop.body)
        self.versions, self.asynchronous = versions, asynchronous

    def _serial(self, variable, extent: float, kind: int, body) -> None:
        self.values[hash(variable)] = 0
        if extent <= 1.0:
            self.environment[hash(variable)] = {}
            self.statement(body)
            return
        self.environment[hash(variable)] = {len(self.loops): 1.0}
        self.loops.append(Loop(extent, SERIAL if kind == PARALLEL else kind))
        self.extents.append(extent)
        self.work.depth = max(self.work.depth, len(self.loops))
        beside, self.nest = self.nest, 1.0
        self.statement(body)
        self.nest *= extent
        if kind not in (UNROLLED, VECTORIZED) and self.nest > self.unrolls and self._open is not None:
            self.work.count("iterations", math.prod(self.extents))
        self.nest = max(self.nest, beside)
        self.loops.pop()
        self.extents.pop()

    def _block(self, realize) -> None:
        block = realize.block
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        for axis, value in zip(block.iter_vars, realize.iter_values):
            self.environment[hash(axis.var)] = self.reader.read(value)
            self.values[hash(axis.var)] = self._lane_value(value)
        guarded = type(realize.predicate) is not tirx.IntImm
        if guarded:
            self._enter_statement()
            self._guard(self.value(realize.predicate)[1])
            self._push(realize.predicate)
        call = tensor_call(block.body)
        if call is not None:
            self._tensor(call, block)
        else:
            if block.init is not None:
                self.statement(block.init)
            self.statement(block.body)
        if guarded:
            self.guards.pop()

    def _if(self, stmt) -> None:
        self._enter_statement()
        self._guard(self.value(stmt.condition)[1])
        taken = self._push(stmt.condition)
        self.statement(stmt.then_case)
        self.guards.pop()
        if stmt.else_case is not None:
            self.guards.append(~taken)
            self.statement(stmt.else_case)
            self.guards.pop()

    def _push(self, condition) -> np.ndarray:
        """Note the threads that a condition lets through, all where it is not known."""
        self._ensure_launch()
        try:
            taken = np.broadcast_to(np.asarray(self.lanes.read(condition), dtype=bool), self.active.shape)
        except Irregular:
            taken = np.ones_like(self.active)
        self.guards.append(taken)
        return taken

    def _lane_value(self, expr) -> int | np.ndarray:
        try:
            return self.lanes.read(expr)
        except Irregular:
            return 0

    def _enter_statement(self) -> None:
        self._ensure_launch()
        super()._enter_statement()
        self.unrolled_from, size = len(self.loops), 1.0
        while self.unrolled_from and self.loops[self.unrolled_from - 1].kind != THREAD:
            size *= self.extents[self.unrolled_from - 1]
            if size > self.unrolls:
                break
            self.unrolled_from -= 1

    def _times(self, mask: int) -> float:
        """Return how often all threads together compute what depends on the loops of ``mask``.

        Every thread computes for itself; of the loops within a thread, those are
        left out that `Walker` leaves out, where the compiler unrolls them too.
        """
        times = self.times_of.get(mask)
        if times is None:
            times = 1.0
            length = mask.bit_length()
            for depth, loop in enumerate(self.loops):
                copies = depth >= self.unrolled_from or loop.kind in (UNROLLED, VECTORIZED)
                inner = depth < length and (mask >> depth & 1 or not copies)
                if inner or depth < self.outer or loop.kind == THREAD:
                    times *= self.extents[depth]
            self.times_of[mask] = times
        return times

    def count(self, what: str, mask: int) -> None:
        self.work.count(what, self._times(mask))

    # Buffers

    def declare(self, buffer, parameter: bool = False) -> Array:
        self.scopes[hash(buffer)] = str(buffer.ty.storage_scope)
        return super().declare(buffer, parameter)

    def _allocate(self, buffer) -> None:
        """Declare a buffer of a block, and note what it takes of shared memory or registers."""
        array = self.declare(buffer)
        scope, launch = self.scopes[hash(buffer)], self._open
        if launch is None or scope in ("", "global"):
            return
        size = array.item_bytes * max(1.0, array.strides[0] * array.shape[0] if array.shape else 1.0)
        size *= self.versions
        if scope.startswith("shared"):
            launch.shared_bytes += size
        elif scope == "local":
            launch.register_bytes += size
        else:  # fragments of tensor cores are spread over a warp
            launch.fragment_bytes += size / WARP
            if scope == "wmma.accumulator":
                launch.accumulators = max(launch.accumulators, math.prod(array.shape) / FRAGMENT)

    def _evaluate(self, call) -> None:
        raise NotImplementedError

    def _tensor(self, call: str, block) -> None:
        raise NotImplementedError


def _numbers(annotations, key: str) -> list[int]:
    found = annotations.get(key) if annotations else None
    return [] if found is None else [int(value) for value in found]
