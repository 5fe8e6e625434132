"""Read record files: what was measured, line by line.

A record file is JSON lines with a header first; it may come from anyone, so
nothing in it is executed, every size is bounded, and a line that does not fit
is skipped with a message that names it.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tvmpass.core.errors import TvmpassError

from .device import is_cuda_class, split_class
from .hardware import Hardware, hardware_of

SCHEMA = 1
MAX_LINE_BYTES = 1 << 18
MAX_FILE_BYTES = 1 << 29
MAX_PROBLEMS = 20
"""Messages kept per file; the rest are counted."""

SIMULATED = "sim"
"""The header's ``device`` where times come from `simulated.SimulatedDevice`."""

NOT_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a compressed file may raise because of its content."""

STATUSES = ("ok", "crash", "timeout", "memory", "wrong")
ROLES = ("candidate0", "candidate", "train")


@dataclass(frozen=True)
class KernelRecord:
    """One measured kernel: features of the scheduled function and its time in µs.

    ``role`` tells the library's own choice of a tuning session (``candidate0``)
    from what it was compared with (``candidate``) and from ``train`` lines.
    """

    kernel_key: str
    kind: str
    recipe: str | None
    features: np.ndarray
    median_us: float
    role: str = "train"


@dataclass(frozen=True)
class Alternative:
    """One way of cutting a graph into kernels, and their summed time in µs.

    ``name`` is ``off`` (one kernel per operator), ``on`` or ``partial:...``.
    """

    group_key: str
    name: str
    kernel_keys: tuple[str, ...]
    median_us: float


@dataclass
class Dataset:
    """The usable lines of some record files, in file order, and what was skipped.

    ``facts`` are what the first file says of its device; ``simulated`` where the
    records come from `simulated.SimulatedDevice`.
    """

    device_class: str
    simulated: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    kernels: list[KernelRecord] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def first(self) -> dict[str, KernelRecord]:
        """Map each kernel to the first record of the library's own choice for it.

        Collected (``train``) lines begin with that choice, and were measured beside
        the kernels that they are compared with; tuning sessions mark it.  A kernel
        of which only other candidates are known is left out.
        """
        found: dict[str, KernelRecord] = {}
        for role in ("train", "candidate0"):
            own: dict[str, KernelRecord] = {}
            for record in self.kernels:
                if record.role == role:
                    own.setdefault(record.kernel_key, record)
            found = {**own, **found}
        return found


class _Bad(ValueError):
    """A line that cannot be used; the message says why."""


def header(device_class: str, tvm_version: str, tvmpass_version: str, **extra: Any) -> dict[str, Any]:
    """Return the first line of a record file."""
    return {
        "schema": SCHEMA,
        "tvmpass": tvmpass_version,
        "tvm": tvm_version,
        "device_class": device_class,
        "feature_version": hardware_of(device_class).feature_version,
        **extra,
    }


def read(paths: Iterable[str | os.PathLike], device_class: str) -> Dataset:
    """Read the records of ``device_class`` from ``paths``, in order.

    Where no file holds that very class, files of the same instruction set with
    another thread count stand in.  Records of the simulated device are used
    only where there are no others, and those of CUDA devices with another
    number of SMs than the first file's not at all.  A kernel that failed is left
    out.  Raises `TvmpassError` only where a path cannot be opened.
    """
    opened = [(Path(path), *_open(Path(path))) for path in paths]
    exact = [item for item in opened if item[1].get("device_class") == device_class]
    wanted = split_class(device_class)[0]
    used = exact or [item for item in opened if split_class(item[1].get("device_class", ""))[0] == wanted]
    first = next((head for _, head, _ in used if not _simulated(head)), used[0][1] if used else {})
    data = Dataset(str(first.get("device_class", device_class)), _simulated(first), _facts(first))
    hardware = hardware_of(data.device_class)
    for path, head, problem in opened:
        unfit = None if problem else _unfit(head, data, hardware)
        if problem:
            data.problems.append(problem)
        elif unfit:
            data.problems.append(f"{path}: {unfit}")
        else:
            _read_into(data, path, len(hardware.feature_names))
    return data


def _unfit(head: dict[str, Any], data: Dataset, hardware: Hardware) -> str | None:
    """Say why a file's records do not belong to ``data``, None where they do."""
    found = head["device_class"]
    if found != data.device_class:
        return f"holds records of {found}, not of {data.device_class}"
    if _simulated(head) != data.simulated:
        return "holds records of the simulated device; there are measured ones"
    if _facts(head) != data.facts:
        return f"holds records of another device of the class ({_facts(head)}); train on them alone"
    found = head.get("feature_version")
    if found != hardware.feature_version:
        return f"feature version {found!r}, this is {hardware.feature_version}: collect anew"
    return None


