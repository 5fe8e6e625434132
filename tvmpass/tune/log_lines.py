"""Read and write whole record files: of tuning sessions and of training data alike.

Where a build reads only what it may use, the tools of ``tvmpass logs`` keep every
line that is in order, whatever it is, and name every line that is not.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tvmpass.compile.kernel_key import record_key
from tvmpass.compile.record_files import BadLine, TuningRecord, parse_line, tuning_record
from tvmpass.core.errors import TvmpassError
from tvmpass.core.files import replacing
from tvmpass.cost.dataset import MAX_FILE_BYTES, MAX_PROBLEMS, NOT_GZIP, SCHEMA, check_entry, numbered_lines
from tvmpass.cost.device import is_cuda_class, is_device_class
from tvmpass.cost.hardware import hardware_of

from .work import TRAIN

MAX_DEPTH = 64
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A text in quotes, or a bracket outside of one."""

PLAIN, PACKED = ".jsonl", ".jsonl.gz"


class Origin(NamedTuple):
    """Where records were measured: files that differ in it are never put together."""

    device_class: str
    tvm: str
    feature_version: int
    sms: int | None = None
    """Multiprocessors of a CUDA device."""

    def __str__(self) -> str:
        extra = "" if self.sms is None else f" with {self.sms} SMs"
        return f"{self.device_class}{extra} (TVM {self.tvm}, features {self.feature_version})"


