"""Write record files: one writer at a time, every line whole, nothing lost by a kill.

A file is read again after anything that may have happened to its last writer.
Therefore the header is renamed into place, each line is one write that reaches
the disk before the next candidate is measured, and a line without an end, which
only a kill or a full disk leaves, goes when the file is opened again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm

from tvmpass.compile.kernel_key import record_key
from tvmpass.compile.record_files import dump_trace
from tvmpass.core.errors import TvmpassError
from tvmpass.core.files import write_text
from tvmpass.cost.dataset import MAX_LINE_BYTES, SCHEMA, header
from tvmpass.cost.device import is_cuda_class
from tvmpass.version import VERSION

from .file_lock import FileLock
from .work import CANDIDATE0, Candidate, Measurement, Workload

SUFFIX = ".tuned.jsonl"
MAX_CAUSE = 500
_TAIL_BLOCK = 1 << 16


def record_path(folder: str | os.PathLike, device_class: str) -> Path:
    """Return the path of the tuning records of ``device_class`` in ``folder``."""
    return Path(folder) / (device_class + SUFFIX)


class RecordFile:
    """The tuning records of one device class in one folder, open for appending.

    A context manager.  It holds the lock of the file until it is closed or its
    process ends, however it ends; forked children do not inherit the lock.
    ``notes`` are lines that the user should see: what was repaired or set aside.
    """

    def __init__(self, path: Path, handle: int, lock: FileLock, head: dict[str, Any], notes: list[str]):
        self.path, self.header, self.notes = path, head, notes
        self._handle, self._lock = handle, lock

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike,
        device_class: str,
        facts: Mapping[str, Any],
        wait: bool = True,
        waiting: Callable[[str], None] | None = None,
    ) -> RecordFile:
        """Open (or begin) the file of ``device_class``; its folder is made where needed.

        ``facts`` (host, mcpu; CUDA: sms, name) go into the header of a new file.
        Where another process writes the file, ``waiting`` is called once with a
        line that says so and the call blocks until that process is done; without
        ``wait`` it is an error.  A file of another TVM or feature version is set
        aside under a name that says which; CUDA devices of one class with other
        numbers of SMs have files of their own.

        Raises `TvmpassError` with one line where the folder cannot be written,
        the disk is full, or something else lies under the file's name.
        """
        folder = Path(folder)
        path = record_path(folder, device_class)
        with _explained(path):
            folder.mkdir(parents=True, exist_ok=True)
        head = header(device_class, tvm.__version__, VERSION, host=dict(facts))
        path = _own_device(path, head)
        with _explained(path):
            lock = FileLock.take(path, wait, waiting)
        handle = -1
        notes: list[str] = []
        try:
            with _explained(path):
                _set_aside(path, head, notes)
                handle = _open_whole(path, head, notes)
            return cls(path, handle, lock, _header_of(path) or head, notes)
        except BaseException:
            if handle >= 0:
                os.close(handle)
            lock.release()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line; when this returns, it has reached the disk.

        Raises `TvmpassError` with one line where that fails; the lines before are
        whole, and nothing of this one stays.
        """
        data = (json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n").encode()
        if len(data) > MAX_LINE_BYTES:
            raise TvmpassError(
                f"{self.path}: a record of {len(data)} bytes; at most {MAX_LINE_BYTES} fit a line"
            )
        with _explained(self.path):
            self._follow()
            before = os.fstat(self._handle).st_size
            try:
                written = os.write(self._handle, data)
                if written < len(data):  # the disk is full: the next write says so
                    os.write(self._handle, data[written:])
                os.fdatasync(self._handle)
            except BaseException:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    os.ftruncate(self._handle, before)
                raise

    def _follow(self) -> None:
        """Begin a new file where this one was removed or replaced under our hands."""
        own = os.fstat(self._handle)
        try:
            now = os.stat(self.path)
            if (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino):
                return
        except FileNotFoundError:
            pass
        handle = _open_whole(self.path, self.header, self.notes)
        os.close(self._handle)
        self._handle = handle

    def close(self) -> None:
        """Let the next writer in; closing twice does no harm."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
        self._lock.release()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def entry_of(
    workload: Workload,
    candidate: Candidate,
    measurement: Measurement,
    host: str | None = None,
    mcpu: str | None = None,
) -> dict[str, Any]:
    """Return the line of a measured candidate, as DESIGN's record files hold it.

    ``host`` is by default the machine that measured it, ``mcpu`` the target's
    CPU (CUDA: architecture).  Times are in µs, ``spent_s`` in seconds.
    """
    failed = measurement.status != "ok"
    text, trace = candidate.text, None
    if candidate.trace is not None:
        trace = json.loads(candidate.trace)
        text = dump_trace(trace)
    attrs = workload.target.attrs
    return {
        "key": record_key(workload.kernel_key, text, workload.recipe_version),
        "kernel_key": workload.kernel_key,
        "kind": workload.kind,
        "recipe": candidate.recipe,
        "trace": trace,
        "recipe_version": workload.recipe_version,
        "role": candidate.role,
        "status": measurement.status,
        "median_us": None if failed else _short(measurement.median_us),
        "samples_us": [] if failed else [_short(s) for s in measurement.samples_us],
        "candidate0_us": _short(measurement.candidate0_us),
        "wins": None if failed or candidate.role == CANDIDATE0 else _short(measurement.wins),
        "features": None
        if measurement.features is None
        else [round(float(v), 3) for v in measurement.features],
        "host": host or measurement.worker or None,
        "mcpu": mcpu or str(attrs.get("mcpu") or attrs.get("arch") or "") or None,
        "cause": measurement.cause and " ".join(measurement.cause.split())[:MAX_CAUSE],
        "spent_s": round(measurement.spent_s, 3),
        "worker": measurement.worker or None,
        "checked": measurement.checked,
    }


def _short(value: float | None) -> float | None:
    """Round to five digits: more than any clock here resolves."""
    return None if value is None else float(f"{value:.5g}")


def _own_device(path: Path, head: Mapping[str, Any]) -> Path:
    """Return ``path``, or for a CUDA device unlike the file's one a path of its own."""
    sms = head["host"].get("sms")
    found = _header_of(path)
    if not is_cuda_class(head["device_class"]) or sms is None or found is None:
        return path
    host = found.get("host")
    known = host.get("sms") if isinstance(host, dict) else None
    if known in (None, sms):
        return path
    return record_path(path.parent, f"{head['device_class']}-{sms}sms")


def _set_aside(path: Path, head: Mapping[str, Any], notes: list[str]) -> None:
    """Rename a file whose records nothing here can use; anything not ours is an error."""
    if not os.path.lexists(path) or (path.is_file() and path.stat().st_size == 0):
        return
    if not path.is_file():
        raise TvmpassError(f"{path}: not a regular file; move it away or name another folder")
    found = _header_of(path)
    if found is None or found.get("schema") != SCHEMA or not isinstance(found.get("device_class"), str):
        raise TvmpassError(
            f"{path}:1: no header of a record file (schema {SCHEMA}, device_class); "
            "it is left as it is: move it away or name another folder"
        )
    if found["device_class"] != head["device_class"]:
        raise TvmpassError(
            f"{path}:1: holds records of {found['device_class'][:60]!r}, not of {head['device_class']!r}; "
            "it is left as it is: move it away or name another folder"
        )
    for name, field in (("TVM", "tvm"), ("features", "feature_version")):
        if found.get(field) != head[field]:
            aside = _free_name(path, f"{field.split('_')[0]}-{found.get(field)}")
            os.rename(path, aside)
            notes.append(
                f"{path}: records of another version of {name}, not {head[field]}: kept as {aside.name}"
            )
            return


def _free_name(path: Path, word: str) -> Path:
    """Return a name beside ``path`` that holds ``word`` and is not taken."""
    stem = path.name.removesuffix(SUFFIX)
    safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in word)[:40]
    names = itertools.chain([f"{stem}.{safe}"], (f"{stem}.{safe}.{n}" for n in itertools.count(2)))
    return next(free for name in names if not os.path.lexists(free := path.with_name(name + SUFFIX)))