def _simulated(head: Mapping[str, Any]) -> bool:
    return head.get("device") == SIMULATED


def _facts(head: Mapping[str, Any]) -> dict[str, int]:
    """Return what a header says of a CUDA device that tells it from others of its class."""
    host = head.get("host")
    sms = host.get("sms") if isinstance(host, dict) else None
    if isinstance(sms, int) and 0 < sms < 10_000 and is_cuda_class(str(head.get("device_class"))):
        return {"sms": sms}
    return {}


def _open(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return a file's header, or an empty one and what is wrong with it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}, f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, not read"
        first = next(numbered_lines(path), (1, b""))[1]
    except NOT_GZIP as error:
        return {}, f"{path}: not a gzip file that can be read ({error})"
    except OSError as error:
        raise TvmpassError(f"{path}: {error.strerror or error}") from None
    try:
        head = _object(first)
        if head.get("schema") != SCHEMA or not isinstance(head.get("device_class"), str):
            raise _Bad(f"no header of a record file (schema {SCHEMA}, device_class)")
    except _Bad as problem:
        return {}, f"{path}:1: {problem}"
    return head, None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines; one over the limit comes as its first bytes."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(None, "not a regular file")
    opener = gzip.open if path.suffix == ".gz" else open
    total = 0
    with opener(path, "rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            total += len(line)
            yield number, line
            while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n") and total <= MAX_FILE_BYTES:
                line = stream.readline(MAX_LINE_BYTES + 1)
                total += len(line)
            if total > MAX_FILE_BYTES:
                return


def _read_into(data: Dataset, path: Path, inputs: int) -> None:
    skipped = 0
    try:
        for number, line in numbered_lines(path):
            if number == 1 or not line.strip():
                continue
            try:
                _take(data, _object(line), inputs)
            except _Bad as problem:
                skipped += 1
                if skipped <= MAX_PROBLEMS:
                    data.problems.append(f"{path}:{number}: skipped: {problem}")
    except NOT_GZIP as error:
        data.problems.append(f"{path}: the rest is no gzip data that can be read ({error})")
    if skipped > MAX_PROBLEMS:
        data.problems.append(f"{path}: {skipped - MAX_PROBLEMS} more lines skipped")


def _take(data: Dataset, entry: dict[str, Any], inputs: int) -> None:
    if "session" in entry:
        return  # what a tuning session says of itself
    if "alternative" in entry:
        data.alternatives.append(_alternative(entry))
    else:
        record = _kernel(entry, inputs)
        if record is not None:
            data.kernels.append(record)


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise _Bad(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Bad(f"not JSON ({str(error)[:80]})") from None
    if not isinstance(entry, dict):
        raise _Bad("not a JSON object")
    return entry


def check_entry(entry: dict[str, Any], inputs: int) -> None:
    """Raise ValueError, saying why, where `read` would skip a line with ``inputs`` features."""
    if "alternative" in entry:
        _alternative(entry)
    else:
        _kernel(entry, inputs)


def _kernel(entry: dict[str, Any], inputs: int) -> KernelRecord | None:
    status = _word(entry, "status", STATUSES)
    role = _word(entry, "role", ROLES)
    if status != "ok":
        return None
    values = entry.get("features")
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != inputs:
        raise _Bad(f"features: expected {inputs} numbers")
    if not all(isinstance(v, (int, float)) and abs(v) < 1e6 for v in values):
        raise _Bad("features: not all finite numbers")
    recipe = entry.get("recipe")
    if recipe is not None and not isinstance(recipe, str):
        raise _Bad("recipe: expected a text or null")
    features = np.array(values, dtype=np.float32)
    key, kind = _text(entry, "kernel_key"), _text(entry, "kind")
    return KernelRecord(key, kind, recipe, features, _time(entry), role)


def _alternative(entry: dict[str, Any]) -> Alternative:
    name = _text(entry, "alternative")
    if name not in ("off", "on") and not name.startswith("partial:"):
        raise _Bad(f"alternative: {name[:40]!r} is neither off, on nor partial:...")
    keys = entry.get("kernel_keys")
    if not isinstance(keys, list) or not 0 < len(keys) <= 1000 or not all(isinstance(k, str) for k in keys):
        raise _Bad("kernel_keys: expected a list of texts")
    return Alternative(_text(entry, "group_key"), name, tuple(keys), _time(entry))


def _time(entry: dict[str, Any]) -> float:
    value = entry.get("median_us")
    if not isinstance(value, (int, float)) or not 0.0 < value < 1e9:
        raise _Bad(f"median_us: {value!r} is no time in microseconds")
    return float(value)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise _Bad(f"{name}: expected a text")
    return value


def _word(entry: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = entry.get(name)
    if value not in words:
        raise _Bad(f"{name}: {value!r} is none of {', '.join(words)}")
    return value
