"""From where to where each value is needed.

Read by `memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from ..site import FunctionView

PARAMETER = -1
"""Where parameters are defined: before the first binding."""


@dataclass(frozen=True)
class Liveness:
    """Positions are indices of bindings in program order.

    ``last_read`` is the position of a value's last reader, the number of
    bindings for a part of the result, or its own position where nothing reads it.
    """

    defined: Mapping[relax.Var, int]
    last_read: Mapping[relax.Var, int]

    def live_at(self, position: int) -> set[relax.Var]:
        """Return what must exist while the binding at ``position`` runs, its result included."""
        return {var for var, start in self.defined.items() if start <= position <= self.last_read[var]}

    def dies_at(self, position: int) -> set[relax.Var]:
        """Return what nothing needs once the binding at ``position`` has run."""
        return {var for var in self.live_at(position) if self.last_read[var] == position}


def find_liveness(view: FunctionView) -> Liveness:
    """Find where each variable and parameter is read last."""
    end = len(view.order)
    defined = {**dict.fromkeys(view.function.params, PARAMETER), **view.order}
    last = {}
    for var, start in defined.items():
        readers = [view.order[user] for user in view.users.get(var, ())]
        last[var] = end if view.returned(var) else max(readers, default=start)
    return Liveness(defined, last)
