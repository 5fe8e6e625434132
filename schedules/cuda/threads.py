"""Reductions across threads: shuffles within a warp, shared memory beyond.

Written out for any reducer: TVM's own lowering of such reductions takes only
those it knows, and a maximum that keeps NaN is none of them.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from tvmpass.core.cuda_arch import WARP

from .launch import LANE_LOOP, sequence

_FULL_WARP = 0xFFFFFFFF
_SHUFFLED = ("float32", "float64", "int32", "int64", "uint32", "uint64")
"""What a warp exchanges as it is; other dtypes travel as 32 bits."""


def combine_threads(launch, reducer, accumulators) -> list:
    """Return code after which every thread of a row holds the row's reduction.

    All threads of a block have to run it.
    """
    tiling = launch.tiling
    if tiling.threads == 1:
        return []
    if tiling.across:
        return _through_shared(launch, reducer, accumulators)
    statements = _within_warp(launch, reducer, accumulators)
    if tiling.threads > WARP:
        statements += _between_warps(launch, reducer, accumulators)
    return statements


def _within_warp(launch, reducer, accumulators) -> list:
    others = [launch._buffer(a, 1, "_other") for a in accumulators]
    zero = launch._const(0)
    statements: list = []
    offset = min(launch.tiling.threads, WARP) // 2
    while offset:
        held = [tirx.BufferLoad(a, [zero]) for a in accumulators]
        # Received before it is compared: a shuffle inside a choice would not be run by all threads.
        statements += [tirx.BufferStore(o, _received(h, offset), [zero]) for o, h in zip(others, held)]
        received = [tirx.BufferLoad(o, [zero]) for o in others]
        statements += assign(accumulators, zero, reducer.combine(held, received))
        offset //= 2
    return statements


def _received(value, offset: int):
    dtype = str(value.ty.dtype)
    wide = dtype if dtype in _SHUFFLED else "float32" if "float" in dtype else "int32"
    mask = tirx.const(_FULL_WARP, "uint32")
    width = tirx.const(WARP, "int32")
    sent = value if wide == dtype else tirx.Cast(wide, value)
    made = tirx.call_intrin(
        wide, "tirx.tvm_warp_shuffle_xor", mask, sent, tirx.const(offset, "int32"), width, width
    )
    return made if wide == dtype else tirx.Cast(dtype, made)


def _between_warps(launch, reducer, accumulators) -> list:
    """Combine one value per warp; the block works on one row."""
    warps = launch.tiling.threads // WARP
    shared = [launch._buffer(a, warps, "_warps", "shared") for a in accumulators]
    thread, zero = launch.thread_of_row, launch._const(0)
    first = tirx.EQ(tirx.floormod(thread, launch._const(WARP)), zero)
    warp = tirx.floordiv(thread, launch._const(WARP))
    writes = _stores(shared, warp, accumulators, zero)
    statements: list = [tirx.IfThenElse(first, sequence(writes), None)]
    statements += [
        tirx.BufferStore(a, tirx.BufferLoad(s, [zero]), [zero]) for a, s in zip(accumulators, shared)
    ]
    number = tirx.Var("warp", launch.dtype)
    held = [tirx.BufferLoad(a, [zero]) for a in accumulators]
    others = [tirx.BufferLoad(s, [number + launch._const(1)]) for s in shared]
    body = sequence(assign(accumulators, zero, reducer.combine(held, others)))
    statements.append(tirx.For(number, zero, launch._const(warps - 1), tirx.ForKind.SERIAL, body))
    return statements


def _through_shared(launch, reducer, accumulators) -> list:
    """Combine the threads of a row where neighbouring threads take neighbouring rows."""
    tiling = launch.tiling
    lanes, rows = tiling.lanes, tiling.rows
    width = rows * lanes
    shared = [launch._buffer(a, tiling.threads * width, "_threads", "shared") for a in accumulators]
    lane = launch.lanes.lane if lanes > 1 else launch._const(0)
    place = launch.x * launch._const(lanes) + lane

    def looped(statements: list):
        return launch._lane_loop(statements, LANE_LOOP) if lanes > 1 else sequence(statements)

    writes = _stores(shared, launch.thread_of_row * launch._const(width) + place, accumulators, lane)
    starts = [tirx.BufferStore(a, tirx.BufferLoad(s, [place]), [lane]) for a, s in zip(accumulators, shared)]
    number = tirx.Var("part", launch.dtype)
    other = (number + launch._const(1)) * launch._const(width) + place
    held = [tirx.BufferLoad(a, [lane]) for a in accumulators]
    others = [tirx.BufferLoad(s, [other]) for s in shared]
    update = looped(assign(accumulators, lane, reducer.combine(held, others)))
    size = launch._const(tiling.threads - 1)
    return [
        looped(writes),
        looped(starts),
        tirx.For(number, launch._const(0), size, tirx.ForKind.SERIAL, update),
    ]


def _stores(targets, at, sources, source_at) -> list:
    return [tirx.BufferStore(t, tirx.BufferLoad(s, [source_at]), [at]) for t, s in zip(targets, sources)]


def assign(buffers, at, values) -> list:
    """Return stores of values that may depend on what the buffers held before."""
    if len(buffers) == 1:
        return [tirx.BufferStore(buffers[0], values[0], [at])]
    held = [tirx.Var(f"new{i}", str(value.ty.dtype)) for i, value in enumerate(values)]
    binds: list = []
    if _have_one_condition(values):
        # Once, not in each value: TVM's passes would expand it over and over.
        better = tirx.Var("better", "bool")
        binds.append(tirx.Bind(better, values[0].condition))
        values = [tirx.Select(better, v.true_value, v.false_value) for v in values]
    binds += [tirx.Bind(var, value) for var, value in zip(held, values)]
    return [*binds, *(tirx.BufferStore(b, v, [at]) for b, v in zip(buffers, held))]


def _have_one_condition(values) -> bool:
    """Are all values choices by one and the same condition?"""
    return all(
        isinstance(v, tirx.Select) and tvm_ffi.structural_equal(v.condition, values[0].condition)
        for v in values
    )
