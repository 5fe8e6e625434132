"""Make sure that an interrupt ends a tune, wherever it arrives.

Ctrl-C raises KeyboardInterrupt between two steps of Python.  Where those steps
are a callback from TVM's C++ code, it comes out of there as another error, which
costs one recipe or one candidate and is forgotten, or ends the work as a fault.
So the signal is noted too, and asked for at many places.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any

CTRL_C = (signal.SIGINT,)
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Also ``kill`` and a terminal that is closed."""


class Interrupts:
    """Notes signals inside a ``with`` block and raises KeyboardInterrupt for each.

    A signal that the process ignores (``nohup``) or that somebody else handles is
    left alone, and so are all outside the main thread, where there are none.
    """

    def __init__(self, signals: Sequence[signal.Signals] = CTRL_C):
        self.signals = signals
        self.number: int | None = None
        """The signal that came."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
                handler = signal.getsignal(number)
                if handler in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = handler
                    signal.signal(number, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self.number is not None and isinstance(error, Exception):
            raise KeyboardInterrupt from error  # what the signal raised became that error inside TVM

    @property
    def exit_code(self) -> int:
        """Return what a shell expects of a process that ended by the signal."""
        return 128 + (self.number or signal.SIGINT)

    def check(self) -> None:
        """Raise KeyboardInterrupt where a signal came whose exception got lost."""
        if self.number is not None:
            raise KeyboardInterrupt

    def _take(self, number: int, frame: object) -> None:
        self.number = number
        raise KeyboardInterrupt
