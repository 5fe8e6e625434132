"""The errors that tvmpass raises; each message is one clear line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TvmpassError(RuntimeError):
    """The work failed: the model, the target or the machine (exit code 1)."""

    in_lines = False
    """Whether the message is laid out in several lines: an excerpt of a text, a list."""


class UsageError(TvmpassError, ValueError):
    """The call itself is wrong: an unknown name, key or shape (exit code 2)."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text: where TVM puts the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
