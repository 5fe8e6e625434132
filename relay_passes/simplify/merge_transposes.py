"""Merge two transposes in a row into one, or into none.

before: ``permute_dims(permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2])``      after: ``x``

Always pays: a copy less, or the same number where the first one is also read
elsewhere.  Moving data is exact for every dtype and value.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from relay_passes.operands import axes_of_transpose, call_of
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site


@dataclass(frozen=True)
class MergeTransposes(SimplifyRule):
    """Merge two transposes in a row into one, or into none."""

    def match(self, view):
        for var, value in view.bindings.items():
            outer = call_of(view, value, "relax.permute_dims")
            inner = call_of(view, outer.args[0], "relax.permute_dims") if outer is not None else None
            if inner is not None:
                bound = {"x": inner.args[0], "inner": outer.args[0]}
                yield Site.make(self, view, var, {var, outer.args[0]}, bound)

    def rewrite(self, site):
        outer, inner = (
            axes_of_transpose(site.view.bindings[site.root]),
            axes_of_transpose(site.value("inner")),
        )
        axes = [inner[a] for a in outer]
        if axes == sorted(axes):
            return site["x"]
        return relax.op.permute_dims(site["x"], axes)
