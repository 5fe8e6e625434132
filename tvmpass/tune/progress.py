"""Where a tune stands, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STAGE, MEASURED, BETTER, NOTE = "stage", "measured", "better", "note"
"""Kinds of `Progress`: a stage begins; a candidate was recorded; one that is the best of
its kernel was; something should be known."""


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


def clock(seconds: float) -> str:
    """Return ``45 s``, ``7 min`` or ``3 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
