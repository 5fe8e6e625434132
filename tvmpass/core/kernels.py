"""Tell what a lowered kernel is, from how its blocks access memory.

Names are never looked at: a matrix product written by hand is a matmul here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from .nest import REDUCE, Stage, extent, loads, stages, variables

KINDS = (
    "matmul",
    "conv",
    "depthwise",
    "pool",
    "reduce",
    "norm-softmax",
    "elementwise",
    "movement",
    "other",
)

_MOVES = (tvm.ir.TensorLoad, tirx.FloatImm, tirx.IntImm)


@dataclass(frozen=True)
class Iteration:
    """One iterator of the anchor block: ``size`` is None where symbolic."""

    name: str
    size: int | None
    reduce: bool


@dataclass(frozen=True)
class Kernel:
    """What `classify` found out about one unscheduled PrimFunc.

    ``anchor`` names the block that does the work (the last reduction, or the
    last block where there is none); ``prologue`` and ``epilogue`` name the
    blocks before and after it, in program order.
    """

    func: Any
    kind: str
    anchor: str | None
    prologue: tuple[str, ...]
    epilogue: tuple[str, ...]
    iterations: tuple[Iteration, ...]
    dtypes: tuple[str, ...]
    static: bool


def classify(func) -> Kernel:
    """Return the `Kernel` facts of an unscheduled PrimFunc; total, never raises.

    ``dtypes`` are those of the function's tensors in parameter order.
    """
    dtypes = tuple(str(p.dtype) for p in func.params if tirx.buffer.is_buffer_var(p))
    parts = stages(func)
    if not parts or any(part.store is None for part in parts):
        return Kernel(func, "other", None, (), (), (), dtypes, False)
    static = all(extent(iv) is not None for part in parts for iv in part.iters)
    reductions = [part for part in parts if part.reduce]
    anchor = reductions[-1] if reductions else parts[-1]
    kind = _kind(parts, reductions)
    index = parts.index(anchor)
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        kind = "other"
    iterations = tuple(Iteration(iv.var.name, extent(iv), int(iv.iter_type) == REDUCE) for iv in anchor.iters)
    return Kernel(
        func,
        kind,
        anchor.name,
        tuple(names[:index]),
        tuple(names[index + 1 :]),
        iterations,
        dtypes,
        static,
    )


def _kind(parts: list[Stage], reductions: list[Stage]) -> str:
    if not reductions:
        return "movement" if all(_moves_only(part) for part in parts) else "elementwise"
    if len(reductions) > 1:
        return "norm-softmax" if _row_wise(reductions) else "other"
    anchor = reductions[0]
    operands = contraction_operands(anchor)
    # The product of two vectors is one number: there is nothing to tile, it is a sum.
    if operands is not None and anchor.spatial:
        return _contraction_kind(anchor, *operands)
    return "pool" if _has_window(anchor, own_reads(anchor)) else "reduce"


def own_reads(stage: Stage) -> list:
    """Return the loads of a stage's value without those of its own accumulator."""
    target = stage.store.buffer
    return [load for load in loads(stage.store.value) if not load.source.same_as(target)]


def contraction_operands(stage: Stage) -> tuple[Any, Any] | None:
    """Return the two loads of ``acc + a * b`` (casts seen through), else None."""
    value = stage.store.value
    if not isinstance(value, tvm.ir.prim.expr.Add):
        return None
    for accumulator, product in ((value.a, value.b), (value.b, value.a)):
        if not isinstance(accumulator, tvm.ir.TensorLoad):
            continue
        if not accumulator.source.same_as(stage.store.buffer):
            continue
        product = _uncast(product)
        if isinstance(product, tvm.ir.prim.expr.Mul):
            a, b = _uncast(product.a), _uncast(product.b)
            if isinstance(a, tvm.ir.TensorLoad) and isinstance(b, tvm.ir.TensorLoad):
                return a, b
    return None


def _uncast(expr):
    while isinstance(expr, tvm.ir.prim.expr.Cast):
        expr = expr.value
    return expr


def _contraction_kind(anchor: Stage, a, b) -> str:
    """Tell a product, a convolution and a depthwise convolution apart.

    A window is a reduction iterator that moves together with a spatial one
    that the other operand does not have; where every reduction iterator is a
    window, each output channel reads one input channel: depthwise.
    """
    in_a, in_b = _used(a), _used(b)
    windows = _windows(anchor, a, in_b) | _windows(anchor, b, in_a)
    if not windows:
        return "matmul"
    wide = {iv.var for iv in anchor.reduce if extent(iv) != 1}
    shared = {iv.var for iv in anchor.spatial if extent(iv) != 1} & in_a & in_b
    return "depthwise" if wide and wide <= windows and shared else "conv"


def _used(load) -> set:
    return set().union(*map(variables, load.indices)) if len(load.indices) else set()


def _windows(anchor: Stage, load, elsewhere: set) -> set:
    """Return the reduction variables that share an index with a spatial one of ``load`` alone."""
    spatial = {iv.var for iv in anchor.spatial} - elsewhere
    reduce = {iv.var for iv in anchor.reduce}
    found = set()
    for used in map(variables, load.indices):
        if used & spatial:
            found |= used & reduce
    return found


def _has_window(anchor: Stage, reads) -> bool:
    """Is some dimension indexed by a spatial and a reduction iterator together?"""
    return any(_windows(anchor, load, set()) for load in reads)


def _row_wise(reductions: list[Stage]) -> bool:
    """Do all reductions run over the same extents, with the same number of rows?"""

    def shape(stage: Stage, iters) -> list:
        return [str(iv.dom.extent) for iv in iters if extent(iv) != 1]

    def shapes(stage: Stage) -> tuple[list, list]:
        return shape(stage, stage.reduce), shape(stage, stage.spatial)

    if any(_has_window(r, own_reads(r)) for r in reductions):
        return False
    return all(shapes(r) == shapes(reductions[0]) for r in reductions)


def _moves_only(stage: Stage) -> bool:
    """Does the block copy values without computing on them?"""
    return _is_move(stage.store.value)


def _is_move(value) -> bool:
    if isinstance(value, _MOVES):
        return True
    if isinstance(value, tvm.ir.prim.expr.Select):
        return _is_move(value.true_value) and _is_move(value.false_value)
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        return value.op.name.endswith("if_then_else") and all(_is_move(arg) for arg in list(value.args)[1:])
    return False
