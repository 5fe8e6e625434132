"""Keep TVM's own output away from ours.

TVM logs, and warns once per constant while it saves and loads an executable, by
writing to the process's file descriptors; none of its settings silences that.
So the descriptors 1 and 2 go to /dev/null while `sys.stdout` and `sys.stderr`
go on writing where they did.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def tvm_silenced(verbose: bool) -> Iterator[None]:
    """Silence everything but Python's own stdout and stderr inside the block."""
    if verbose or not _has_descriptors():
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    streams = sys.stdout, sys.stderr
    previous = logging.root.manager.disable
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stdout, sys.stderr = _reopened(saved[0], streams[0]), _reopened(saved[1], streams[1])
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        logging.disable(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _flush(sys.stdout)
        _flush(sys.stderr)
        sys.stdout, sys.stderr = streams
        logging.disable(previous)
        for descriptor, copy in zip((1, 2), saved):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(sink)


def _has_descriptors() -> bool:
    """Return False where the streams are captured in memory (tests, notebooks)."""
    try:
        return sys.stdout.fileno() == 1 and sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


def _reopened(descriptor: int, like) -> io.TextIOWrapper:
    return open(
        descriptor,
        "w",
        encoding=like.encoding,
        errors=like.errors,
        buffering=1 if like.isatty() else -1,
        closefd=False,
    )


def _flush(stream) -> None:
    with contextlib.suppress(BrokenPipeError, ValueError):
        stream.flush()
