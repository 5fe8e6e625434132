"""Keep TVM's C++ chatter off the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

_lock = threading.RLock()
_NOISE = ("Scope Saving", "Scope Loaded", "BlockBuilder destroyed", "Warning: Scope", ":onnxruntime:")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow known noise that C++ writes to stderr and stdout; pass the rest on.

    TVM prints a line per constant on export and load that no log level
    silences.  What is not known noise is written out afterwards.  With
    ``TVMPASS_DEBUG`` nothing is swallowed.
    """
    from tvmpass.settings import Settings

    if Settings.read().debug:
        yield
        return
    with _lock, contextlib.ExitStack() as stack:
        kept = [stack.enter_context(_captured(stream)) for stream in (1, 2)]
        try:
            yield
        finally:
            stack.pop_all().close()
            for descriptor, text in zip((1, 2), kept):
                rest = [ln for ln in text() if ln.strip() and not any(n in ln for n in _NOISE)]
                if rest:
                    os.write(descriptor, ("\n".join(rest) + "\n").encode())


@contextlib.contextmanager
def _captured(descriptor: int):
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # a closed stream has nothing to flush
            stream.flush()
    with tempfile.TemporaryFile() as sink:
        saved = os.dup(descriptor)
        os.dup2(sink.fileno(), descriptor)
        lines: list[str] = []
        try:
            yield lambda: lines
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(ValueError, OSError):
                    stream.flush()
            os.dup2(saved, descriptor)
            os.close(saved)
            sink.seek(0)
            lines.extend(sink.read().decode(errors="replace").splitlines())
