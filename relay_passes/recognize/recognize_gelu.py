"""Name a GELU that an exporter spelled out.

before: ``x * 0.5 * (1 + erf(x / sqrt(2)))``      after: ``nn.gelu(x)``
before: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``
after:  ``nn.gelu_tanh(x)``

The arithmetic around erf or tanh is read as a polynomial, so that any order of
operands and any way of spreading the constants is found.  Pays by giving the
rules after it one operator where there were five to nine; the kernel does the
same work.  Results differ by rounding only; NaN and infinities come out as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.recognize import polynomials
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import ESCAPES, SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, same_shape

CONSTANTS_DIFFER = RefusalKind("constants-differ", "{what} is {found}, expected {expected}")

_S = math.sqrt(2.0 / math.pi)
INNER = {
    "relax.erf": {(1, 0): math.sqrt(0.5)},
    "relax.tanh": {(1, 0): _S, (3, 0): _S * 0.044715},
}
OUTER = {(1, 0): 0.5, (1, 1): 0.5}


@dataclass(frozen=True)
class RecognizeGelu(SimplifyRule):
    """Name a GELU that an exporter spelled out."""

    reassociates: ClassVar = True

    level: ClassVar = 3
    refusals: ClassVar = (CONSTANTS_DIFFER, ESCAPES, SHAPE_MISMATCH)

    def match(self, view):
        """Yield every ``a * x * (1 + curve(polynomial of x))``."""
        for curve, value in view.bindings.items():
            operator = view.op(curve)
            if operator not in INNER:
                continue
            for x in polynomials.variables_below(view, value.args[0]):
                taken = {curve}
                inner = polynomials.read(view, value.args[0], x, taken=taken)
                if inner is None or set(inner) != set(INNER[operator]):
                    continue
                site = self._outer(view, curve, x, operator, inner, taken)
                if site is not None:
                    yield site
                    break

    def _outer(self, view, curve, x, operator, inner, taken):
        """Return the site around ``curve``; the first root whose constants fit, else the last."""
        last = None
        for root in polynomials.readers_above(view, curve):
            around = set(taken)
            outer = polynomials.read(view, root, x, curve, around)
            if outer is None or set(outer) != set(OUTER):
                continue
            bound = {"x": x, "curve": curve, "result": root}
            last = Site.make(self, view, root, around, bound, inner=inner, outer=outer, operator=operator)
            if polynomials.close(outer, OUTER, dtype_of(root)):
                break
        return last

    def check(self, site):
        dtype = dtype_of(site.root)
        parts = {"inner": INNER[site.data["operator"]], "outer": OUTER}
        for what, expected in parts.items():
            if not polynomials.close(site.data[what], expected, dtype):
                return CONSTANTS_DIFFER(
                    what=f"the {what} polynomial",
                    found=polynomials.text(site.data[what]),
                    expected=polynomials.text(expected),
                )
        if not same_shape(site.shape("x"), site.shape("result")):
            return SHAPE_MISMATCH(
                value=site.name("x"), found=shown(site.shape("x")), expected=shown(site.shape("result"))
            )
        if site.escapes("curve"):
            return ESCAPES(value=site.name("curve"), readers=site.readers("curve"))
        return None

    def rewrite(self, site):
        make = relax.op.nn.gelu if site.data["operator"] == "relax.erf" else relax.op.nn.gelu_tanh
        return make(site["x"])
