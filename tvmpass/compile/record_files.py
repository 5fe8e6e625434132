"""Read the files that tuning sessions write, whoever wrote them.

A file is JSON lines with a header first.  It may come from anyone: nothing in it
is executed, every size is bounded, and a line that does not fit is skipped with
a message that names it.  Lines of training data are passed over unread.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvmpass.core.errors import TvmpassError
from tvmpass.core.kernels import KINDS
from tvmpass.cost.dataset import MAX_LINE_BYTES, MAX_PROBLEMS, NOT_GZIP, SCHEMA, STATUSES, numbered_lines

ROLES = ("candidate0", "candidate")
"""The roles of tuning records; ``train`` lines are for the cost model alone."""

MAX_TEXT = 4096
"""Characters of a recipe, a cause or a name in a record."""

MAX_RECORDS = 100_000
"""Candidates that are read of one file."""

MAX_US = 1e9
_TRAIN = re.compile(rb'"role"\s*:\s*"train"')
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TuningRecord:
    """One measured candidate of one kernel; times are µs per call of its own session.

    ``trace`` is a trace's JSON text, as a `Candidate` of ``tvmpass.tune`` has it.
    ``key`` is `kernel_key.record_key` of the kernel with this recipe or trace.
    """

    key: str
    kernel_key: str
    kind: str
    recipe: str | None
    trace: str | None
    recipe_version: int
    role: str
    status: str
    median_us: float | None = None
    candidate0_us: float | None = None
    wins: float | None = None
    """Share of the alternated rounds in which it was faster than candidate 0."""
    samples_us: tuple[float, ...] = ()
    features: tuple[float, ...] | None = None
    cause: str | None = None
    spent_s: float = 0.0
    worker: str = ""
    checked: str = ""
    line: int = 0
    """Where it stands in its file."""

    @property
    def text(self) -> str:
        """Return what tells it from others of its kernel; part of its key."""
        return self.recipe if self.recipe is not None else self.trace or "fallback"

    @property
    def ratio(self) -> float:
        """Return its time over candidate 0's in its own session, infinite where either is missing."""
        if self.median_us is None or self.candidate0_us is None:
            return math.inf
        return self.median_us / self.candidate0_us


@dataclass
class LogFile:
    """What a record file holds; without a header that can be used it is empty.

    ``sessions`` are the values of its ``{"session": ...}`` lines, ``problems``
    one message per line that was skipped (`MAX_PROBLEMS` of them, then a count).
    """

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    records: list[TuningRecord] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def device_class(self) -> str:
        return str(self.header.get("device_class", ""))


class BadLine(ValueError):
    """A line that cannot be used; the message says why."""


def read_file(path: str | os.PathLike) -> LogFile:
    """Read the tuning records and session lines of one file, in file order.

    Raises `TvmpassError` only where the file cannot be opened; what is wrong
    inside it goes to ``problems``.
    """
    log = LogFile(Path(path))
    skipped = 0
    try:
        for number, line in numbered_lines(log.path):
            try:
                if number == 1:
                    log.header = _header(line)
                elif line.strip() and not _TRAIN.search(line):
                    _take(log, line, number)
                    if len(log.records) >= MAX_RECORDS:
                        log.problems.append(f"{log.path}: {MAX_RECORDS} candidates; the rest is not read")
                        break
            except BadLine as problem:
                skipped += 1
                if number == 1:
                    log.problems.append(f"{log.path}:1: {problem}")
                    break
                if skipped <= MAX_PROBLEMS:
                    log.problems.append(f"{log.path}:{number}: skipped: {problem}")
    except NOT_GZIP as error:
        log.problems.append(f"{log.path}: the rest is no gzip data that can be read ({error})")
    except OSError as error:
        raise TvmpassError(f"{log.path}: {error.strerror or error}") from None
    if not log.header and not log.problems:
        log.problems.append(f"{log.path}: empty")
    if skipped > MAX_PROBLEMS:
        log.problems.append(f"{log.path}: {skipped - MAX_PROBLEMS} more lines skipped")
    return log


