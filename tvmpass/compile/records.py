"""Find the tuning records that a build may use, and say what became of the others.

Records are looked up by kernel key in the files ``*.tuned.jsonl`` (or ``.gz``) of
a folder of the user's and of the one that ships.  One is used only if it was
measured for this class of devices under this TVM, its recipe is of the current
version, and it beat the library's own choice in its own session by more than
the noise.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from tvmpass.catalogue import parse_recipe, recipe_version
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.core.rule import ScheduleRule
from tvmpass.cost.hardware import target_device
from tvmpass.settings import shipped_logs

from .record_files import BadLine, LogFile, TuningRecord, dump_trace, parse_line, read_file, tuning_record

__all__ = [
    "GATE",
    "MIN_WINS",
    "BadLine",
    "LogFile",
    "Records",
    "TuningRecord",
    "beats",
    "dump_trace",
    "find_files",
    "parse_line",
    "read_file",
    "tuning_record",
]

GATE = 0.97
"""A candidate is used from this ratio to the library's own choice on: what is nearer is noise."""

MIN_WINS = 0.8
"""Share of the alternated rounds that a used candidate has won, where its record says so."""

SUFFIXES = (".tuned.jsonl", ".tuned.jsonl.gz")

LOCAL = Path("tuning_logs")
"""The folder of the working directory that is looked into if no other is named."""


def beats(record: TuningRecord) -> bool:
    """Return True for a candidate that beat the library's own choice beyond the noise."""
    if record.role != "candidate" or record.status != "ok":
        return False
    return record.ratio <= GATE and (record.wins is None or record.wins >= MIN_WINS)


@dataclass
class Records:
    """What the record files hold for one build.

    ``present`` counts the candidates' lines of all files looked at, ``orphaned``
    those that no build for this target could use: measured for another class of
    devices or under another TVM, of an older recipe version, or not readable.
    """

    present: int = 0
    orphaned: int = 0
    problems: list[str] = field(default_factory=list)
    _found: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        options: Options,
        target: tvm.target.Target,
        device_class: str,
        steps: Sequence[ScheduleRule] = (),
    ) -> Records:
        """Read what `find_files` gives; ``tvmpass.tuning_logs=off`` reads nothing.

        ``steps`` are scheduling rules that recipes may name beside the built-in
        ones.  A file that cannot be read is a problem, not an error.
        """
        made = cls()
        own = getattr(target_device(target, options.threads), "sms", None)
        readable = functools.cache(lambda recipe: _is_readable(recipe, steps))
        for path in find_files(options):
            try:
                log = _read_cached(path)
            except TvmpassError as error:
                made.problems.append(str(error))
                continue
            if not log.header and not _is_asked_for(path, options):
                continue  # a file in ./tuning_logs that was never ours
            made.problems += log.problems
            made.present += len(log.records)
            if log.device_class != device_class or log.header.get("tvm") != tvm.__version__:
                made.orphaned += len(log.records)
                continue
            distance = _distance(log.header, own)
            for record in log.records:
                if not _is_current(record, target.kind.name) or not readable(record.recipe):
                    made.orphaned += 1
                elif beats(record):
                    made._found.setdefault(record.kernel_key, []).append(
                        (distance, record.ratio, record.key, record)
                    )
        return made

    def __bool__(self) -> bool:
        """Is there any record to be used, for whatever kernel?"""
        return bool(self._found)

    def best(self, kernel_key: str) -> TuningRecord | None:
        """Return the record to build a kernel with, None where no candidate was good enough.

        Of several devices of a CUDA class the nearest in its number of SMs is
        taken, then what gained most over candidate 0 of its own session.
        """
        found = self._found.get(kernel_key)
        return None if found is None else min(found, key=lambda item: item[:3])[3]


def find_files(options: Options) -> list[Path]:
    """Return the record files that a build looks at, in a fixed order, each once.

    Those of ``tvmpass.tuning_logs`` where it is a folder, else of
    ``./tuning_logs``; then those that ship.
    """
    if options.tuning_logs == "off":
        return []
    own = LOCAL if options.tuning_logs == "lookup" else Path(options.tuning_logs)
    found: dict[str, Path] = {}
    for folder in (own, shipped_logs()):
        for path in _tuned_files(folder):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _tuned_files(folder: Path) -> Iterable[Path]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIXES))
    except OSError:
        return []  # there is no such folder
    return [folder / name for name in names]


def _is_asked_for(path: Path, options: Options) -> bool:
    return options.tuning_logs != "lookup" or path.parent != LOCAL


def _read_cached(path: Path) -> LogFile:
    """Read a file; within one process again only if it has changed."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise TvmpassError(f"{path}: {error.strerror or error}") from None
    return _read_once(path, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read_once(path: Path, *_state: int) -> LogFile:
    return read_file(path)


def _is_current(record: TuningRecord, target_kind: str) -> bool:
    """Was it measured with today's recipes?  A trace too was compared with the library's choice."""
    return record.recipe_version == recipe_version(record.kind, target_kind)


def _is_readable(recipe: str | None, steps: Sequence[ScheduleRule]) -> bool:
    if recipe is None:
        return True
    try:
        parse_recipe(recipe, steps)
    except UsageError:
        return False
    return True


def _distance(header: dict[str, Any], own: int | None) -> float:
    """Return how far a file's device is from the target's, by their SMs: 0 on CPUs."""
    host = header.get("host")
    sms = host.get("sms") if isinstance(host, dict) else None
    if own is None or not isinstance(sms, int) or not 0 < sms < 10_000:
        return 0.0
    return abs(math.log(sms / own))
