"""Let an elementwise operator broadcast its operand itself.

before: ``add(broadcast_to(x[1, 64], (32, 64)), y[32, 64])``      after: ``add(x, y)``

Always pays: the broadcast value is never written.  Exact, since each element is
computed from the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from relay_passes.operands import call_of
from tvmpass.core.legality import SHAPE_MISMATCH, UNKNOWN_SHAPE, shown
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, op_name, same_shape, shape_of

BROADCASTING = frozenset(
    f"relax.{name}"
    for name in (
        *(
            "add",
            "subtract",
            "multiply",
            "divide",
            "floor_divide",
            "mod",
            "floor_mod",
            "power",
            "maximum",
            "minimum",
        ),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
"""Operators whose tensor operands all broadcast together."""


@dataclass(frozen=True)
class AbsorbBroadcasts(SimplifyRule):
    """Let an elementwise operator broadcast its operand itself."""

    refusals: ClassVar = (UNKNOWN_SHAPE, SHAPE_MISMATCH)

    def match(self, view):
        """Yield every broadcasting operator that reads a ``broadcast_to``."""
        for var, value in view.bindings.items():
            if op_name(value) not in BROADCASTING or var in view.match_casts:
                continue
            wide = [a for a in value.args if call_of(view, a, "relax.broadcast_to") is not None]
            if wide:
                yield Site.make(self, view, var, {var, *wide}, {"result": var})

    def check(self, site):
        shapes = [shape_of(a) for a in self._operands(site)]
        if site.shape("result") is None or any(s is None for s in shapes):
            return UNKNOWN_SHAPE(value=site.name("result"))
        found = _broadcast(shapes)
        if not same_shape(found, site.shape("result")):
            return SHAPE_MISMATCH(
                value=site.name("result"), found=shown(found), expected=shown(site.shape("result"))
            )
        return None

    def rewrite(self, site):
        call = site.view.bindings[site.root]
        return relax.Call(call.op, self._operands(site), call.attrs, list(call.ty_args))

    @staticmethod
    def _operands(site) -> list:
        """Return the operands with broadcasts seen through."""
        found = []
        for operand in site.view.bindings[site.root].args:
            wide = call_of(site.view, operand, "relax.broadcast_to")
            found.append(operand if wide is None else wide.args[0])
        return found


def _broadcast(shapes) -> tuple | None:
    """Return the common shape, or None where two dims are not provably equal."""
    rank = max(len(s) for s in shapes)
    result = []
    for axis in range(rank):
        dims = [s[axis - rank] for s in shapes if len(s) >= rank - axis]
        wide = [d for d in dims if not (isinstance(d, int) and d == 1)] or [1]
        if not all(same_shape((wide[0],), (d,)) for d in wide[1:]):
            return None
        result.append(wide[0])
    return tuple(result)
