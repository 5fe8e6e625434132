"""Evaluate operators whose operands are all constants.

before: ``w = permute_dims(const, [2, 3, 1, 0]); y = conv2d(x, w)``
after:  ``y = conv2d(x, const)``

Always pays, within a size limit: a constant that grows far beyond its operands
(a broadcast scalar, say) stays an operator.  Evaluated by numpy in the exact
dtype; what depends on run-time shapes is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tvm
from tvm import relax

from tvmpass.core.analysis.purity import is_repeatable
from tvmpass.core.constants import fold
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import SYMBOLIC_SHAPE, UNKNOWN_SHAPE, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, op_name, operands, shape_of, static_shape

NOT_EVALUABLE = RefusalKind(
    "not-evaluable",
    "{operator} to {shape} is not evaluated: not covered, not defined on these values, or too large",
)


@dataclass(frozen=True)
class FoldConstants(SimplifyRule):
    """Evaluate operators whose operands are all constants."""

    refusals: ClassVar = (UNKNOWN_SHAPE, SYMBOLIC_SHAPE, NOT_EVALUABLE)

    def match(self, view):
        """Yield every repeatable call on constants only, not yet a constant itself."""
        for var, value in view.bindings.items():
            if op_name(value) is None or var in view.match_casts or not is_repeatable(value):
                continue
            if all(_is_known(view, leaf) for leaf in operands(value)):
                yield Site.make(self, view, var, {var}, {"result": var})

    def check(self, site):
        if isinstance(site.root.ty, relax.TensorType):
            if shape_of(site.root) is None:
                return UNKNOWN_SHAPE(value=site.name("result"))
            if static_shape(site.root) is None:
                return SYMBOLIC_SHAPE(value=site.name("result"), found=shown(shape_of(site.root)))
        value = site.view.bindings[site.root]
        folded = fold(value, site.view.value)
        if folded is None:
            return NOT_EVALUABLE(operator=op_name(value), shape=shown(shape_of(site.root)))
        site.data["folded"] = folded
        return None

    def rewrite(self, site):
        return site.data["folded"]


def _is_known(view, expr) -> bool:
    value = view.value(expr)
    if isinstance(value, relax.Tuple):
        return all(_is_known(view, field) for field in value.fields)
    return not isinstance(value, (relax.Var, relax.Call, relax.TupleGetItem, relax.If)) and not isinstance(
        value, tvm.ir.GlobalVar
    )
