"""Name a softmax that an exporter spelled out.

before: ``m = max(x, axis); e = exp(x - m); e / sum(e, axis)``
after:  ``nn.softmax(x, axis)``

Pays: the operator has a schedule of its own that keeps a row in registers and
cache, where five kernels would read and write it.  Only the form that subtracts
the maximum is taken: without it the overflow behaviour differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.operands import axes_of, call_of, either_order, number_of
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import ESCAPES
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site

NO_MAXIMUM = RefusalKind(
    "no-maximum", "exp is taken of {value}, from which no maximum over axis {axis} is subtracted"
)
SEVERAL_AXES = RefusalKind("several-axes", "the sum runs over axes {found}, a softmax over one")
KEEPDIMS = RefusalKind(
    "dropped-axis", "{operator} drops the axis it reduces, so that it broadcasts along another"
)


@dataclass(frozen=True)
class RecognizeSoftmax(SimplifyRule):
    """Name a softmax that an exporter spelled out."""

    reassociates: ClassVar = True

    level: ClassVar = 3
    refusals: ClassVar = (SEVERAL_AXES, KEEPDIMS, NO_MAXIMUM, ESCAPES)

    def match(self, view):
        """Yield every ``e / sum(e)`` (or e times the reciprocal) with e an exponential."""
        for var in view.bindings:
            for numerator, total, reciprocal in _ratios(view, var):
                summed = call_of(view, total, "relax.sum")
                if summed is None or not numerator.same_as(summed.args[0]):
                    continue
                exp = call_of(view, numerator, "relax.exp")
                if exp is None:
                    continue
                bound = {"exp": numerator, "sum": total, "shifted": exp.args[0]}
                taken = {var, numerator, total} | reciprocal
                shifted = call_of(view, exp.args[0], "relax.subtract")
                if shifted is not None and call_of(view, shifted.args[1], "relax.max") is not None:
                    bound |= {"x": shifted.args[0], "max": shifted.args[1]}
                    taken |= {exp.args[0], shifted.args[1]}
                yield Site.make(self, view, var, taken, bound)

    def check(self, site):
        rank = site.value("sum").args[0].ty.ndim
        axes = axes_of(site.attrs("sum").axis, rank)
        if len(axes) != 1:
            return SEVERAL_AXES(found=list(axes))
        if not site.attrs("sum").keepdims:
            return KEEPDIMS(operator="sum")
        if "max" not in site.bound or not site.value("max").args[0].same_as(site["x"]):
            return NO_MAXIMUM(value=site.name("shifted"), axis=axes[0])
        if axes_of(site.attrs("max").axis, rank) != axes:
            return NO_MAXIMUM(value=site.name("shifted"), axis=axes[0])
        if not site.attrs("max").keepdims:
            return KEEPDIMS(operator="max")
        for name in ("exp", "sum", "max", "shifted"):
            if site.escapes(name):
                return ESCAPES(value=site.name(name), readers=site.readers(name))
        return None

    def rewrite(self, site):
        rank = site["x"].ty.ndim
        (axis,) = axes_of(site.attrs("sum").axis, rank)
        return relax.op.nn.softmax(site["x"], axis - rank if axis == rank - 1 else axis)


def _ratios(view, var):
    """Yield ``(numerator, denominator, {reciprocal})`` of a division, however written."""
    divide = call_of(view, var, "relax.divide")
    if divide is not None:
        yield divide.args[0], divide.args[1], set()
    multiply = call_of(view, var, "relax.multiply")
    if multiply is None:
        return
    for numerator, other in either_order(multiply):
        inverse = call_of(view, other, "relax.divide")
        if inverse is not None and number_of(view, inverse.args[0]) == 1.0:
            yield numerator, inverse.args[1], {other}
