"""What a tune found out, in figures: for the caller, ``--json`` and the summary page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tvmpass.compile.records import GATE
from tvmpass.core.report import plain

if TYPE_CHECKING:
    from .tasks import Task

SCHEMA = 1

BUDGET, EXHAUSTED, ALREADY, INTERRUPTED = "budget", "exhausted", "already", "interrupted"
"""Why a tune ended: its budget is used up; nothing is left to try; both were so before
it began; it was interrupted."""


@dataclass(frozen=True)
class TaskResult:
    """One distinct kernel: what was tried and what came of it; times in µs per call."""

    kernel_key: str
    name: str
    kind: str
    calls: int
    origin: list[str]
    candidate0: str
    """The library's own choice: a recipe's text, or ``fallback``."""
    candidate0_us: float
    measured: bool
    """``candidate0_us`` was measured; else it is the cost model's."""
    best_ratio: float
    """Time of the best candidate over candidate 0's in the same alternation; 1 where none is faster."""
    best: str | None
    """The best candidate: a recipe's text, or ``trace``; None where candidate 0 stays."""
    tried: int
    failed: dict[str, int]
    """Candidates that did not pass, by status: crash, timeout, memory, wrong."""
    spent_s: float

    @property
    def used(self) -> bool:
        """Return True where a build uses the record: it beat candidate 0 beyond the gate."""
        return self.best is not None

    @property
    def cost_us(self) -> float:
        """Return what the kernel costs in one run of the model, untuned."""
        return self.calls * self.candidate0_us

    @property
    def saved_us(self) -> float:
        """Return what one run of the model saves by the tuned kernel."""
        return self.cost_us * (1.0 - self.best_ratio) if self.used else 0.0


@dataclass(frozen=True)
class ModelCheck:
    """The whole model tuned against untuned, alternated in one process of its own.

    Times are medians in ms; ``ratio`` is tuned over untuned, the median over the
    rounds.  ``difference`` is the greatest difference of the outputs relative to
    their scale.  Where it could not be done ``reason`` says why, the rest is None.
    """

    tuned_ms: float | None = None
    untuned_ms: float | None = None
    ratio: float | None = None
    rounds: int = 0
    difference: float | None = None
    reason: str | None = None


@dataclass
class TuneResult:
    """What `tvmpass.tune` did and found; `to_json` is what ``--json`` writes.

    ``recorded`` counts the distinct candidates on record for this model's kernels
    and ``spent_s`` the time (s) spent on them, both over all sessions; ``new`` and
    ``elapsed_s`` are this session's.  ``trials`` or ``minutes`` is the budget.
    """

    model: str
    target: str
    device_class: str
    path: str
    """The record file."""
    reason: str
    """Why it ended: ``budget``, ``exhausted``, ``already`` or ``interrupted``."""
    trials: int | None
    minutes: float | None
    recorded: int
    new: int
    spent_s: float
    elapsed_s: float
    tasks: list[TaskResult]
    check: ModelCheck | None = None
    fusion: dict[str, Any] | None = None
    """What ``collect`` measured: groups and alternatives."""
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Return True where another tune with the same budget would do nothing."""
        return self.reason != INTERRUPTED

    @property
    def used(self) -> int:
        """Return how many kernels a build will take from the records."""
        return sum(task.used for task in self.tasks)

    @property
    def failed(self) -> dict[str, int]:
        """Return the candidates that did not pass, by status."""
        return total_failed(self.tasks)

    @property
    def kernel_ratio(self) -> float:
        """Return the kernels' summed time tuned over untuned, from the records alone."""
        cost = sum(task.cost_us for task in self.tasks)
        return 1.0 - sum(task.saved_us for task in self.tasks) / cost if cost else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able data."""
        data = asdict(self)
        data["tasks"] = [
            {**asdict(task), "cost_us": task.cost_us, "saved_us": task.saved_us, "used": task.used}
            for task in self.tasks
        ]
        return {
            "schema": SCHEMA,
            **plain(data),
            "finished": self.finished,
            "used": self.used,
            "failed": self.failed,
            "kernel_ratio": round(self.kernel_ratio, 4),
            "gate": GATE,
        }

    def __str__(self) -> str:
        text = f"{self.model}: {self.reason}, {self.recorded} candidates, {self.used} kernels faster"
        return text + (f", tuned/untuned {self.check.ratio}" if self.check and self.check.ratio else "")


def task_result(task: Task) -> TaskResult:
    """Return the figures of one task."""
    failed: dict[str, int] = {}
    for status in task.tried.values():
        if status != "ok":
            failed[status] = failed.get(status, 0) + 1
    best = None
    if task.best is not None:
        best = task.best.recipe if task.best.recipe is not None else "trace"
    return TaskResult(
        kernel_key=task.key,
        name=task.names[0],
        kind=task.kind,
        calls=task.calls,
        origin=task.origin,
        candidate0=task.candidate0,
        candidate0_us=task.call_us,
        measured=task.candidate0_us is not None,
        best_ratio=task.best_ratio,
        best=best,
        tried=len(task.tried),
        failed=failed,
        spent_s=task.spent_s,
    )


def total_failed(tasks: Sequence[TaskResult]) -> dict[str, int]:
    """Sum the failures of several tasks by status."""
    found: dict[str, int] = {}
    for task in tasks:
        for status, number in task.failed.items():
            found[status] = found.get(status, 0) + number
    return found
