"""How much memory values take while a function runs, and what may be reused.

Activations only: parameters belong to the caller and constants to the model.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from ..site import FunctionView
from .alias import find_aliases
from .liveness import find_liveness
from .types import size_in_bytes


@dataclass(frozen=True)
class Memory:
    """Bytes; symbolic dims at their example values.

    ``live`` holds, per binding, what is alive while it runs.  ``reuses`` maps a
    value to the dead value whose memory it can take; ``planned`` is the total
    with such reuse, ``allocated`` without.
    """

    live: Sequence[int]
    reuses: Mapping[relax.Var, relax.Var]
    allocated: int
    planned: int

    @property
    def peak(self) -> int:
        """Return the least memory that this order of bindings can run in."""
        return max(self.live, default=0)


def plan_memory(view: FunctionView, examples: Mapping[str, int] | None = None) -> Memory:
    """Find the lifetime of each piece of memory and assign dead pieces again, smallest fit first."""
    liveness, storages = find_liveness(view), find_aliases(view).storages
    owners = [var for var in view.bindings if var in storages[var]]
    sizes = {var: size_in_bytes(var, examples) for var in owners}
    start = {var: view.order[var] for var in owners}
    last = dict(start)
    for var, behind in storages.items():
        for owner in behind:
            if owner in last:
                last[owner] = max(last[owner], liveness.last_read[var])
    live = [0] * len(view.order)
    for var in owners:
        for position in range(start[var], min(last[var], len(live) - 1) + 1):
            live[position] += sizes[var]
    reuses, planned = _assign(owners, sizes, start, last)
    return Memory(live, reuses, sum(sizes.values()), planned)


def _assign(owners, sizes, start, last) -> tuple[dict[relax.Var, relax.Var], int]:
    """Give each value dead memory where some fits; return who took whose, and the total."""
    reuses: dict[relax.Var, relax.Var] = {}
    room: dict[relax.Var, int] = {}
    free: list[relax.Var] = []
    ends: list[tuple[int, int, relax.Var]] = []
    planned = 0
    for var in owners:
        while ends and ends[0][0] < start[var]:
            free.append(heapq.heappop(ends)[2])
        fitting = [o for o in free if room[o] >= sizes[var] > 0]
        if fitting:
            chosen = min(fitting, key=lambda o: (room[o], start[o]))
            free.remove(chosen)
            reuses[var], room[var] = chosen, room[chosen]
        else:
            room[var] = sizes[var]
            planned += sizes[var]
        heapq.heappush(ends, (last[var], start[var], var))
    return reuses, planned
