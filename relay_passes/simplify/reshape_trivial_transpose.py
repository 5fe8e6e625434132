"""Turn a transpose that moves only axes of extent 1 into a reshape.

before: ``permute_dims(x[1, 64, 1, 1], [0, 2, 3, 1])``
after:  ``reshape(x, (1, 1, 1, 64))``

Always pays: no element changes its place, and a reshape is a view where a
transpose is a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from relay_passes.operands import axes_of_transpose, call_of
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, shape_of


@dataclass(frozen=True)
class ReshapeTrivialTranspose(SimplifyRule):
    """Turn a transpose that moves only axes of extent 1 into a reshape."""

    def match(self, view):
        """Yield every transpose that keeps the order of its axes longer than 1."""
        for var, value in view.bindings.items():
            transpose = call_of(view, value, "relax.permute_dims")
            shape = shape_of(transpose.args[0]) if transpose is not None else None
            if shape is None or var in view.match_casts:
                continue
            axes = axes_of_transpose(transpose)
            long_axes = [a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)]
            if long_axes == sorted(long_axes) and axes != sorted(axes):
                yield Site.make(self, view, var, {var}, {"x": transpose.args[0]})

    def rewrite(self, site):
        return relax.op.reshape(site["x"], relax.ShapeExpr(list(shape_of(site.root))))
