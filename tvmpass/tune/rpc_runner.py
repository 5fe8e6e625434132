"""Measure candidates on the servers of a TVM RPC tracker.

Candidates are built on this machine and run there; outputs come back and are
compared here.  All servers of the key that are free work at the same time, while
the next candidates are being built.  What failures mean is in `rpc_dispatch`.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from tvmpass.core.errors import TvmpassError, UsageError, nearest
from tvmpass.core.options import Options

from .builder import BUILDS, Builder, Built, Failed, Prepared, check_tools
from .forkserver import Call, ForkServer, Outcome
from .rpc_dispatch import LOST, SILENT, UNREACHED, Dispatcher, Failure, Item
from .rpc_tracker import Server, Tracker, TrackerError
from .runners import (
    CPU_BUILD_SECONDS,
    CUDA_BUILD_SECONDS,
    LONGEST_SECONDS,
    OPERATIONS_PER_SECOND,
    RUN_SECONDS,
    RUNS,
)
from .work import Job, Measurement

LOOK_S = 20.0
"""For asking a server what its machine is."""
BYTES_PER_SECOND = 4e6
"""What a slow network carries: the time that is allowed for transfers."""
SLACK_S = 10.0
"""After the server should have ended a session, until it is taken for dead."""
PATIENCE_S = 60.0
MIN_AHEAD = 8
"""Jobs that may be built and wait for a server; the builder drops old libraries and arrays."""
_POLL_S = 0.05
_NEEDED = ("tornado", "psutil", "cloudpickle")

Done = Callable[[Job, Measurement], None]


@dataclass(eq=False)
class Ready:
    """A job that is built and can be tried on a server; ``spent_s`` is its share of building."""

    job: Job
    prepared: Prepared
    library: Built
    spent_s: float


class RpcRunner:
    """Measures on every server that the tracker at ``host``:``port`` has under ``key``.

    Raises `TvmpassError` with what is missing: a compiler here, the tracker, a server
    of the key, or such a server's being able to run code for ``target``.  Later,
    jobs wait up to ``patience_s`` without a server in reach before that is an error.
    ``say`` gets a line on each change of fortune.
    """

    name = "rpc"

    def __init__(
        self,
        host: str,
        port: int,
        key: str,
        target: tvm.target.Target,
        options: Options,
        rule_files: Iterable[str | os.PathLike] = (),
        *,
        run_seconds: float = RUN_SECONDS,
        patience_s: float = PATIENCE_S,
        say: Callable[[str], None] | None = None,
    ):
        check_extra()
        check_tools(target)
        if len(key.split()) != 1:
            raise UsageError(f"the key of RPC servers is a name without blanks, not {key!r}")
        self.target, self.options, self.key = target, options, key
        self.run_seconds, self.patience_s = run_seconds, patience_s
        self.say = say or (lambda line: print(f"tvmpass: {line}", file=sys.stderr, flush=True))
        self.tracker = Tracker(host, port)
        require_key(self.tracker, key)
        self._marks = itertools.count()
        self._building: threading.Thread | None = None
        environment = {"TVM_NUM_THREADS": str(options.threads)}
        self.sessions = ForkServer(environment, warm_up="tvmpass.tune.rpc_session:warm_up")
        self._rule_files = list(rule_files)
        self._new_builder()
        try:
            self.facts: dict[str, Any] = {**self._look(), "rpc_key": key}
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """Return how many jobs keep all servers busy: one running, one built for each."""
        try:
            return 2 * max(1, len(self.tracker.status(self.key).servers))
        except TrackerError:  # `measure` waits for it to come back
            return 2

    def measure(self, jobs: Sequence[Job], done: Done) -> None:
        """Measure ``jobs``; call ``done`` for each as results come; see `Runner`."""
        dispatcher: Dispatcher[Ready] = Dispatcher(
            self.tracker, self.key, patience_s=self.patience_s, say=self.say
        )
        ready: queue.SimpleQueue[Ready | tuple[Job, Measurement] | BaseException] = queue.SimpleQueue()
        stop, room = threading.Event(), threading.Semaphore(max(MIN_AHEAD, BUILDS + self.workers))
        self._building = threading.Thread(target=self._build, args=(jobs, ready, stop, room), daemon=True)
        self._building.start()
        trying: dict[int, tuple[Item[Ready], Server, Path]] = {}
        left = len(jobs)
        try:
            while left:
                for made in _drain(ready, wait=not trying and not dispatcher.waiting):
                    if isinstance(made, BaseException):
                        raise made
                    if isinstance(made, Ready):
                        dispatcher.submit(made)
                    else:
                        left -= 1
                        room.release()
                        done(*made)
                while (started := dispatcher.start()) is not None:
                    item, server = started
                    mark = self._mark()
                    trying[self.sessions.submit(self._call(item.work, server, mark))] = item, server, mark
                outcome = self.sessions.wait(_POLL_S) if trying else None
                if outcome is not None:
                    item, server, mark = trying.pop(outcome.ticket)
                    measurement = self._judge(dispatcher, item, server, outcome, mark)
                    if measurement is not None:
                        left -= 1
                        room.release()
                        done(item.work.job, measurement)
                elif not trying and dispatcher.waiting:
                    time.sleep(_POLL_S)
        finally:
            stop.set()
            self.sessions.cancel()
            self._end_building()

    def close(self) -> None:
        """End every process; also after an exception, also twice."""
        self._end_building()
        self.sessions.close()
        self.compiler.close()

    def __enter__(self) -> RpcRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_builder(self) -> None:
        environment = {"TVM_NUM_THREADS": str(self.options.threads)}
        self.compiler = ForkServer(environment, warm_up="tvmpass.tune.build_job:warm_up")
        usual = CUDA_BUILD_SECONDS if self.target.kind.name == "cuda" else CPU_BUILD_SECONDS
        self.builder = Builder(self.compiler, self._rule_files, usual)

    def _build(
        self,
        jobs: Sequence[Job],
        ready: queue.SimpleQueue,
        stop: threading.Event,
        room: threading.Semaphore,
    ) -> None:
        """Build ``jobs`` in order, a few at a time, while there is ``room``; in a thread of its own."""
        try:
            for first in range(0, len(jobs), BUILDS):
                some = jobs[first : first + BUILDS]
                for _ in some:
                    while not room.acquire(timeout=_POLL_S):
                        if stop.is_set():
                            return
                if stop.is_set():
                    return
                begin = time.monotonic()
                batch = [(job, self.builder.prepare(job.workload)) for job in some]
                wanted = [(job, found) for job, found in batch if isinstance(found, Prepared)]
                built = self.builder.build([(job.workload, job.candidate) for job, _ in wanted])
                spent_s = (time.monotonic() - begin) / len(batch)
                for job, found in batch:
                    if isinstance(found, Failed):
                        failed = Measurement(found.status, cause=found.cause, spent_s=spent_s)
                        ready.put((job, failed))
                for (job, prepared), library in zip(wanted, built):
                    if isinstance(library, Built):
                        ready.put(Ready(job, prepared, library, spent_s))
                    else:
                        failed = Measurement(library.status, cause=library.cause, spent_s=spent_s)
                        failed.checked = prepared.checked
                        ready.put((job, failed))
        except BaseException as error:  # it is for the thread that measures
            ready.put(error)

    def _end_building(self) -> None:
        """Have the thread that builds end; what it is at is broken off."""
        thread, self._building = self._building, None
        if thread is None:
            return
        thread.join(0.1)
        if thread.is_alive():
            self.compiler.abort()
            thread.join()
            self.compiler.close()
            self._new_builder()

    def _mark(self) -> Path:
        return self.sessions.folder / f"connected-{next(self._marks)}"

    def _address(self, server: Server, seconds: float, mark: Path) -> dict[str, Any]:
        return {
            "host": server.host,
            "port": server.port,
            "matchkey": server.matchkey,
            "seconds": seconds,
            "mark": str(mark),
            "target": str(self.target),
        }

    def _call(self, work: Ready, server: Server, mark: Path) -> Call:
        files = [*work.prepared.folder.iterdir(), work.library.path]
        once = work.prepared.operations / OPERATIONS_PER_SECOND
        seconds = self.run_seconds * (2 if work.job.thorough else 1) + min(LONGEST_SECONDS, RUNS * once)
        seconds += sum(path.stat().st_size for path in files) / BYTES_PER_SECOND
        arguments = {
            **self._address(server, seconds, mark),
            "threads": self.options.threads,
            "folder": str(work.prepared.folder),
            "library": str(work.library.path),
            "library0": str(work.prepared.candidate0.path),
            "thorough": work.job.thorough,
        }
        return Call("tvmpass.tune.rpc_session:run_there", arguments, seconds + SLACK_S)

    def _judge(
        self, dispatcher: Dispatcher[Ready], item: Item[Ready], server: Server, outcome: Outcome, mark: Path
    ) -> Measurement | None:
        """Return the measurement that a try gave, None where the job is tried again."""
        failure = failure_of(outcome, connected=mark.exists())
        mark.unlink(missing_ok=True)
        if failure is not None:
            measurement = dispatcher.failed(item, server, failure)
        elif outcome.status == "ok":
            measurement = dispatcher.measured(item, server, Measurement(**outcome.value))
        else:
            measurement = dispatcher.measured(item, server, Measurement("crash", cause=outcome.cause))
        if measurement is not None:
            measurement.spent_s += item.work.spent_s
            measurement.features = item.work.library.features
            measurement.checked = item.work.prepared.checked
        return measurement

    def _look(self) -> dict[str, Any]:
        """Return the facts of one server; `TvmpassError` where none can be reached or used."""
        dispatcher: Dispatcher[None] = Dispatcher(
            self.tracker, self.key, patience_s=self.patience_s, say=self.say
        )
        dispatcher.submit(None)
        while True:
            started = dispatcher.start()
            if started is None:
                time.sleep(_POLL_S)
                continue
            item, server = started
            mark = self._mark()
            arguments = self._address(server, LOOK_S, mark)
            outcome = self.sessions.call(Call("tvmpass.tune.rpc_session:look", arguments, LOOK_S + SLACK_S))
            failure = failure_of(outcome, connected=mark.exists())
            mark.unlink(missing_ok=True)
            if outcome.status == "ok":
                if outcome.value["unfit"]:
                    why = outcome.value["unfit"]
                    raise TvmpassError(f"the RPC server {server.name} cannot be used: {why}")
                return outcome.value["facts"]
            failure = failure or Failure(LOST, outcome.cause or outcome.status)
            given_up = dispatcher.failed(item, server, failure)
            if given_up is not None:
                raise TvmpassError(f"the RPC servers of {self.key!r} cannot be used: {given_up.cause}")


def failure_of(outcome: Outcome, connected: bool) -> Failure | None:
    """Say what became of a try that gave no measurement; None for one that did.

    A try that raised has measured that the kernel fails.
    """
    value = outcome.value if isinstance(outcome.value, dict) else {}
    if value.get("unfit"):
        return Failure(UNREACHED, value["unfit"])
    if value.get("lost"):
        return Failure(LOST, value["lost"])
    if outcome.status == "ok":
        return None
    if not connected:
        cause = outcome.cause or outcome.status
        hung = outcome.status in ("crash", "timeout") and "SIGALRM" in cause
        return Failure(UNREACHED, "it does not answer" if hung else cause)
    if outcome.status == "timeout":
        return Failure(SILENT, "nothing was heard of the server any more")
    if outcome.status in ("crash", "memory"):
        return Failure(LOST, outcome.cause or outcome.status)
    return None


def require_key(tracker: Tracker, key: str) -> None:
    """Raise `TvmpassError` where the tracker does not answer or has no server of ``key``."""
    try:
        keys = tracker.keys()
    except TrackerError as error:
        start = "python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190"
        raise TvmpassError(f"{error}; start one there with: {start} (docs/distributed.md)") from None
    if key in keys:
        return
    there = ", ".join(f"{name} ({count})" for name, count in keys.items()) or "none at all"
    raise TvmpassError(
        f"the RPC tracker at {tracker} has no server of the key {key!r}{nearest(key, keys)}; "
        f"servers there: {there}; start one on the device's machine with: "
        f"python -m tvmpass.tune.rpc_server --tracker {tracker} --key {key}"
    )


def check_extra() -> None:
    """Raise `TvmpassError` where the extra ``rpc`` is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TvmpassError(f"--rpc needs {', '.join(missing)}: pip install 'tvmpass[rpc]'")


def _drain(ready: queue.SimpleQueue, wait: bool) -> list[Any]:
    """Return what is ready; where ``wait``, wait a moment for the first."""
    found = []
    try:
        if wait:
            found.append(ready.get(timeout=_POLL_S))
        while True:
            found.append(ready.get_nowait())
    except queue.Empty:
        return found
