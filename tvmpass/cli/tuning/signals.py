"""End a tune in order when it is told to stop: by Ctrl-C, ``kill`` or a closed terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """The process was told to end by a signal other than Ctrl-C's."""


class Interruptions:
    """Which signal came; ``code`` is the exit code that it stands for."""

    code = 130

    def take(self, number: int, frame) -> None:
        """Note the signal and end the work as Ctrl-C does."""
        self.code = 128 + number
        raise Ended


@contextlib.contextmanager
def ending_in_order() -> Iterator[Interruptions]:
    """Let SIGTERM and SIGHUP raise inside the block, unless the process ignores them.

    Under ``nohup`` SIGHUP stays ignored.
    """
    noted = Interruptions()
    if threading.current_thread() is not threading.main_thread():
        yield noted  # handlers belong to the main thread
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, noted.take)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
