"""Build candidates in children of a fork server; keep what a session measures again.

A workload gets a folder with candidate 0's library and the results of the
unscheduled kernel, a candidate one library.  Both are made once.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tvm

from tvmpass.compile.cuda_build import find_tools
from tvmpass.compile.host_compiler import host_compiler
from tvmpass.core.errors import TvmpassError

from .drawing import argument_bytes
from .forkserver import Call, ForkServer, Outcome
from .server import is_memory
from .work import Candidate, Workload
from .workload_file import write_workload

BUILDS = max(2, min(8, (os.cpu_count() or 1) // 2))
"""Candidates built at a time; nothing is timed meanwhile."""

GIB = 1 << 30
BUILD_MEMORY = 4 * GIB
"""For scheduling and compiling one candidate, beyond what TVM itself takes."""

KEPT_LIBRARIES = 256
KEPT_BYTES = 2 * GIB
"""Bounds on the libraries and on the workloads' arrays that wait on disk for being used again."""


COPIES = 16
"""Copies of a kernel's arguments for which there is memory beside that; comparing takes float64."""

_Key = tuple[str, str | None, str | None]
_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Built:
    """A candidate's library and the cost model's features of the scheduled kernel."""

    path: Path
    features: list[float]


@dataclass(frozen=True)
class Failed:
    """Why a candidate, or its whole workload, cannot be run: a record's status and cause."""

    status: str
    cause: str


@dataclass(frozen=True)
class Prepared:
    """What every candidate of a workload is compared with and timed against.

    ``folder`` holds the sets of arguments and results, ``checked`` says what made
    the results (`Measurement.checked`), ``bytes`` is the size of the largest set, and
    ``operations`` bounds the scalar operations of one run.
    """

    folder: Path
    candidate0: Built
    checked: str
    bytes: int
    operations: float


