"""Show where a tune stands: a bar in a terminal, plain lines elsewhere.

Plain lines are made for a log that is read the next morning: every stage and
every improvement, and between them one line now and then.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..printable import printable

if TYPE_CHECKING:
    from tvmpass.tune.progress import Progress

QUIET_S = 15.0
"""Seconds between two plain lines that report no improvement."""


class Lines:
    """Writes plain lines with the time since the start."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def __call__(self, progress: Progress) -> None:
        """Show one moment of the tune; not every candidate gets a line."""
        if progress.kind == "alive":
            return
        now = time.perf_counter()
        if progress.kind == "measured" and now - self._last < QUIET_S:
            return
        self._last = now
        self.say(str(progress))

    def say(self, text: str) -> None:
        """Write one line."""
        elapsed = time.perf_counter() - self._start
        print(f"[{elapsed:6.1f} s] {printable(text)}", file=sys.stderr, flush=True)


class Bar(Lines):
    """A bar with what is in hand, the best so far and the time left."""

    def __init__(self, live) -> None:
        super().__init__()
        self._live = live
        self._task = live.add_task("starting TVM", total=1.0, state="")

    def __call__(self, progress: Progress) -> None:
        if progress.kind == "note":
            self._live.console.print(printable(progress.text), markup=False, highlight=False)
        elif progress.kind == "stage":
            self.say(progress.text)
        elif progress.kind != "alive":
            what = (
                f"kernel {progress.position}/{progress.kernels} {progress.kernel}: best {progress.best:.2f}x"
            )
            # Rich stops the clock of a task that is complete: the comparison is still to come.
            share = min(progress.fraction, 0.999)
            self._live.update(self._task, description=printable(what), completed=share, state=state(progress))

    def say(self, text: str) -> None:
        """Say what is being done, for as long as it takes."""
        self._live.update(self._task, description=printable(text), state="")


def state(progress: Progress) -> str:
    """Return what comes first beside the bar: candidates, gain, time left."""
    from tvmpass.tune.progress import clock

    wanted = f"/{progress.trials}" if progress.trials is not None else ""
    left = f", {clock(progress.eta_s)} left" if progress.eta_s is not None else ""
    return f"{progress.recorded}{wanted} candidates, kernels {progress.gain:.3f}x{left}; "


@contextlib.contextmanager
def watching() -> Iterator[Lines]:
    """Yield what shows the progress; in a terminal it is a live bar that goes at the end."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}{task.description}", markup=False),
    )
    # Rich must not redirect the streams: quiet.py has already placed them.
    console = Console(file=sys.stderr)
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield Bar(live)
