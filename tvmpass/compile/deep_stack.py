"""Call a function with a large stack: a model that calls itself needs a frame per level."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

STACKS = (512 << 20, 64 << 20)
"""Bytes of stack to try, largest first; a level of a recursive model takes some 6 kB.

Only what is used takes memory.
"""

_lock = threading.Lock()


def call_deep(function: Callable[[], Any]) -> Any:
    """Return ``function()``, called in a thread of its own with a large stack.

    Where the system gives no such thread it is called here.  What it raises is
    raised.
    """
    result: list[Any] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            result.append(function())
        except BaseException as error:
            failure.append(error)

    for size in STACKS:
        thread = _started(body, size)
        if thread is not None:
            thread.join()
            break
    else:
        body()
    if failure:
        raise failure[0]
    return result[0]


def _started(body: Callable[[], None], size: int) -> threading.Thread | None:
    with _lock:  # the size is a setting of the process
        try:
            before = threading.stack_size(size)
        except (ValueError, RuntimeError):
            return None
        thread = threading.Thread(target=body, name="tvmpass-run", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None
        finally:
            threading.stack_size(before)
    return thread