class Builder:
    """Builds for a runner, in children of ``server``.

    ``rule_files`` may add scheduling steps.  ``seconds`` bounds one compilation,
    ``memory_bytes`` what it may take.
    """

    def __init__(
        self,
        server: ForkServer,
        rule_files: Iterable[str | os.PathLike] = (),
        seconds: float = 60.0,
        memory_bytes: int = BUILD_MEMORY,
    ):
        self.server, self.seconds, self.memory_bytes = server, seconds, memory_bytes
        self.rule_files = [os.path.abspath(path) for path in rule_files]
        self._numbers = itertools.count()
        self._place = server.folder / f"builder-{secrets.token_hex(4)}"
        self._folders: dict[str, Path] = {}
        self._libraries: OrderedDict[_Key, Built | Failed] = OrderedDict()
        self._prepared: OrderedDict[str, Prepared | Failed] = OrderedDict()

    def build(self, jobs: Sequence[tuple[Workload, Candidate]]) -> list[Built | Failed]:
        """Return each job's library, `BUILDS` of them made at a time; equal jobs are built once."""
        todo: dict[_Key, tuple[Workload, Candidate]] = {}
        for workload, candidate in jobs:
            key = _key(workload, candidate)
            if key not in self._libraries:
                todo.setdefault(key, (workload, candidate))
        paths = {key: self._place / f"candidate-{next(self._numbers)}.so" for key in todo}
        calls = {key: self._call(*todo[key], path) for key, path in paths.items()}
        for key, outcome in self._run(calls):
            self._libraries[key] = _built(outcome, paths[key])
        found = [self._libraries[_key(workload, candidate)] for workload, candidate in jobs]
        for workload, candidate in jobs:
            self._libraries.move_to_end(_key(workload, candidate))
        self._forget_libraries()
        return found

    def prepare(self, workload: Workload) -> Prepared | Failed:
        """Return candidate 0's library and the results that every candidate must give."""
        return self.prepare_all([workload])[0]

    def prepare_all(self, workloads: Sequence[Workload]) -> list[Prepared | Failed]:
        """Return the same for several workloads, `BUILDS` of them worked on at a time."""
        todo = {w.kernel_key: w for w in workloads if w.kernel_key not in self._prepared}
        first = self.build([(work, work.candidate0) for work in todo.values()])
        candidates0 = dict(zip(todo, first))
        waiting: dict[str, Call] = {}
        for key, candidate0 in candidates0.items():
            if isinstance(candidate0, Failed):
                self._prepared[key] = Failed(candidate0.status, f"candidate 0: {candidate0.cause}")
            else:
                waiting[key] = self._reference_call(todo[key], tame=False)
        again: dict[str, Call] = {}
        for key, outcome in self._run(waiting):
            if outcome.status in ("ok", "memory", "timeout"):
                self._prepared[key] = self._made(todo[key], candidates0[key], outcome)
            else:  # some kernels are not defined for all numbers
                again[key] = self._reference_call(todo[key], tame=True)
        for key, outcome in self._run(again):
            self._prepared[key] = self._made(todo[key], candidates0[key], outcome)
        for work in workloads:
            self._prepared.move_to_end(work.kernel_key)
        self._forget_workloads({work.kernel_key for work in workloads})
        return [self._prepared[work.kernel_key] for work in workloads]

    def _run(self, calls: Mapping[_Name, Call]) -> Iterator[tuple[_Name, Outcome]]:
        """Make calls, `BUILDS` at a time, and yield each one's outcome as it comes."""
        waiting = list(calls)
        running: dict[int, _Name] = {}
        while waiting or running:
            while waiting and len(running) < BUILDS:
                name = waiting.pop(0)
                running[self.server.submit(calls[name])] = name
            outcome = self.server.wait()
            assert outcome is not None
            yield running.pop(outcome.ticket), outcome

    def _reference_call(self, workload: Workload, tame: bool) -> Call:
        arguments = {"folder": str(self._folder(workload)), "tame": tame}
        memory = self.memory_bytes + COPIES * argument_bytes(workload.function)
        return Call("tvmpass.tune.reference:make_cases", arguments, 2 * self.seconds, memory)

    def _made(self, workload: Workload, candidate0: Built | Failed, outcome: Outcome) -> Prepared | Failed:
        assert isinstance(candidate0, Built)
        if outcome.status != "ok" or "refused" in outcome.value:
            failed = _failed(outcome)
            return Failed(failed.status, f"the unscheduled kernel: {failed.cause}")
        folder = self._folder(workload)
        own = folder / "candidate0.so"
        shutil.copyfile(candidate0.path, own)  # the library itself may be dropped before the workload is
        return Prepared(folder, Built(own, candidate0.features), **outcome.value)

    def _call(self, workload: Workload, candidate: Candidate, path: Path) -> Call:
        arguments = {
            "folder": str(self._folder(workload)),
            "output": str(path),
            "recipe": candidate.recipe,
            "trace": candidate.trace,
            "rule_files": self.rule_files,
            "memory_bytes": self.memory_bytes,
        }
        return Call("tvmpass.tune.build_job:build_candidate", arguments, self.seconds, self.memory_bytes)

    def _folder(self, workload: Workload) -> Path:
        folder = self._folders.get(workload.kernel_key)
        if folder is None or not folder.is_dir():
            folder = self._place / f"workload-{next(self._numbers)}"
            self.server.start()  # from now on it sees to it that nothing is left
            try:
                folder.mkdir(parents=True)
                write_workload(workload, folder)
            except OSError as error:
                raise TvmpassError(f"cannot write {folder}: {error.strerror}") from error
            self._folders[workload.kernel_key] = folder
        return folder

    def _forget_libraries(self) -> None:
        while len(self._libraries) > KEPT_LIBRARIES:
            _, old = self._libraries.popitem(last=False)
            if isinstance(old, Built):
                old.path.unlink(missing_ok=True)

    def _forget_workloads(self, needed: Collection[str]) -> None:
        """Drop the arrays of the workloads unused for longest, but none that is ``needed``."""
        sizes = {
            key: _size(found.folder) if isinstance(found, Prepared) else 0
            for key, found in self._prepared.items()
        }
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total > KEPT_BYTES and size and key not in needed:
                total -= size
                shutil.rmtree(self._folders.pop(key), ignore_errors=True)
                del self._prepared[key]


def check_tools(target: tvm.target.Target) -> None:
    """Raise `TvmpassError` for a compiler that is missing: no candidate is to blame for that."""
    if target.kind.name == "cuda":
        find_tools(target)
    else:
        host_compiler("tuning needs")


def _key(workload: Workload, candidate: Candidate) -> _Key:
    return workload.kernel_key, candidate.recipe, candidate.trace


def _built(outcome: Outcome, path: Path) -> Built | Failed:
    if outcome.status == "ok" and "features" in outcome.value:
        return Built(path, outcome.value["features"])
    return _failed(outcome)


def _failed(outcome: Outcome) -> Failed:
    """Say with a record's words how a call failed; raises where the machine is to blame."""
    if outcome.status == "machine":
        raise TvmpassError(f"candidates cannot be built on this machine: {outcome.cause}")
    if outcome.status == "ok":
        if "memory" in outcome.value:
            return Failed("memory", outcome.value["memory"])
        cause = outcome.value["refused"]
        if is_memory(cause):
            return Failed("memory", f"ran out of memory while it was scheduled ({cause})")
        return Failed("crash", cause)
    status = "crash" if outcome.status == "error" else outcome.status
    return Failed(status, outcome.cause or outcome.status)


def _size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))