@dataclass(frozen=True, eq=False)
class Line:
    """One line in order: its JSON object, and what it is as a tuning record, if it is one.

    ``sort`` is ``record``, ``train``, ``alternative`` or ``session``.
    """

    sort: str
    entry: dict[str, Any]
    record: TuningRecord | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return what it is about: two lines of one identity say the same thing twice."""
        if self.sort == "alternative":
            return self.sort, self.entry["group_key"], self.entry["alternative"]
        if self.sort == "session":
            return self.sort, json.dumps(self.entry, sort_keys=True)
        if self.sort == TRAIN:  # a kernel measured twice is twice the data
            return self.sort, self.entry["key"], json.dumps(self.entry, sort_keys=True)
        return self.sort, self.entry["key"], self.entry["role"]


@dataclass
class Log:
    """A record file as it was read; ``problems`` name the lines that were left out."""

    path: Path
    header: dict[str, Any]
    origin: Origin
    lines: list[Line] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[TuningRecord]:
        return [line.record for line in self.lines if line.record is not None]

    @property
    def is_tuned(self) -> bool:
        """Return True for a file of tuning sessions, False for one of training data."""
        return ".tuned." in self.path.name

    def count(self, sort: str) -> int:
        return sum(line.sort == sort for line in self.lines)


def read_log(path: str | os.PathLike) -> Log:
    """Read a record file; raises `TvmpassError` where it is none or cannot be opened."""
    path = Path(path)
    log: Log | None = None
    problems: list[str] = []
    skipped = 0
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TvmpassError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, not read")
        for number, text in numbered_lines(path):
            try:
                if log is None:
                    head = parse_line(text)
                    log = Log(path, head, _origin(head), problems=problems)
                elif text.strip():
                    _check_depth(text)
                    log.lines.append(_line(parse_line(text), log.origin, number))
            except ValueError as problem:
                if log is None:
                    raise TvmpassError(f"{path}:1: {problem}") from None
                skipped += 1
                if skipped <= MAX_PROBLEMS:
                    problems.append(f"{path}:{number}: skipped: {problem}")
    except NOT_GZIP as error:
        if log is None:
            raise TvmpassError(f"{path}: no gzip file that can be read ({error})") from None
        problems.append(f"{path}: the rest is no gzip data that can be read ({error})")
    except OSError as error:
        raise TvmpassError(f"{path}: {error.strerror or error}") from None
    if log is None:
        raise TvmpassError(f"{path}: empty, no record file")
    if skipped > MAX_PROBLEMS:
        problems.append(f"{path}: {skipped - MAX_PROBLEMS} more lines skipped")
    return log


def _origin(head: Mapping[str, Any]) -> Origin:
    found, version = head.get("device_class"), head.get("feature_version")
    if head.get("schema") != SCHEMA or not isinstance(found, str):
        raise BadLine(f"no header of a record file (schema {SCHEMA}, device_class)")
    if not is_device_class(found) or len(found) > 80:
        # Files are named after it.
        raise BadLine(f"device_class: {found[:60]!r} is none, as x86-64-v3-t1 and cuda-sm_90 are")
    if not isinstance(version, int):
        raise BadLine("feature_version: expected a whole number")
    host = head.get("host")
    sms = host.get("sms") if isinstance(host, dict) and is_cuda_class(found) else None
    known = isinstance(sms, int) and 0 < sms < 10_000
    return Origin(found, str(head.get("tvm"))[:40], version, sms if known else None)


def _check_depth(text: bytes) -> None:
    """Refuse what nests deeper than any line of ours: it could be read, but not written again."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] in b"[{":
            depth += 1
        elif found[0] in b"]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise BadLine(f"nested deeper than {MAX_DEPTH} levels")


def _line(entry: dict[str, Any], origin: Origin, number: int) -> Line:
    if "session" in entry:
        if not isinstance(entry["session"], dict):
            raise BadLine("session: expected an object")
        return Line("session", entry)
    if "alternative" in entry or entry.get("role") == TRAIN:
        hardware = hardware_of(origin.device_class)
        if origin.feature_version == hardware.feature_version:
            check_entry(entry, len(hardware.feature_names))
        for name in ("group_key", "alternative") if "alternative" in entry else ("kernel_key", "key"):
            if not isinstance(entry.get(name), str):
                raise BadLine(f"{name}: expected a text")
        return Line("alternative" if "alternative" in entry else TRAIN, entry)
    record = tuning_record(entry, number)
    if record.key != record_key(record.kernel_key, record.text, record.recipe_version):
        raise BadLine("key: not that of its kernel, recipe or trace, and version")
    return Line("record", entry, record)


def write_log(path: str | os.PathLike, header: Mapping[str, Any], lines: Iterable[Line]) -> None:
    """Write a record file, whole or not at all; ``.gz`` is compressed.

    The same lines give the same bytes: the compressed form holds neither name
    nor time.
    """
    with replacing(path) as temporary, open(temporary, "wb") as raw:
        packed = str(path).endswith(".gz")
        stream = gzip.GzipFile("", "wb", 9, raw, mtime=0) if packed else raw
        try:
            for entry in (header, *(line.entry for line in lines)):
                stream.write((json.dumps(entry, separators=(",", ":")) + "\n").encode())
        finally:
            if stream is not raw:
                stream.close()


def find_logs(paths: Iterable[str | os.PathLike]) -> list[tuple[Path, bool]]:
    """Return the record files that ``paths`` name, each with whether it was named itself.

    Of a folder its ``*.jsonl`` and ``*.jsonl.gz``, in order of their names.  Raises
    `TvmpassError` for a path that does not exist and where there is no file at all.
    """
    found: dict[str, tuple[Path, bool]] = {}
    given = [Path(path) for path in paths]
    for path in given:
        if path.is_dir():
            for name in sorted(os.listdir(path)):
                if name.endswith((PLAIN, PACKED)):
                    found.setdefault(os.path.realpath(path / name), (path / name, False))
        elif os.path.lexists(path):
            found[os.path.realpath(path)] = (path, True)
        else:
            raise TvmpassError(f"{path}: No such file or directory")
    if not found:
        where = ", ".join(map(str, given))
        raise TvmpassError(f"{where}: no record files (*{PLAIN}, *{PACKED})")
    return list(found.values())


def read_logs(paths: Iterable[str | os.PathLike]) -> tuple[list[Log], list[str]]:
    """Read what `find_logs` finds; return the logs, and what is wrong with them.

    A file of a folder that is no record file is a problem; one that was named
    is an error.
    """
    logs: list[Log] = []
    problems: list[str] = []
    for path, named in find_logs(paths):
        try:
            log = read_log(path)
        except TvmpassError as error:
            if named:
                raise
            problems.append(f"{error}: left out")
            continue
        logs.append(log)
        problems += log.problems
    return logs, problems
