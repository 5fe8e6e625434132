"""Bring a spelled-out hard-swish or hard-sigmoid to its cheapest form.

before: ``x * minimum(maximum(x + 3, 0), 6) / 6``  (or without the ``x *``)
after:  ``x * minimum(maximum(x + 3, 0), 6) * (1 / 6)``

Relax has no hard-swish operator, and needs none: the operators are elementwise
and grow-epilogue takes all of them into the kernel before them.  What this rule
takes out is the division, the one slow operator of the five, wherever the
exporter put it.  Multiplying by the rounded 1/6 differs from dividing by 6 by at
most one unit in the last place; NaN and infinities are unchanged.

Pays: a vector division costs several multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from relay_passes.operands import constant, with_divisor, with_number
from relay_passes.recognize import polynomials
from relay_passes.recognize.recognize_gelu import CONSTANTS_DIFFER
from tvmpass.core.legality import DTYPE_MISMATCH
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of

_POWERS = ({(0, 1)}, {(1, 1)}, {(1, 0)})


@dataclass(frozen=True)
class RecognizeHardSwish(SimplifyRule):
    """Bring a spelled-out hard-swish or hard-sigmoid to its cheapest form."""

    reassociates: ClassVar = True

    level: ClassVar = 3
    refusals: ClassVar = (CONSTANTS_DIFFER, DTYPE_MISMATCH)

    def match(self, view):
        """Yield every division by a constant of ``clip(x + a, 0, b)``, or of x times it."""
        for clip in view.bindings:
            upper = with_number(view, clip, "relax.minimum")
            lower = with_number(view, upper[0], "relax.maximum") if upper else None
            shifted = with_number(view, lower[0], "relax.add") if lower else None
            if shifted is None or not isinstance(shifted[0], relax.Var):
                continue
            x, offset = shifted
            limits = {"offset": offset, "lower": lower[1], "upper": upper[1]}
            taken = {clip, upper[0], lower[0]}
            for root in _divisions(view, clip, x):
                number = with_divisor(view, root)[1]
                yield Site.make(
                    self,
                    view,
                    root,
                    taken | {root},
                    {"x": x, "clip": clip, "result": root},
                    found=limits | {"divisor": number},
                )

    def check(self, site):
        expected = {"offset": 3.0, "lower": 0.0, "upper": 6.0, "divisor": 6.0}
        if site.data["found"] != expected:
            return CONSTANTS_DIFFER(what="hard-swish", found=site.data["found"], expected=expected)
        dtype = dtype_of(site.root)
        if "float" not in dtype or site.dtype("x") != dtype:
            return DTYPE_MISMATCH(
                value=site.name("x"), found=site.dtype("x"), expected=f"{dtype}, a float dtype"
            )
        return None

    def rewrite(self, site):
        dividend = site.view.bindings[site.root].args[0]
        return relax.op.multiply(dividend, constant(np.asarray(1.0 / 6.0), dtype_of(site.root)))


def _divisions(view, clip, x):
    """Yield divisions by a constant of clip, of x * clip, or of the x that multiplies clip."""
    above = list(polynomials.readers_above(view, clip, limit=4))
    beside = [u for u in view.users.get(x, ()) if any(u in view.bindings[a].args for a in above)]
    for root in dict.fromkeys([*above, *beside]):
        if with_divisor(view, root) is None:
            continue
        polynomial = polynomials.read(view, root, x, clip)
        if polynomial is not None and set(polynomial) in _POWERS:
            yield root
