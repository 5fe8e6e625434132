"""How an index expression moves with the loops around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import tirx

Affine = dict[int, float]
"""Step of an index per iteration of each loop (by depth) that it depends on."""

IRREGULAR = float("inf")
"""The step of an index that depends on a loop in no linear way (a gather)."""


def add(left: Affine, right: Affine, sign: float = 1.0) -> Affine:
    """Return ``left + sign * right``."""
    if not right:
        return left
    total = dict(left)
    for loop, step in right.items():
        total[loop] = total.get(loop, 0.0) + (step if step == IRREGULAR else sign * step)
    return total


def scale(affine: Affine, factor: float) -> Affine:
    """Return ``affine * factor``; a zero factor removes every dependence."""
    if not factor:
        return {}
    return {loop: step if step == IRREGULAR else step * factor for loop, step in affine.items()}


def irregular(*parts: Affine) -> Affine:
    """Return an index that depends on the loops of ``parts`` in no linear way."""
    return {loop: IRREGULAR for part in parts for loop in part}


def divide(affine: Affine, divisor: float, extent_of: Callable[[int], float]) -> Affine:
    """Return the mean step of ``floordiv(affine, divisor)``.

    A loop that stays within one multiple of the divisor does not move it.
    """
    if not divisor:
        return irregular(affine)
    kept = {loop: s for loop, s in affine.items() if s == IRREGULAR or abs(s) * extent_of(loop) > divisor}
    return scale(kept, 1.0 / divisor)


def modulo(affine: Affine, divisor: float) -> Affine:
    """Return the usual step of ``floormod(affine, divisor)``: wraps are ignored."""
    if not divisor:
        return irregular(affine)
    return {loop: step for loop, step in affine.items() if step == IRREGULAR or step % divisor}


class IndexReader:
    """Turn index expressions into `Affine` steps.

    ``environment`` maps the address of a variable to its steps; ``extent_of``
    gives a loop's extent by depth; ``on_load`` is told of every load met inside
    an index and returns the loops it depends on.
    """

    def __init__(
        self,
        environment: Mapping[int, Affine],
        extent_of: Callable[[int], float],
        on_load: Callable[[tvm.ir.TensorLoad], Affine],
    ):
        self.environment = environment
        self.extent_of = extent_of
        self.on_load = on_load

    def read(self, expr) -> Affine:
        """Return the steps of ``expr``; a constant has none."""
        kind = type(expr)
        if kind is tirx.Var:
            return self.environment.get(hash(expr), {})
        if kind is tirx.IntImm:
            return {}
        if kind is tirx.Add:
            return add(self.read(expr.a), self.read(expr.b))
        if kind is tirx.Sub:
            return add(self.read(expr.a), self.read(expr.b), -1.0)
        if kind is tirx.Mul:
            return self._product(expr.a, expr.b)
        if kind is tirx.FloorDiv or kind is tirx.Div:
            return self._by_constant(lambda steps, by: divide(steps, by, self.extent_of), expr)
        if kind is tirx.FloorMod or kind is tirx.Mod:
            return self._by_constant(modulo, expr)
        if kind is tirx.Cast:
            return self.read(expr.value)
        if kind is tvm.ir.TensorLoad:
            return irregular(self.on_load(expr))
        return self._other(expr)

    def _product(self, a, b) -> Affine:
        for factor, other in ((b, a), (a, b)):
            if type(factor) is tirx.IntImm:
                return scale(self.read(other), float(factor.value))
        return irregular(self.read(a), self.read(b))

    def _by_constant(self, rule: Callable[[Affine, float], Affine], expr) -> Affine:
        if type(expr.b) is tirx.IntImm:
            return rule(self.read(expr.a), float(expr.b.value))
        return irregular(self.read(expr.a), self.read(expr.b))

    def _other(self, expr) -> Affine:
        """Clamps and selections keep the steps of their operands; the rest is irregular."""
        if isinstance(expr, (tirx.Max, tirx.Min)):
            return {**self.read(expr.a), **self.read(expr.b)}
        if isinstance(expr, tirx.Select):
            return {**self.read(expr.true_value), **self.read(expr.false_value)}
        if isinstance(expr, tvm.ir.Call):
            parts = [self.read(argument) for argument in expr.args]
            if getattr(expr.op, "name", "") == "prim.if_then_else":
                return {**parts[1], **parts[2]}
            return irregular(*parts)
        if hasattr(expr, "a") and hasattr(expr, "b"):
            return irregular(self.read(expr.a), self.read(expr.b))
        return {}
