"""Where candidates are measured: this machine's CPU or CUDA device, or RPC servers."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm

from tvmpass.compile.target import describe_target
from tvmpass.core.cuda_arch import target_arches
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.cost.device import host_facts

from .builder import BUILDS, COPIES, GIB, Builder, Built, Failed, Prepared, check_tools
from .forkserver import Call, ForkServer
from .work import Job, Measurement, Runner

BATCH = max(8, 2 * BUILDS)
"""Jobs built before the first of them is timed; nothing is built while one is."""

RUN_SECONDS = 15.0
"""For checking and timing a candidate, beyond what a slow kernel needs by itself."""
LONGEST_SECONDS = 150.0
"""The same for the slowest kernels."""
RUNS = 20
"""Runs of candidate 0 that fit into what is added for a slow kernel."""
OPERATIONS_PER_SECOND = 1e9
"""What candidate 0 does at least, before its time is known."""

RUN_MEMORY = 4 * GIB

CPU_BUILD_SECONDS = 40.0
CUDA_BUILD_SECONDS = 180.0

Done = Callable[[Job, Measurement], None]


class LocalRunner:
    """Measures on this machine, each candidate in processes that may die alone.

    Some candidates are built at a time; then they are timed one by one, with
    nothing of ours beside them.  Raises `TvmpassError` where a compiler is missing,
    or, for a CUDA target, a device that runs its code.
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
        self.worker = platform.node()
        self.facts: dict[str, Any] = dict(host_facts())
        self._candidate0_s: dict[str, float] = {}
        environment = {"TVM_NUM_THREADS": str(options.threads)}
        self.server = ForkServer(environment, warm_up="tvmpass.tune.build_job:warm_up")
        try:
            if self.kind == "cuda":
                self.facts.update(self._find_device(target))
            check_tools(target)
            usual = CUDA_BUILD_SECONDS if self.kind == "cuda" else CPU_BUILD_SECONDS
            self.builder = Builder(self.server, rule_files, build_seconds or usual)
        except BaseException:
            self.server.close()
            raise

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

    def _find_device(self, target: tvm.target.Target) -> dict[str, Any]:
        """Ask in a child, so that neither this process nor the server opens the device."""
        arguments = {"arches": list(target_arches(target))}
        call = Call("tvmpass.tune.run_job:find_device", arguments, self.run_seconds, None)
        outcome = self.server.call(call)
        fault = outcome.cause if outcome.status != "ok" else outcome.value.pop("fault", None)
        if fault is not None:
            raise TvmpassError(
                f"{describe_target(target)} cannot be measured here: {fault}; tune on a machine with such a "
                "device, or on others through a tracker: --rpc HOST:PORT --rpc-key KEY"
            )
        return outcome.value

    def _measure_batch(self, jobs: Sequence[Job], done: Done) -> None:
        begin = time.monotonic()
        prepared = self.builder.prepare_all([job.workload for job in jobs])
        fit = [(job.workload, job.candidate) for job, p in zip(jobs, prepared) if isinstance(p, Prepared)]
        built = iter(self.builder.build(fit))
        libraries = [next(built) if isinstance(p, Prepared) else None for p in prepared]
        # The batch was built together: each job bears an equal share of that.
        share = (time.monotonic() - begin) / max(1, len(jobs))
        for job, ready, library in zip(jobs, prepared, libraries):
            begin = time.monotonic()
            made = self._run(job, ready, library)
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
        memory = RUN_MEMORY + COPIES * ready.bytes
        seconds = self._seconds(job, ready)
        cuda = self.kind == "cuda"
        call = Call("tvmpass.tune.run_job:run_here", arguments, seconds, memory, by_resident=cuda)
        outcome = self.server.call(call)
        if outcome.status == "machine":
            raise TvmpassError(f"candidates cannot be run on this machine: {outcome.cause}")
        if outcome.status == "ok":
            made = Measurement(**outcome.value)
        else:
            made = Measurement("crash" if outcome.status == "error" else outcome.status, cause=outcome.cause)
        if made.candidate0_us is not None:
            self._candidate0_s[job.workload.kernel_key] = made.candidate0_us / 1e6
        made.features, made.checked = library.features, ready.checked
        return made

    def _seconds(self, job: Job, ready: Prepared) -> float:
        """Return the time limit of a run: longer for a kernel that itself takes long."""
        rough = ready.operations / OPERATIONS_PER_SECOND
        once = self._candidate0_s.get(job.workload.kernel_key, rough)
        return self.run_seconds * (2 if job.thorough else 1) + min(LONGEST_SECONDS, RUNS * once)


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
        from .rpc_tracker import parse_address

        host, port = parse_address(rpc)
        if not rpc_key:
            raise UsageError("--rpc needs --rpc-key KEY: the key under which the servers are registered")
        return RpcRunner(host, port, rpc_key, target=target, options=options, rule_files=rule_files)
    if rpc_key:
        raise UsageError("--rpc-key needs --rpc HOST:PORT: the tracker that knows the servers")
    return LocalRunner(target, options, rule_files)
