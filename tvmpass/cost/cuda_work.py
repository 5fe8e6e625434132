"""Walk a scheduled CUDA PrimFunc and count what its device launches do.

The function is first brought to the form in which buffers have their real
sizes and reductions across threads are spelled out, by the passes that code
generation runs too; no compiler takes part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.cuda_arch import WARP

from .affine import IRREGULAR, Affine
from .cuda_lanes import SECTOR_BYTES, WIDEST_BYTES, Irregular, conflicts, sectors
from .cuda_launch import CudaWork, GlobalAccess
from .cuda_tensor import TENSOR_CALLS, tensor_work
from .cuda_walk import LaunchWalker
from .operations import ARITHMETIC, THREAD, UNROLLED, VECTORIZED, Array
from .traffic import Access, Footprint
from .work import mask_of

_FLOATS = ("float", "bfloat")


def measure_cuda(func: tirx.PrimFunc, example_extents: Mapping[str, int] | None = None) -> CudaWork:
    """Count the work of ``func``, which binds its loops to blocks and threads.

    What is bound to none runs in one thread.  ``example_extents`` gives
    symbolic dimensions a value by name.
    """
    func = compacted(func)
    walker = _CudaWalker(example_extents or {})
    for parameter in func.params:
        if tirx.buffer.is_buffer_var(parameter):
            walker.declare(parameter, parameter=True)
    walker.statement(func.body)
    walker.close()
    return CudaWork(walker.launches, walker.arrays)


def compacted(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` with buffers at the size and place at which a kernel holds them."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    module = tvm.IRModule({"main": func})
    passes = s_tir.transform
    for step in (
        passes.LowerCrossThreadReduction(),
        passes.LowerInitBlock(),
        passes.PlanAndUpdateBufferAllocationLocation(),
        passes.ConvertBlocksToOpaque(),
        passes.LiftThreadBinding(),
        passes.CompactBufferAllocation(),
    ):
        module = step(module)
    return module["main"]


class _CudaWalker(LaunchWalker):
    """Counts operations, memory and synchronisation; `Walker` tells what is computed how often."""

    # Values

    def _compound(self, kind: type, expr) -> tuple[int, int]:
        operation = ARITHMETIC.get(kind)
        if operation is None:
            return super()._compound(kind, expr)
        parts = (self.value(expr.a), self.value(expr.b))
        dtype = str(expr.a.ty)
        if not dtype.startswith(_FLOATS):
            operation = "idiv" if operation == "idiv" and not _power_of_two(expr.b) else "integer"
        elif dtype.startswith("float64"):
            operation = "double"
        elif kind is tirx.Add and tirx.Mul in (type(expr.a), type(expr.b)):
            operation = "fma"  # with the product that `mul` has counted
        return self._apply(operation, (kind, *parts))

    def _call(self, call) -> tuple[int, int]:
        name = str(getattr(call.op, "name", "")).rsplit(".", 1)[-1]
        if name != "if_then_else":
            return super()._call(call)
        condition = self.value(call.args[0])
        taken = self._push(call.args[0])
        chosen = self.value(call.args[1])
        self.guards.pop()
        self.guards.append(~taken)
        other = self.value(call.args[2])
        self.guards.pop()
        return self._apply("branch", (name, condition, chosen, other))

    def _load(self, load) -> tuple[int, int]:
        array = self._array(load.source)
        steps = [self.reader.read(index) for index in load.indices]
        key = ("load", tvm_ffi.structural_hash(load))
        found = self.seen.get(key)
        if found is None:
            mask = mask_of(steps) | self._renewed(hash(load.source))
            found = self.seen[key] = (len(self.seen) + 1, mask)
            self.read_here.add(hash(load.source))
            array.loaded = True
            if hash(load.source) != self.accumulator:
                self._touch(load.source, array, load.indices, steps, mask, stored=False)
        return found

    def _renewed(self, buffer: int) -> int:
        """Return the loops of a thread, as bits, in each iteration of which a buffer is written anew."""
        mask = 0
        for depth, (mine, writers) in enumerate(zip(self.loops, self.written_in.get(buffer, ()))):
            if mine is not writers:
                break
            mask |= (mine.kind != THREAD) << depth
        return mask

    def _store(self, store) -> None:
        self._enter_statement()
        work, launch = self.work, self.launch
        work.statements += 1
        self.accumulator = hash(store.buffer)
        number, mask = self.value(store.value)
        self.accumulator = 0
        updates = hash(store.buffer) in self.read_here
        work.written = max(work.written, self.sizes.get(number, 1.0))
        array = self._array(store.buffer)
        array.stored = True
        self.written_in[hash(store.buffer)] = list(self.loops)
        steps = [self.reader.read(index) for index in store.indices]
        kept = mask_of(steps)
        # An accumulator is kept in a register until the loops that it sums over are done.
        self._touch(store.buffer, array, store.indices, steps, kept if updates else mask | kept, stored=True)
        inner = 1.0
        for loop in self.loops[self.outer :]:
            if loop.kind in (UNROLLED, VECTORIZED):
                inner *= loop.extent
        loads = sum(1 for key in self.seen if key[0] == "load")
        launch.temporaries = max(launch.temporaries, min(32.0, loads * min(inner, 8.0)))
        work.code += inner * (1 + len(self.seen))
        if updates:
            own = [i for i, loop in enumerate(self.loops) if loop.kind != THREAD and kept >> i & 1]
            together = math.prod(self.extents[i] for i in own)
            launch.accumulators = max(launch.accumulators, together)

    # Memory

    def _touch(self, buffer, array: Array, indices, steps: Sequence[Affine], mask: int, stored: bool) -> None:
        """Count a load or store by where its threads go."""
        scope = self.scopes.get(hash(buffer), "")
        shared = scope.startswith("shared")
        if not shared and scope not in ("", "global"):
            return
        width, per_vector = self._width(array, steps)
        times = self._times(mask) * per_vector / self.launch.threads
        active = self.active
        for guard in self.guards:
            active = active & guard
        steps_before, divisions_before = self.lanes.steps, self.lanes.divisions
        try:
            offsets = sum(self.lanes.read(i) * int(s) for i, s in zip(indices, array.strides))
            addresses = np.broadcast_to(np.asarray(offsets * int(array.item_bytes)), active.shape)
        except Irregular:
            addresses = None
        # What threads add up once is moved before their loops; a division mixes the two.
        self.launch.index_steps += (self.lanes.steps - steps_before) * self.launch.all_threads
        divisions = self.lanes.divisions - divisions_before
        self.launch.index_divisions += divisions * times * self.launch.threads
        if shared:
            self._shared(buffer, addresses, active, width, times, stored)
        else:
            self._global(buffer, array, steps, addresses, active, width, times, stored)

    def _width(self, array: Array, steps: Sequence[Affine]) -> tuple[int, float]:
        """Return the bytes of one access of a thread, and the accesses per element."""
        item = max(1, int(array.item_bytes))
        if self.vector < 0:
            return item, 1.0
        lanes = self.loops[self.vector].extent
        moved = sum(stride * step.get(self.vector, 0.0) for stride, step in zip(array.strides, steps))
        if moved == 1.0:
            width = int(min(WIDEST_BYTES, item * lanes))
            return width, item / width
        return item, 1.0 / lanes if moved == 0.0 and mask_of(steps) >> self.vector & 1 else 1.0

    def _shared(self, buffer, addresses, active, width: int, times: float, stored: bool) -> None:
        launch = self.launch
        if addresses is None:
            addresses = np.arange(len(active)) * width
        passes, fewest = conflicts(addresses, active, width)
        launch.shared_requests += times * _warps(active)
        launch.shared_passes += times * passes
        launch.shared_fewest += times * fewest
        self._synchronise(hash(buffer), stored)

    def _synchronise(self, buffer: int, stored: bool) -> None:
        """Count the barrier between writing shared memory and reading it in other threads."""
        if stored:
            self.dirty[buffer] = list(self.loops)
            return
        writer = self.dirty.get(buffer)
        if writer is None:
            return
        times = 1.0
        for mine, theirs in zip(self.loops[self.outer :], writer[self.outer :]):
            if mine is not theirs:
                break
            times *= mine.extent if mine.kind != THREAD else 1.0
        self.launch.barriers += times * (2.0 if times > 1.0 else 1.0)  # in a loop, also before the next round
        self.dirty.clear()

    def _global(
        self, buffer, array, steps, addresses, active, width: int, times: float, stored: bool
    ) -> None:
        footprint = Footprint(Access(self._dims(array, steps), array.item_bytes), SECTOR_BYTES)
        block_bytes = 0.0
        for depth in range(len(self.loops) - 1, self.outer - 1, -1):
            if not block_bytes and self.loops[depth].tag.startswith("block"):
                block_bytes = footprint.bytes()
            footprint.grow(depth, self.loops[depth].extent)
        unique = footprint.bytes()
        lanes = int(active.sum())
        if addresses is None:  # each thread somewhere else
            touched = lanes * max(1.0, width / SECTOR_BYTES)
        else:
            touched = float(sectors(addresses, active))
        self.launch.accesses.append(
            GlobalAccess(
                hash(buffer), stored, addresses is None, width, times * _warps(active), times * touched,
                times * lanes * width, min(block_bytes or unique, unique), unique,
            )
        )  # fmt: skip
        if self.asynchronous and not stored:
            self.launch.async_bytes += times * lanes * width

    def _dims(self, array: Array, steps: Sequence[Affine]) -> tuple[tuple[Affine, float], ...]:
        """Return steps and extent per dimension; of a flat index that runs past its row, as one."""
        if len(steps) > 1 and not any(steps[:-1]) and IRREGULAR not in steps[-1].values():
            reach = sum(abs(step) * (self.extents[loop] - 1.0) for loop, step in steps[-1].items())
            if reach >= array.shape[-1]:
                return ((steps[-1], math.prod(array.shape)),)
        return tuple(zip(steps, array.shape))

    # Calls that stand for instructions of a warp

    def _evaluate(self, call) -> None:
        self._enter_statement()
        name = str(getattr(call.op, "name", "")).rsplit(".", 1)[-1]
        if name == "tvm_thread_allreduce":
            self._allreduce(call)
        elif name == "tvm_storage_sync":
            self.launch.barriers += math.prod(
                loop.extent for loop in self.loops[self.outer :] if loop.kind != THREAD
            )
        elif name not in TENSOR_CALLS:
            self.value(call)

    def _allreduce(self, call) -> None:
        """Shuffles within a warp, and where more than one reduces, shared memory between them."""
        axes = [a for a in call.args if type(a) is tirx.Var]
        tags = {depth: self.loops[depth].extent for a in axes for depth in self.reader.read(a)}
        lanes = math.prod(e for depth, e in tags.items() if self.loops[depth].kind == THREAD)
        times = self._times((1 << len(self.loops)) - 1)
        self.launch.shuffles += times * math.ceil(math.log2(max(2.0, min(lanes, WARP))))
        if lanes > WARP:
            self.launch.barriers += 2.0 * times / self.launch.threads / self.launch.blocks
            self.launch.shared_bytes += 4.0 * WARP
            self.launch.shuffles += times * math.ceil(math.log2(lanes / WARP))

    def _tensor(self, call, block) -> None:
        """Count a block that was replaced by instructions of the tensor cores."""
        self._enter_statement()
        times = self._times((1 << len(self.loops)) - 1) / WARP
        found = tensor_work(call, block, self.extent, self._strides)
        launch = self.launch
        launch.mma += times * found.multiply_adds
        launch.shared_requests += times * found.shared_requests
        launch.shared_passes += times * found.shared_passes
        launch.shared_fewest += times * found.shared_fewest
        self.work.statements += 1
        for region in block.reads:
            if self.scopes.get(hash(region.source), "").startswith("shared"):
                self._synchronise(hash(region.source), stored=False)
        for region in block.writes:
            if self.scopes.get(hash(region.source), "").startswith("shared"):
                self._synchronise(hash(region.source), stored=True)

    def _strides(self, buffer) -> tuple[float, ...]:
        return self._array(buffer).strides


def _power_of_two(expr) -> bool:
    return type(expr) is tirx.IntImm and expr.value & (expr.value - 1) == 0


def _warps(active: np.ndarray) -> int:
    """Return the warps of a block in which some thread is active."""
    return int(np.logical_or.reduceat(active, np.arange(0, len(active), WARP)).sum())
