"""Merge two transposes in a row into one, or into none.

before: ``permute_dims(permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2])``      after: ``x``

Always pays: a copy less, or the same number where the first one is also read
elsewhere.  Moving data is exact for every dtype and value.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from relay_passes.operands import call_of
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site


@dataclass(frozen=True)
class MergeTransposes(SimplifyRule):
    """Merge two transposes in a row into one, or into none."""

    def match(self, view):
        for var, value in view.bindings.items():
            outer = call_of(view, value, "relax.permute_dims")
            inner = call_of(view, outer.args[0], "relax.permute_dims") if outer is not None else None
            if inner is not None and len(_axes(outer)) == len(_axes(inner)):
                yield Site.make(self, view, var, {var, outer.args[0]}, {"x": inner.args[0], "inner": outer.args[0]})

    def rewrite(self, site):
        outer, inner = _axes(site.view.bindings[site.root]), _axes(site.value("inner"))
        axes = [inner[a] for a in outer]
        if axes == sorted(axes):
            return site["x"]
        return relax.op.permute_dims(site["x"], axes)


def _axes(call) -> list[int]:
    rank = call.args[0].ty.ndim
    axes = call.attrs.axes
    return [int(a) % rank for a in axes] if axes is not None else list(range(rank))[::-1]
