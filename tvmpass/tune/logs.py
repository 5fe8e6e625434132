"""Merge and prune record files, and say what is in them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm

from tvmpass.catalogue import recipe_version
from tvmpass.compile.record_files import TuningRecord
from tvmpass.compile.records import beats
from tvmpass.core.errors import TvmpassError
from tvmpass.cost.device import is_cuda_class
from tvmpass.cost.hardware import hardware_of

from .file_lock import FileLock
from .log_lines import PACKED, PLAIN, Line, Log, Origin, read_log, read_logs, write_log
from .records import SUFFIX
from .work import CANDIDATE, CANDIDATE0

KEPT = 3
"""Candidates that pruning keeps of each kernel."""

_NOT_SHIPPED = ("cause", "spent_s", "checked")


def merge(
    paths: Iterable[str | os.PathLike], output: str | os.PathLike, compact: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Put record files together; return a row per file written, and problems.

    ``output`` ends in ``.jsonl`` or ``.jsonl.gz``, then all records must be of one
    origin; or it is a folder, then it gets one file per origin, tuning and
    training records apart.  What an output holds already counts as the first
    input.  Of records with one key the better founded stays: see `founded`.
    Raises `TvmpassError` where records would be mixed, and where a file cannot be
    read or written.
    """
    output = Path(output)
    logs, problems = read_logs(paths)
    if output.name.endswith((PLAIN, PACKED)) and not output.is_dir():
        _same_origin(logs)
        groups = {output: logs}
    else:
        _make_folder(output)
        groups = _by_name(logs, output, compact)
    rows = []
    for path, group in groups.items():
        with _locked(path):
            if path.exists():
                first = read_log(path)  # under the lock, so that nothing is lost that was added just now
                _same_origin([first, *group])
                group = [first, *(log for log in group if not os.path.samefile(log.path, path))]
                problems += [p for p in first.problems if p not in problems]
            lines = [line for log in group for line in log.lines]
            kept = distinct(lines)
            if compact:
                kept = [shipped(line) for line in kept if line.sort != "session"]
            write_log(path, group[0].header, kept)
            rows.append(
                {
                    "file": str(path),
                    "device_class": group[0].origin.device_class,
                    "inputs": [str(log.path) for log in group],
                    "lines": len(kept),
                    "duplicates": len(lines) - len(distinct(lines)),
                    **_counts(kept),
                }
            )
    return rows, problems


