"""Replace operations that return one of their operands by that operand.

before: ``multiply(x, 1.0)``, ``subtract(x, 0.0)``, ``negative(negative(x))``,
        ``maximum(x, -inf)``, ``relu(relu(x))``, ``reshape(x, same shape)``
after:  ``x``

Always pays.  Exact for every value of x: NaN stays NaN, and signed zeros keep
their sign.  That is why ``x + 0.0`` is refused for floats (it turns -0.0 into
+0.0) where ``x + -0.0`` and ``x - 0.0`` are taken; ``x * 0`` is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay_passes.simplify.identities import IDENTITIES, NEGATIVE_ZERO, is_lossless
from tvmpass.core.decision import RefusalKind
from tvmpass.core.legality import SHAPE_MISMATCH, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of, op_name, same_shape

LOSSY_CAST = RefusalKind("lossy-cast", "{start} does not survive a cast to {through}")


@dataclass(frozen=True)
class EliminateIdentities(SimplifyRule):
    """Replace operations that return one of their operands by that operand."""

    refusals: ClassVar = (NEGATIVE_ZERO, LOSSY_CAST, SHAPE_MISMATCH)

    def match(self, view):
        """Yield every call that would be an identity if shapes, dtypes and zeros allow it."""
        for var, value in view.bindings.items():
            finder = IDENTITIES.get(op_name(value))
            if finder is None or var in view.match_casts:
                continue
            found = finder(view, value)
            if found is not None:
                bound = {"x": found.operand, "result": var}
                yield Site.make(self, view, var, {var}, bound, refusal=found.refusal, through=found.through)

    def check(self, site):
        if site.data["refusal"] is not None:
            return site.data["refusal"]
        x = site["x"]
        through = site.data["through"]
        if through is not None and not is_lossless(dtype_of(x), through):
            return LOSSY_CAST(start=dtype_of(x), through=through)
        if not same_shape(site.shape("x"), site.shape("result")):
            return SHAPE_MISMATCH(
                value=site.name("x"), found=shown(site.shape("x")), expected=shown(site.shape("result"))
            )
        return None

    def rewrite(self, site):
        return site["x"]
