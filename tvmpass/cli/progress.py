"""Show what a command is doing: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from .printable import printable


class Stages:
    """Announce one stage after another on stderr."""

    def __init__(self):
        self._start = time.perf_counter()

    def __call__(self, what: str) -> None:
        """Say that the stage ``what`` begins."""
        self._line(f"{what} …")

    def done(self, summary: str) -> None:
        """Say how the work ended."""
        self._line(summary)

    def _line(self, text: str) -> None:
        print(f"[{time.perf_counter() - self._start:6.1f} s] {printable(text)}", file=sys.stderr, flush=True)


class LiveStages(Stages):
    """The same with a spinner and running time for the stage in progress."""

    def __init__(self, progress):
        super().__init__()
        self._progress = progress
        self._task = None

    def __call__(self, what: str) -> None:
        what = printable(what)
        if self._task is None:
            self._task = self._progress.add_task(what, total=None)
        else:
            self._progress.update(self._task, description=what)

    def done(self, summary: str) -> None:
        self._progress.stop()
        self._line(summary)


@contextlib.contextmanager
def stages() -> Iterator[Stages]:
    """Yield a `Stages`; in a terminal it is a live line that goes at the end."""
    if not sys.stderr.isatty():
        yield Stages()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    # Rich must not redirect the streams: quiet.py has already placed them.
    console = Console(file=sys.stderr)
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        yield LiveStages(progress)