def prune(
    paths: Iterable[str | os.PathLike],
    output: str | os.PathLike | None = None,
    keep: int = KEPT,
    failures: bool = False,
    compact: bool = False,
    dry: bool = False,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Leave out what no build uses any more; return a row per file, and problems.

    Of each kernel the ``keep`` best candidates stay and the measurement of the
    library's own choice.  Records of another TVM or of an older recipe version
    go, failed ones too unless ``failures``; training records and session lines
    stay.  In place, or to ``output``: a file, or a folder that gets files of the same
    names.  ``dry`` writes nothing.  A file of which nothing is left is removed
    (in place) or not written.
    """
    logs, problems = read_logs(paths)
    targets = _targets(logs, None if output is None else Path(output), compact)
    rows = []
    for log, path in zip(logs, targets):
        with contextlib.nullcontext() if dry else _locked(path):
            if not dry and path.exists() and os.path.samefile(path, log.path):
                log = read_log(path)
            kept, dropped = _worth_keeping(log, keep, failures)
            if compact:
                kept = [shipped(line) for line in kept if line.sort != "session"]
            empty = all(line.sort == "session" for line in kept)
            rows.append(
                {
                    "file": str(path),
                    "device_class": log.origin.device_class,
                    "kept": len(kept),
                    "dropped": sum(dropped.values()),
                    "why": dict(dropped),
                    "removed": empty,
                }
            )
            if dry:
                continue
            if not empty:
                if kept != log.lines or path != log.path or log.problems:
                    write_log(path, log.header, kept)
            elif path.exists() and os.path.samefile(path, log.path):
                path.unlink()
    return rows, problems


def founded(entry: dict[str, Any]) -> tuple[bool, bool, bool, int]:
    """Say how well founded a record is; of two with one key the greater one stays.

    One that computed wrong numbers outweighs all (it is not to be trusted), then
    one that worked those that failed, one that was timed against candidate 0 those
    that were not, and more rounds fewer.  Of equals the first stays.
    """
    status, samples = entry.get("status"), entry.get("samples_us")
    timed = entry.get("candidate0_us") is not None
    return status == "wrong", status == "ok", timed, len(samples) if isinstance(samples, list) else 0


def distinct(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with one of each identity, at the place of the first.

    Fusion alternatives of one graph are only comparable within a session, so
    those of one graph stay or go together: the first largest set of them.
    """
    best: dict[tuple[Any, ...], Line] = {}
    graphs: dict[str, list[list[Line]]] = {}
    for line in lines:
        if line.sort == "alternative":
            runs = graphs.setdefault(line.entry["group_key"], [[]])
            if any(line.identity == other.identity for other in runs[-1]):
                runs.append([])
            runs[-1].append(line)
            continue
        known = best.get(line.identity)
        if known is None or founded(line.entry) > founded(known.entry):
            best[line.identity] = line
    for runs in graphs.values():
        for line in max(runs, key=len):
            best[line.identity] = line
    return [best.pop(line.identity) for line in lines if line.identity in best]


def shipped(line: Line) -> Line:
    """Return a line without what only the machine that measured it needs."""
    if line.sort == "alternative":
        return line
    entry = {name: value for name, value in line.entry.items() if name not in _NOT_SHIPPED}
    for name, nothing in (("samples_us", []), ("host", None), ("worker", None)):
        if name in entry:
            entry[name] = nothing
    return Line(line.sort, entry, line.record)


def why_unused(record: TuningRecord, origin: Origin) -> str | None:
    """Say why no build uses a candidate here, None where one may.

    A build also asks for the kernel itself, and takes the best of several.
    """
    if record.status != "ok":
        return record.status
    if origin.tvm != tvm.__version__:
        return "other-tvm"
    if _is_stale(record, origin):
        return "old-recipe"
    if record.candidate0_us is None:
        return "not-compared"
    return None if beats(record) else "not-faster"


def summarize(logs: Iterable[Log]) -> list[dict[str, Any]]:
    """Return a row per file: what it holds and how much of it builds may use."""
    rows = []
    for log in logs:
        candidates = [r for r in log.records if r.role == CANDIDATE]
        used = [r for r in candidates if why_unused(r, log.origin) is None]
        rows.append(
            {
                "file": str(log.path),
                "device_class": log.origin.device_class,
                "tvm": log.origin.tvm,
                **_counts(log.lines),
                "failed": sum(r.status != "ok" for r in log.records),
                "kernels": len({r.kernel_key for r in log.records}),
                "usable": len(used),
                "usable_kernels": len({r.kernel_key for r in used}),
                "problems": log.problems,
            }
        )
    return rows


def kernels(logs: Iterable[Log]) -> list[dict[str, Any]]:
    """Return a row per kernel and file: candidates, the best one, and whether it is used."""
    rows = []
    for log in logs:
        by_kernel: dict[str, list[TuningRecord]] = {}
        for record in log.records:
            by_kernel.setdefault(record.kernel_key, []).append(record)
        for key, records in by_kernel.items():
            candidates = [r for r in records if r.role == CANDIDATE]
            best = min(candidates or records, key=_order(log.origin))
            gain = round(1.0 / best.ratio, 4) if best.role == CANDIDATE and best.ratio > 0 else None
            rows.append(
                {
                    "kernel_key": key,
                    "kind": best.kind,
                    "device_class": log.origin.device_class,
                    "candidates": len(candidates),
                    "failed": dict(Counter(r.status for r in candidates if r.status != "ok")),
                    "best": best.recipe or ("trace" if best.trace else "fallback"),
                    "median_us": best.median_us,
                    "candidate0_us": best.candidate0_us,
                    "gain": gain or None,
                    "unused": why_unused(best, log.origin) if candidates else "no-candidate",
                    "file": str(log.path),
                }
            )
    return rows


def _order(origin: Origin):
    """Order records by worth: those that builds use first, then by their gain."""
    return lambda r: (why_unused(r, origin) is not None, r.status != "ok", r.ratio, r.key)


def _worth_keeping(log: Log, keep: int, failures: bool) -> tuple[list[Line], Counter[str]]:
    """Return the lines to keep, in file order, and how many go for which reason."""
    dropped: Counter[str] = Counter()
    by_kernel: dict[str, list[Line]] = {}
    gone: set[int] = set()
    lines = distinct(log.lines)
    dropped["duplicate"] = len(log.lines) - len(lines)
    for line in lines:
        record = line.record
        if record is None:
            if line.sort != "session" and log.origin.feature_version != _feature_version(log.origin):
                dropped["other-features"] += 1
                gone.add(id(line))
        elif log.origin.tvm != tvm.__version__:
            dropped["other-tvm"] += 1
            gone.add(id(line))
        elif _is_stale(record, log.origin):
            dropped["old-recipe"] += 1
            gone.add(id(line))
        elif record.status != "ok":
            if not failures:
                dropped["failed"] += 1
                gone.add(id(line))
        elif record.role == CANDIDATE:
            by_kernel.setdefault(record.kernel_key, []).append(line)
    order = _order(log.origin)
    for candidates in by_kernel.values():
        for line in sorted(candidates, key=lambda item: order(item.record))[keep:]:
            dropped["not-among-the-best"] += 1
            gone.add(id(line))
    return [line for line in lines if id(line) not in gone], +dropped


def _feature_version(origin: Origin) -> int:
    return hardware_of(origin.device_class).feature_version


def _is_stale(record: TuningRecord, origin: Origin) -> bool:
    """Was it measured with recipes that have changed since?  A trace too was compared with one."""
    kind = "cuda" if is_cuda_class(origin.device_class) else "llvm"
    return record.recipe_version != recipe_version(record.kind, kind)


def _counts(lines: Iterable[Line]) -> dict[str, int]:
    lines = list(lines)
    roles = Counter(line.record.role for line in lines if line.record is not None)
    sorts = Counter(line.sort for line in lines)
    return {
        "candidates": roles[CANDIDATE],
        "candidate0": roles[CANDIDATE0],
        "train": sorts["train"],
        "alternatives": sorts["alternative"],
        "sessions": sorts["session"],
    }


def _same_origin(logs: Sequence[Log]) -> None:
    for log in logs[1:]:
        if log.origin != logs[0].origin:
            raise TvmpassError(
                f"{logs[0].path} holds records of {logs[0].origin}, {log.path} of {log.origin}: "
                "they do not go into one file; name a folder to get a file for each"
            )


def _by_name(logs: Sequence[Log], folder: Path, compact: bool) -> dict[Path, list[Log]]:
    """Give every origin a file in ``folder``, tuning and training records apart."""
    groups: dict[tuple[Origin, bool], list[Log]] = {}
    for log in logs:
        groups.setdefault((log.origin, log.is_tuned), []).append(log)
    named: dict[Path, list[Log]] = {}
    for (origin, tuned), group in groups.items():
        suffix = (SUFFIX if tuned else PLAIN) + (".gz" if compact else "")
        name = origin.device_class
        if origin.tvm != tvm.__version__:
            name += ".tvm-" + "".join(c if c.isalnum() or c in ".-" else "-" for c in origin.tvm)
        if origin.feature_version != _feature_version(origin):
            name += f".features-{origin.feature_version}"
        path = folder / (name + suffix)
        if path in named or (path.exists() and read_log(path).origin != origin):
            path = folder / f"{name}-{origin.sms}sms{suffix}"
        named[path] = group
    return named


def _targets(logs: Sequence[Log], output: Path | None, compact: bool) -> list[Path]:
    """Return where each pruned file goes."""
    if output is None:
        if compact and any(log.path.suffix != ".gz" for log in logs):
            raise TvmpassError("a compact form is compressed and does not replace its source: name an output")
        return [log.path for log in logs]
    if output.name.endswith((PLAIN, PACKED)) and not output.is_dir():
        if len(logs) != 1:
            raise TvmpassError(
                f"{len(logs)} record files do not go into {output}: merge them, or name a folder"
            )
        return [output]
    _make_folder(output)
    names = [
        log.path.name.removesuffix(".gz") + (".gz" if compact or log.path.suffix == ".gz" else "")
        for log in logs
    ]
    for name, count in Counter(names).items():
        if count > 1:
            raise TvmpassError(f"{count} files would become {output / name}: merge them first")
    return [output / name for name in names]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TvmpassError(f"cannot write {folder}: {error.strerror or error}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold off tuning sessions while their file is replaced."""
    if not path.name.endswith(SUFFIX):
        yield
        return
    try:
        lock = FileLock.take(path, wait=False)
    except OSError as error:
        raise TvmpassError(f"cannot write {path}: {error.strerror or error}") from None
    with lock:
        yield
