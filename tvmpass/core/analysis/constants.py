"""Which values are known when the model is built.

For rules that fold, and to tell weights from activations.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from ..site import FunctionView, operands
from .purity import is_repeatable


@dataclass(frozen=True)
class Constants:
    """``known`` holds the variables that depend on constants alone."""

    known: frozenset[relax.Var]

    def is_known(self, expr) -> bool:
        """Return True for a constant, a shape of numbers, or a variable in ``known``."""
        return expr in self.known if isinstance(expr, relax.Var) else _is_literal(expr)


def find_constants(view: FunctionView) -> Constants:
    """Follow constants through operators that give the same result every time."""
    known: set[relax.Var] = set()
    for var, value in view.bindings.items():
        if isinstance(value, relax.If) or (isinstance(value, relax.Call) and not is_repeatable(value)):
            continue
        leaves = list(operands(value))
        if all(leaf in known if isinstance(leaf, relax.Var) else _is_literal(leaf) for leaf in leaves):
            known.add(var)
    return Constants(frozenset(known))


def _is_literal(expr) -> bool:
    if isinstance(expr, relax.ShapeExpr):
        return all(isinstance(dim, (int, tirx.IntImm)) for dim in expr.values)
    return isinstance(expr, tvm.ir.Constant)
