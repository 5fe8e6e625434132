"""A process of its own that collects: whatever hangs or crashes, hangs or crashes there."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

Collected = tuple[list[str], Counter[str]]
"""The lines to write and what was counted."""


class Batches(Protocol):
    """What collects graphs by the batch, for a seed and a number."""

    def batch(self, seed: tuple[int, int]) -> Collected: ...


def work(connection, make: Callable[..., Batches], arguments: tuple) -> None:
    """Collect batches until told to stop or ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    collector = make(*arguments)
    connection.send(None)
    while (seed := connection.recv()) is not None:
        connection.send(collector.batch(seed))


class Worker:
    """Lowers, compiles and runs in a process that is started anew when it is lost.

    ``make(*arguments)`` gives the collector there; both must be picklable.  After
    ``seconds`` a batch is given up.
    """

    def __init__(self, make: Callable[..., Batches], arguments: tuple[Any, ...], seconds: float):
        self.make, self.arguments, self.seconds = make, arguments, seconds
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self.make, self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.connection.recv()

    def batch(self, seed: tuple[int, int]) -> Collected:
        """Return what a batch gave, nothing where it crashed or ran out of time."""
        self.connection.send(seed)
        try:
            if self.connection.poll(self.seconds):
                return self.connection.recv()
            why = "batches out of time"
        except EOFError:
            why = "batches crashed"
        self.stop()
        self.start()
        return [], Counter({why: 1})

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
