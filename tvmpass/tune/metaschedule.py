"""TVM's MetaSchedule as a source of candidates, run in a process that may die.

Its search keeps its state inside TVM and may crash or hang with it; here each
batch of proposals is one call in a forked child, made from what was measured
and a seed alone.  So a lost child costs a batch, and the same records give the
same proposals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import tvm

from tvmpass.core.kernels import classify

from .forkserver import Call, ForkServer
from .refit import SessionModel
from .search import Measured
from .work import Workload
from .workload_file import target_text

SECONDS = 60.0
"""Wall time after which a batch is given up."""

MEMORY_BYTES = 4 << 30

MAX_FAILURES = 2
"""Batches of one kernel that may be lost before its search ends."""

MAX_MEASURED = 64
"""Measured traces, the best ones, that a batch starts from."""

MODULE = "tvmpass.tune.metaschedule_child"


class MetaSchedule:
    """Proposes traces by MetaSchedule's evolutionary search; one for a whole tune."""

    def __init__(self):
        self._server: ForkServer | None = None
        self._failures: Counter[str] = Counter()
        self.problems: list[str] = []
        """One line for each batch that was lost."""

    def propose(
        self, workload: Workload, measured: Sequence[Measured], count: int, seed: int, model: SessionModel
    ) -> list[str]:
        """Return up to ``count`` traces as JSON text, none of them measured before.

        [] for a kernel with symbolic extents or of no blocks, where the search
        finds nothing more, and where it failed too often.
        """
        if self._failures[workload.kernel_key] >= MAX_FAILURES or not classify(workload.function).static:
            return []
        if self._server is None:
            self._server = ForkServer(warm_up=f"{MODULE}:warm_up")
        call = Call(
            f"{MODULE}:propose", request(workload, measured, count, seed, model), SECONDS, MEMORY_BYTES
        )
        outcome = self._server.call(call)
        if outcome.status != "ok":
            self._failures[workload.kernel_key] += 1
            self.problems.append(f"MetaSchedule, {workload.kind} kernel: {outcome.status}: {outcome.cause}")
            return []
        return [str(text) for text in outcome.value]

    def close(self) -> None:
        """End the process; also twice."""
        if self._server is not None:
            self._server.close()
            self._server = None


def request(
    workload: Workload, measured: Sequence[Measured], count: int, seed: int, model: SessionModel
) -> dict[str, Any]:
    """Return the arguments of a child's `propose` as JSON values."""
    traces = [m for m in measured if m.candidate.trace is not None]
    traces.sort(key=lambda m: (m.ratio is None, m.ratio or 0.0, m.candidate.text))
    recipes = [m for m in measured if m.candidate.recipe is not None and m.ratio is not None]
    best = min(recipes, key=lambda m: (m.ratio, m.candidate.text), default=None)
    beaten = best is None or best.ratio is None or best.ratio >= 1.0
    return {
        "function": tvm.ir.save_json(workload.function),
        "target": target_text(workload.target),
        "options": vars(workload.options),
        "kind": workload.kind,
        "candidate0": [workload.candidate0.recipe, workload.candidate0.trace],
        "recipe": workload.candidate0.recipe if beaten or best is None else best.candidate.recipe,
        "measured": [[m.candidate.trace, m.ratio] for m in traces[:MAX_MEASURED]],
        "seen": [m.candidate.trace for m in traces[MAX_MEASURED:]],
        "count": count,
        "seed": seed,
        "model": model.to_json(),
    }