def _open_whole(path: Path, head: Mapping[str, Any], notes: list[str]) -> int:
    """Open for appending; begin a new file, end or drop a last line without an end."""
    if not path.exists() or path.stat().st_size == 0:
        write_text(path, json.dumps(head) + "\n")  # renamed into place: a header is never torn
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        start = _last_line_start(handle, size)
        if start < size:
            tail = os.pread(handle, min(size - start, MAX_LINE_BYTES + 1), start)
            if _is_object(tail):
                os.write(handle, b"\n")
            else:
                os.ftruncate(handle, start)
                notes.append(f"{path}: the last line was cut off ({size - start} bytes) and is removed")
    except BaseException:
        os.close(handle)
        raise
    return handle


def _last_line_start(handle: int, size: int) -> int:
    """Return where the text after the last line's end begins; ``size`` where there is none."""
    end = size
    while end > 0:
        begin = max(0, end - _TAIL_BLOCK)
        found = os.pread(handle, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_object(line: bytes) -> bool:
    if len(line) > MAX_LINE_BYTES:
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _header_of(path: Path) -> dict[str, Any] | None:
    """Return the first line of a file as a JSON object, None where it is none."""
    if not path.is_file():  # a pipe would never answer
        return None
    try:
        with open(path, "rb") as stream:
            line = stream.readline(MAX_LINE_BYTES + 1)
    except OSError:
        return None
    return json.loads(line) if _is_object(line) else None


@contextlib.contextmanager
def _explained(path: Path):
    """Turn what the system says into one line about the file."""
    try:
        yield
    except OSError as error:
        hint = ""
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "; name a folder that can be written"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "; the records before it are kept"
        reason = error.strerror or str(error)
        raise TvmpassError(f"cannot write {path}: {reason}{hint}") from error
