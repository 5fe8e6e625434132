"""Errors of a Relay program, with the place in its text."""

from __future__ import annotations

import re

from tvmpass.core.errors import TvmpassError

_WIDTH = 120
_LONGEST = 4000
"""Characters of a line: enough to list everything that a program uses and cannot be converted."""

_LONG_WORD = re.compile(r"(\S{100})\S{4,}")


class RelayError(TvmpassError):
    """A Relay program cannot be read or converted.

    ``line`` and ``column`` count from 1, 0 where unknown.
    """

    in_lines = True

    def __init__(self, message: str, line: int = 0, column: int = 0):
        super().__init__(message)
        self.line = line
        self.column = column


def located(where: str, source: str | None, line: int, column: int, message: str) -> RelayError:
    """Return the error ``where:line:column: message`` with the line and a caret under the column."""
    head = where + (f":{line}" if line else "") + (f":{column}" if line and column else "")
    text = f"{head}: {bounded(message)}"
    if source is not None and line and column:
        text += "\n" + excerpt(source, line, column)
    return RelayError(text, line, column)


def bounded(message: str) -> str:
    """Return a message with words and lines cut: names and types can be endless."""
    message = _LONG_WORD.sub(r"\1...", message)
    lines = (line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..." for line in message.split("\n"))
    return "\n".join(lines)


def excerpt(source: str, line: int, column: int) -> str:
    """Return a line of ``source`` and a caret under its column; long lines are cut around it."""
    lines = source.split("\n", line)
    shown = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
    shown = "".join(c if c.isprintable() else " " for c in shown)
    begin = max(0, min(column - 1 - _WIDTH // 2, len(shown) - _WIDTH))
    cut = shown[begin : begin + _WIDTH]
    lead, tail = ("..." if begin else ""), ("..." if begin + _WIDTH < len(shown) else "")
    return f"    {lead}{cut}{tail}\n    {' ' * (len(lead) + column - 1 - begin)}^"
