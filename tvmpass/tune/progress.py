"""Where a tune stands, for whoever watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .interrupts import Interrupts
    from .measuring import Measuring
    from .tasks import Task
    from .work import Candidate, Measurement

STAGE, MEASURED, BETTER, NOTE, ALIVE = "stage", "measured", "better", "note", "alive"
"""Kinds of `Progress`: a stage begins; a candidate was recorded; one that is the best of
its kernel was; something should be known; nothing happened, but a watcher that wants the
tune to end may raise KeyboardInterrupt."""


@dataclass(frozen=True)
class Progress:
    """One moment of a tune; ``str()`` is one line.

    ``recorded`` counts candidates over all sessions, times are in seconds.
    ``gain`` is the kernels' untuned over tuned time so far, by the records;
    ``best`` that of the kernel in hand; 1 is no gain.
    """

    kind: str
    text: str
    elapsed_s: float = 0.0
    fraction: float = 0.0
    """Share of the budget used, 0 to 1."""
    eta_s: float | None = None
    recorded: int = 0
    trials: int | None = None
    kernel: str = ""
    position: int = 0
    """Which kernel by cost is in hand, from 1; 0 where none is."""
    kernels: int = 0
    best: float = 1.0
    gain: float = 1.0

    def __str__(self) -> str:
        if self.kind in (STAGE, NOTE):
            return self.text
        left = f", {clock(self.eta_s)} left" if self.eta_s is not None else ""
        wanted = f"/{self.trials}" if self.trials is not None else ""
        done = f"{self.recorded}{wanted} candidates, kernels {self.gain:.3f}x{left}"
        where = f"kernel {self.position}/{self.kernels} {self.kernel}"
        if self.kind == BETTER:
            return f"{done}; {where}: {self.best:.2f}x by {self.text}"
        return f"{done}; {where}, best {self.best:.2f}x"


Watcher = Callable[[Progress], None]


class Teller:
    """Tells a watcher what a session does; ``measuring`` is set once there is something to count."""

    def __init__(self, watcher: Watcher | None, interrupts: Interrupts):
        self.watcher, self.interrupts = watcher, interrupts
        self.measuring: Measuring | None = None
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the session began."""
        return time.monotonic() - self._start

    def alive(self) -> None:
        """Let an interrupt whose exception got lost come through."""
        self._tell(ALIVE, "")

    def stage(self, text: str) -> None:
        """Say that a stage begins."""
        self._tell(STAGE, text)

    def note(self, text: str) -> None:
        """Say what should be known."""
        self._tell(NOTE, text)

    def recorded(self, task: Task, candidate: Candidate, measurement: Measurement, better: bool) -> None:
        """Say that a candidate has its record."""
        text = candidate.recipe if candidate.recipe is not None else "a trace of MetaSchedule"
        if measurement.status != "ok":
            text += f": {measurement.status}" + (f" ({measurement.cause})" if measurement.cause else "")
        self._tell(BETTER if better else MEASURED, text, task)

    def _tell(self, kind: str, text: str, task: Task | None = None) -> None:
        self.interrupts.check()
        if self.watcher is None or (kind == ALIVE and self.watcher is print):
            return  # `print` cannot want an end, and nothing happened that is worth a line
        now = Progress(kind, text, self.elapsed_s)
        if self.measuring is not None:
            tasks, budget = self.measuring.tasks, self.measuring.budget
            tuned = sum(t.cost_us * t.best_ratio for t in tasks)
            now = replace(
                now,
                fraction=budget.fraction,
                recorded=budget.recorded,
                trials=budget.trials,
                kernels=len(tasks),
                gain=sum(t.cost_us for t in tasks) / tuned if tuned else 1.0,
            )
            if task is not None:
                now = replace(
                    now,
                    eta_s=budget.eta_s(self.measuring.seconds_each),
                    kernel=task.names[0],
                    position=list(tasks).index(task) + 1,
                    best=1.0 / task.best_ratio,
                )
        self.watcher(now)


def clock(seconds: float) -> str:
    """Return ``45 s``, ``7 min`` or ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
