"""Thread-bound loops, and launches of code that has no schedule of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.cuda_arch import MAX_GRID_DIM
from tvmpass.core.nest import as_int, substitute

THREADS = 256
"""Threads of a block where nothing speaks for another number."""

COPY_LOOP, LANE_LOOP, STEP_LOOP = "copy", "lane", "step"
"""Names of the loops over a thread's own elements that `vectorize-lanes` and `unroll-lanes` look for."""

SWEEP_LOOP = "sweep"
"""Name of a loop over many steps of a row, which stays for the CUDA compiler to unroll."""

_THREAD_INDEX = 1


def ceil_div(a, b: int):
    """Return the number of parts of ``b`` that cover ``a``; an int for an int."""
    if isinstance(a, int):
        return -(-a // b)
    return tirx.floordiv(a + (b - 1), tirx.const(b, str(a.ty.dtype)))


def at_least_one(extent):
    """Return a grid extent that is never 0.

    TVM's runtime launches one block for an empty grid.  Where the extent says
    so, the simplifier keeps the test that lets this block do nothing.
    """
    if isinstance(extent, int):
        return max(extent, 1)
    return tirx.max(extent, tirx.const(1, str(extent.ty.dtype)))


def bind(variable, extent, tag: str, body) -> tirx.For:
    """Return ``body`` in a loop bound to ``blockIdx.*`` or ``threadIdx.*``."""
    dtype = str(variable.ty.dtype)
    size = tirx.const(extent, dtype) if isinstance(extent, int) else extent
    thread = tirx.IterVar(tvm.ir.Range(tirx.const(0, dtype), size), tirx.Var("", dtype), _THREAD_INDEX, tag)
    return tirx.For(variable, tirx.const(0, dtype), size, tirx.ForKind.THREAD_BINDING, body, thread)


def launches_itself(func: tirx.PrimFunc) -> bool:
    """Return True where the code binds threads already, as TVM's own GPU sorts do."""
    found: list = []

    def note_attr(node) -> None:
        if _is_extent(node):
            found.append(node)

    def note_loop(node) -> None:
        if int(node.kind) == int(tirx.ForKind.THREAD_BINDING):
            found.append(node)

    tvm_ffi.structural_walk(func.body, [(tirx.AttrStmt, note_attr), (tirx.For, note_loop)])
    return bool(found)


def is_wholly_bound(func: tirx.PrimFunc) -> bool:
    """Return True where every store is inside of a launch, none left to the host."""
    nothing = tirx.Evaluate(tirx.const(0, "int32"))

    def without_launch(node):
        bound = node.thread_binding is not None if isinstance(node, tirx.For) else _is_extent(node)
        return nothing if bound else node

    kinds = [(tirx.For, without_launch), (tirx.AttrStmt, without_launch)]
    left: list = []
    rest = tvm_ffi.structural_map(func.body, kinds, order="post")
    tvm_ffi.structural_walk(rest, [(tirx.BufferStore, left.append)])
    return not left


def has_too_large_a_grid(func: tirx.PrimFunc) -> bool:
    """Return True where a known extent is above what every device takes along its axis."""
    limits = dict(zip(("blockIdx.x", "blockIdx.y", "blockIdx.z"), MAX_GRID_DIM))
    found: list = []

    def note(loop) -> None:
        tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
        found.append((as_int(loop.extent) or 1) > limits.get(tag, math.inf))

    tvm_ffi.structural_walk(func.body, [(tirx.For, note)])
    return any(found)


def _is_extent(node) -> bool:
    return node.attr_key in ("thread_extent", "virtual_thread")


def launch_plain_loops(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, str] | None:
    """Launch code written as plain loops: parallel loops in threads, the rest in one.

    Every top-level statement is a launch of its own, so that one sees all that
    the ones before it wrote.  Returns the function with a note, None where the
    code does not come apart at the top.
    """
    parts: list = []

    def launch_each(body):
        statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
        parts.extend(statements)
        return sequence([_launch(statement) for statement in statements])

    body = _below_wrappers(func.body, launch_each)
    if body is None or any(isinstance(part, (tirx.Bind, tirx.AllocBuffer)) for part in parts):
        return None
    serial = sum(not _is_parallel(part) for part in parts)
    note = "parallel loops in threads"
    if serial:
        note = f"{serial} of {len(parts)} loops in one thread"
    return func.with_body(body), note


def launch_in_one_thread(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` as one launch of a single thread: slow, and right for any code."""
    body = func.body
    if isinstance(body, s_tir.SBlockRealize) and not body.block.iter_vars:
        block = body.block
        inner = _one_thread(block.body)
        made = s_tir.SBlock([], block.reads, block.writes, block.name_hint, inner, None, block.alloc_buffers)
        return func.with_body(s_tir.SBlockRealize([], True, made))
    return func.with_body(_one_thread(body))


def launch_nothing(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` without any work: there is no element to compute."""
    return func.with_body(tirx.Evaluate(tirx.const(0, "int32")))


def sequence(statements: list):
    """Return statements as one."""
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _below_wrappers(node, change: Callable):
    """Return ``node`` with the statements inside blocks and attributes changed."""
    if isinstance(node, s_tir.SBlockRealize):
        block = node.block
        if block.iter_vars or block.init is not None:
            return None
        inner = _below_wrappers(block.body, change)
        if inner is None:
            return None
        made = s_tir.SBlock([], block.reads, block.writes, block.name_hint, inner, None, block.alloc_buffers)
        return s_tir.SBlockRealize([], node.predicate, made)
    if isinstance(node, tirx.AttrStmt):
        # A pragma says how a CPU compiler should treat the loops; they are launches now.
        return _below_wrappers(node.body, change)
    return change(node)


def _is_parallel(node) -> bool:
    return isinstance(node, tirx.For) and int(node.kind) == int(tirx.ForKind.PARALLEL)


def _launch(node):
    return _in_threads(node) if _is_parallel(node) else _one_thread(node)


def _in_threads(loop: tirx.For):
    """Give every iteration of a parallel loop a thread."""
    dtype = str(loop.loop_var.ty.dtype)
    block, thread = tirx.Var("block", dtype), tirx.Var("thread", dtype)
    index = block * THREADS + thread
    extent = as_int(loop.extent)
    body = substitute(_serial(loop.body), {loop.loop_var: index + loop.min})
    body = tirx.IfThenElse(index < loop.extent, body, None)
    blocks = at_least_one(ceil_div(loop.extent if extent is None else extent, THREADS))
    return bind(block, blocks, "blockIdx.x", bind(thread, THREADS, "threadIdx.x", body))


def _one_thread(body):
    block, thread = tirx.Var("block", "int32"), tirx.Var("thread", "int32")
    return bind(block, 1, "blockIdx.x", bind(thread, 1, "threadIdx.x", _serial(body)))


def _serial(node):
    """Return code whose parallel and vector loops are plain ones."""

    def plain(loop):
        if int(loop.kind) not in (int(tirx.ForKind.PARALLEL), int(tirx.ForKind.VECTORIZED)):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(node, [(tirx.For, plain)], order="post")
