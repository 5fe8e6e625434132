"""Merge two reshapes in a row into one.

before: ``squeeze(reshape(x, (1, 6)), [0])``      after: ``reshape(x, (6,))``

Always pays: only the last shape matters.  Squeeze, expand_dims and flatten are
reshapes here; the result is one ``reshape`` to the shape the site had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.operands import call_of
from tvmpass.core.legality import UNKNOWN_SHAPE
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, shape_of

RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten", "relax.nn.batch_flatten")
"""Operators that change the shape and neither order nor values."""


@dataclass(frozen=True)
class MergeReshapes(SimplifyRule):
    """Merge two reshapes in a row into one."""

    refusals: ClassVar = (UNKNOWN_SHAPE,)

    def match(self, view):
        for var, value in view.bindings.items():
            outer = call_of(view, value, *RESHAPES)
            inner = call_of(view, outer.args[0], *RESHAPES) if outer is not None else None
            if inner is not None and var not in view.match_casts and outer.args[0] not in view.match_casts:
                yield Site.make(self, view, var, {var, outer.args[0]}, {"x": inner.args[0], "result": var})

    def check(self, site):
        if site.shape("result") is None:
            return UNKNOWN_SHAPE(value=site.name("result"))
        return None

    def rewrite(self, site):
        return relax.op.reshape(site["x"], relax.ShapeExpr(list(shape_of(site.root))))
