"""Where candidates are measured: this machine's CPU or CUDA device, or RPC servers."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.cost.device import host_facts

from .builder import GIB, Builder, Built, Failed, Prepared
from .forkserver import Call, ForkServer
from .work import Job, Measurement, Runner

BATCH = 8
"""Jobs built before the first of them is timed; nothing is built while one is."""

RUN_SECONDS = 15.0
"""For checking and timing a candidate, beyond what candidate 0's own time explains."""
RUN_MEMORY = 4 * GIB
CUDA_BUILD_SECONDS = 180.0
CPU_BUILD_SECONDS = 60.0

Done = Callable[[Job, Measurement], None]


class LocalRunner:
    """Measures on this machine, each candidate in processes that may die alone.

    Candidates are built two at a time and then timed one by one, with nothing
    of ours beside them.  Raises `TvmpassError` where the children cannot be started.
    """

    name = "local"
    workers = BATCH

    def __init__(
        self,
        target: tvm.target.Target,
        options: Options,
        rule_files: Iterable[str | os.PathLike] = (),
        *,
        build_seconds: float | None = None,
        run_seconds: float = RUN_SECONDS,
    ):
        self.kind = "cuda" if target.kind.name == "cuda" else "cpu"
        self.run_seconds = run_seconds
        environment = {"TVM_NUM_THREADS": str(options.threads)}
        self.server = ForkServer(environment, warm_up="tvmpass.tune.build_job:warm_up")
        usual = CUDA_BUILD_SECONDS if self.kind == "cuda" else CPU_BUILD_SECONDS
        self.builder = Builder(self.server, rule_files, build_seconds or usual)
        self.worker = platform.node()
        self.facts: dict[str, Any] = host_facts()
        self._candidate0_s: dict[str, float] = {}

    def measure(self, jobs: Sequence[Job], done: Done) -> None:
        """Measure ``jobs``; call ``done`` for each as results come; see `Runner`."""
        try:
            for first in range(0, len(jobs), BATCH):
                self._measure_batch(jobs[first : first + BATCH], done)
        except BaseException:  # Ctrl-C, or ``done`` raised: nothing may run on
            self.server.cancel()
            raise

    def close(self) -> None:
        """End every process; also twice."""
        self.server.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure_batch(self, jobs: Sequence[Job], done: Done) -> None:
        begin = time.monotonic()
        prepared = [self.builder.prepare(job.workload) for job in jobs]
        wanted = [job for job, ready in zip(jobs, prepared) if isinstance(ready, Prepared)]
        built = dict(
            zip(map(id, wanted), self.builder.build([(job.workload, job.candidate) for job in wanted]))
        )
        # The batch was built together: each job bears an equal share of that.
        share = (time.monotonic() - begin) / max(1, len(jobs))
        for job, ready in zip(jobs, prepared):
            begin = time.monotonic()
            made = self._run(job, ready, built.get(id(job)))
            made.spent_s = share + time.monotonic() - begin
            made.worker = self.worker
            done(job, made)

    def _run(self, job: Job, ready: Prepared | Failed, library: Built | Failed | None) -> Measurement:
        if isinstance(ready, Failed):
            return Measurement(ready.status, cause=ready.cause)
        assert library is not None
        if isinstance(library, Failed):
            return Measurement(library.status, cause=library.cause, checked=ready.checked)
        arguments = {
            "folder": str(ready.folder),
            "library": str(library.path),
            "library0": str(ready.candidate0.path),
            "kind": self.kind,
            "thorough": job.thorough,
        }
        seconds = self.run_seconds
        call = Call(
            "tvmpass.tune.run_job:run_here", arguments, seconds, RUN_MEMORY, by_resident=self.kind == "cuda"
        )
        outcome = self.server.call(call)
        if outcome.status != "ok":
            status = "crash" if outcome.status == "error" else outcome.status
            made = Measurement(status, cause=outcome.cause)
        else:
            made = Measurement(**outcome.value)
        made.features, made.checked = library.features, ready.checked
        return made


def make_runner(
    target: tvm.target.Target,
    options: Options,
    rpc: str | None = None,
    rpc_key: str | None = None,
    rule_files: Iterable[str | os.PathLike] = (),
) -> Runner:
    """Return the runner for ``target``: RPC servers where ``rpc`` names a tracker, else this machine.

    ``rpc`` is ``HOST:PORT``.  Raises `UsageError` for a call that makes no sense and
    `TvmpassError` for a CUDA target where no device answers.
    """
    if rpc is not None:
        from .rpc_runner import RpcRunner

        host, port = _address(rpc)
        if not rpc_key:
            raise UsageError("--rpc needs --rpc-key: the key under which the servers are registered")
        return RpcRunner(host, port, rpc_key, target=target, options=options, rule_files=rule_files)
    if rpc_key:
        raise UsageError("--rpc-key needs --rpc HOST:PORT: the tracker that knows the servers")
    return LocalRunner(target, options, rule_files)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--rpc {text!r}: expected HOST:PORT")
    return host, int(port)


__all__ = ("LocalRunner", "TvmpassError", "make_runner")
