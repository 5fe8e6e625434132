"""What a reduction does to two values, read off its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import Stage, loads, substitute


@dataclass(frozen=True)
class Reducer:
    """``value`` is the new accumulator as an expression over ``accumulator`` and ``element``."""

    value: Any
    accumulator: Any
    element: Any
    identity: Any

    def combine(self, a, b):
        """Return the reduction of two values; partial results combine like elements."""
        left, right = tirx.Var("left", str(a.ty.dtype)), tirx.Var("right", str(b.ty.dtype))
        made = _replace(_replace(self.value, self.element, right), self.accumulator, left)
        return substitute(made, {left: a, right: b})


def find_reducer(stage: Stage) -> Reducer | None:
    """Return the reducer of a stage, None where its update is not of a known form.

    The form: some function of the accumulator and one other operand that
    stands beside it in a sum, product, maximum, minimum, comparison or logic.
    """
    value, buffer = stage.store.value, stage.store.buffer
    accumulators = [load for load in loads(value) if load.source.same_as(buffer)]
    element = _other_operand(value, buffer)
    if not accumulators or element is None or stage.block.init is None:
        return None
    rest = _replace(value, element, tirx.Var("element", str(element.ty.dtype)))
    if any(not load.source.same_as(buffer) for load in loads(rest)):
        return None
    return Reducer(value, accumulators[0], element, stage.block.init.value)


def _other_operand(value, buffer):
    """Return the operand beside the accumulator, the outermost place first."""
    found: list = []

    def visit(node):
        for a, b in ((node.a, node.b), (node.b, node.a)):
            if isinstance(a, tvm.ir.TensorLoad) and a.source.same_as(buffer):
                found.append(b)
                return

    expr = tvm.ir.prim.expr
    kinds = (expr.Add, expr.Mul, expr.Max, expr.Min, expr.GT, expr.LT, expr.GE, expr.LE, expr.And, expr.Or)
    tvm_ffi.structural_walk(value, [(kind, visit) for kind in kinds], order="pre")
    return found[0] if found else None


def _replace(value, old, new):
    same = lambda node: new if tvm_ffi.structural_equal(node, old) else node  # noqa: E731
    return tvm_ffi.structural_map(value, [(type(old), same)], order="post")