def _take(log: LogFile, line: bytes, number: int) -> None:
    if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
        raise BadLine("the line has no end: its writer was stopped")
    entry = parse_line(line)
    if "session" in entry:
        if not isinstance(entry["session"], dict):
            raise BadLine("session: expected an object")
        log.sessions.append(entry["session"])
    elif "alternative" not in entry:
        log.records.append(tuning_record(entry, number))


def _header(line: bytes) -> dict[str, Any]:
    head = parse_line(line)
    if head.get("schema") != SCHEMA or not isinstance(head.get("device_class"), str):
        raise BadLine(f"no header of a record file (schema {SCHEMA}, device_class)")
    return head


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a line's JSON object; `BadLine` for anything else, NaN included."""
    if len(line) > MAX_LINE_BYTES:
        raise BadLine(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        entry = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON ({str(error)[:80]})") from None
    if not isinstance(entry, dict):
        raise BadLine("not a JSON object")
    return entry


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def tuning_record(entry: dict[str, Any], line: int = 0) -> TuningRecord:
    """Check the fields of a candidate's line and return it; `BadLine` says what is wrong."""
    status = _one_of(entry, "status", STATUSES)
    recipe, trace = entry.get("recipe"), entry.get("trace")
    if recipe is not None and trace is not None:
        raise BadLine("recipe and trace: expected one of them at most")
    return TuningRecord(
        key=_text(entry, "key"),
        kernel_key=_kernel_key(entry),
        kind=_one_of(entry, "kind", KINDS),
        recipe=None if recipe is None else _text(entry, "recipe"),
        trace=None if trace is None else dump_trace(trace),
        recipe_version=_version(entry),
        role=_one_of(entry, "role", ROLES),
        status=status,
        median_us=_time(entry, "median_us", needed=status == "ok"),
        candidate0_us=_time(entry, "candidate0_us", needed=False),
        wins=_number(entry, "wins", 1.0),
        samples_us=_numbers(entry, "samples_us", MAX_US) or (),
        features=_numbers(entry, "features", 1e6),
        cause=entry["cause"][:MAX_TEXT] if isinstance(entry.get("cause"), str) else None,
        spent_s=_number(entry, "spent_s", 1e7) or 0.0,
        worker=_text(entry, "worker") if entry.get("worker") else "",
        checked=_text(entry, "checked") if entry.get("checked") else "",
        line=line,
    )


def dump_trace(value: Any) -> str:
    """Return a trace's JSON value as text: the one spelling that keys are made of."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadLine(f"trace: no JSON value ({str(error)[:80]})") from None


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise BadLine(f"{name}: expected a text of at most {MAX_TEXT} characters")
    return value


def _kernel_key(entry: dict[str, Any]) -> str:
    value = entry.get("kernel_key")
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise BadLine("kernel_key: expected 64 hex digits")
    return value


def _one_of(entry: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = entry.get(name)
    if value not in words:
        raise BadLine(f"{name}: {str(value)[:40]!r} is none of {', '.join(words)}")
    return value


def _version(entry: dict[str, Any]) -> int:
    value = entry.get("recipe_version")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise BadLine("recipe_version: expected a whole number")
    return value


def _time(entry: dict[str, Any], name: str, needed: bool) -> float | None:
    value = _number(entry, name, MAX_US)
    if value == 0.0 or (value is None and needed):
        raise BadLine(f"{name}: {entry.get(name)!r} is no time in microseconds")
    return value


def _number(entry: dict[str, Any], name: str, most: float) -> float | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= most:
        raise BadLine(f"{name}: {str(value)[:40]} is no number from 0 to {most:g}")
    return float(value)


def _numbers(entry: dict[str, Any], name: str, most: float) -> tuple[float, ...] | None:
    values = entry.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        raise BadLine(f"{name}: expected numbers")
    if values and not -most <= min(values) <= max(values) <= most:
        raise BadLine(f"{name}: expected numbers up to {most:g}")
    return tuple(values)
