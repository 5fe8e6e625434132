"""E: a tracker and two servers on loopback: both used, one killed midway, nothing lost."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.tune.rpc_farm import Farm

from . import models
from .bench import Bench, Verdict
from .tune_runs import Tune, candidates, problems, waiting

KEY = "cpu"
MODEL = "cls"
TRIALS = 64
TIMEOUT = 900
WAITING_JOBS = 24
"""Candidates whose kernels wait instead of computing: what servers that are no neighbours of this
machine's two cores gain."""


def point(bench: Bench) -> Verdict:
    path = models.fetch(bench.cache)[MODEL]
    work = {
        "two": lambda: tuned(bench, path, "two", servers=2),
        "one": lambda: tuned(bench, path, "one", servers=1),
        "killed": lambda: tuned(bench, path, "killed", servers=2, kill=True),
        "waiting": lambda: bench.child(
            "tune_rpc:waiting_kernels", str(bench.folder / "E-logs"), timeout=TIMEOUT
        ),
    }
    results = bench.items("E", work, lambda name: work[name]())
    bad = [
        f"{name}: {r.get('error') or r['fault']}"
        for name, r in results.items()
        if r.get("error") or r["fault"]
    ]
    parts = []
    if not bad and {"one", "two"} <= set(results):
        one, two = results["one"]["per_minute"], results["two"]["per_minute"]
        parts.append(
            f"two servers against one: {two:.0f} to {one:.0f} candidates a minute ({two / one:.2f}x)"
        )
    if not bad and "waiting" in results:
        parts.append(f"kernels that only wait: {results['waiting']['speedup']:.2f}x")
    if not bad and "killed" in results:
        parts.append(f"one of two killed: {results['killed']['recorded']} of {TRIALS} recorded, none twice")
    return Verdict(not bad, "; ".join([*bad, *parts]), results)


def tuned(bench: Bench, path: str, name: str, servers: int, kill: bool = False) -> dict[str, Any]:
    """Tune over RPC; with ``kill`` end one server after a third of the candidates, start it later."""
    logs = bench.folder / "E-logs" / name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with Farm(logs) as farm:
        farm.start_tracker()
        started = [farm.start_server(KEY) for _ in range(servers)]
        begin = time.perf_counter()
        tune = Tune(
            bench, MODEL, path, logs / "records", "--trials", str(TRIALS),
            *("--rpc", str(farm.tracker), "--rpc-key", KEY),
        )  # fmt: skip
        if kill:
            _wait_for(tune, logs / "records", TRIALS // 3)
            farm.kill(started[0])
            _wait_for(tune, logs / "records", 2 * TRIALS // 3)
            farm.start_server(KEY)
        code, output = tune.end(TIMEOUT)
        seconds = time.perf_counter() - begin
        left = tune.left()
    found = candidates(logs / "records")
    keys = [line["key"] for line in found]
    workers = Counter(line["worker"] for line in found if line["worker"])
    spans = _measuring_seconds(logs / "records")
    faults = []
    if code:
        faults.append(f"exit {code}: {output[-300:]}")
    if len(keys) != len(set(keys)):
        faults.append(f"{len(keys) - len(set(keys))} candidates recorded twice")
    if len(keys) != TRIALS:
        faults.append(f"{len(keys)} recorded, not {TRIALS}")
    if waiting(logs / "records"):
        faults.append(f"{len(waiting(logs / 'records'))} measured and not recorded")
    if len(workers) != servers + kill:
        faults.append(f"used {dict(workers)}")
    if left:
        faults.append(f"{len(left)} processes left")
    statuses = Counter(line["status"] for line in found)
    if statuses["timeout"] or statuses["crash"] > TRIALS // 8:
        faults.append(f"statuses: {dict(statuses)}")
    return {
        "fault": "; ".join([*faults, *problems(logs / "records")]),
        "recorded": len(keys),
        "workers": dict(workers),
        "statuses": dict(statuses),
        "seconds": round(seconds, 1),
        "measuring_s": round(spans, 1),
        "per_minute": round(60.0 * len(keys) / spans, 1) if spans else 0.0,
    }


def _wait_for(tune: Tune, logs: Path, count: int) -> None:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and tune.process.poll() is None:
        if list(logs.glob("*.tuned.jsonl")) and len(candidates(logs)) >= count:
            return
        time.sleep(0.2)


def _measuring_seconds(logs: Path) -> float:
    """Return the wall time that candidates took: planning and the end are left out."""
    return sum(line["spent_s"] for line in candidates(logs))


def waiting_kernels(folder: str) -> dict[str, Any]:
    """Measure candidates that wait 0.1 s per run on one server and on two; return the throughput."""
    from tests.tir_passes.cases import OPTIONS, TARGET, matmul
    from tests.tune.planted import PlantedBuilder, planted
    from tests.tune.workloads import workload
    from tvmpass.tune.rpc_runner import RpcRunner
    from tvmpass.tune.work import Job

    place = Path(folder) / "waiting"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    task = workload(matmul(64, 64, 64))
    rates, workers = [], []
    with Farm(place) as farm:
        farm.start_tracker()
        for _ in range(2):
            farm.start_server(KEY)
            with RpcRunner(farm.tracker.host, farm.port, KEY, TARGET, OPTIONS) as runner:
                runner.builder = PlantedBuilder(runner.builder, place)
                answers: list[str] = []
                jobs = [Job(task, planted("slow")) for _ in range(WAITING_JOBS)]
                runner.measure(jobs[:2], lambda job, measurement: None)  # candidate 0 is built
                begin = time.perf_counter()
                runner.measure(jobs, lambda job, measurement, to=answers: to.append(measurement.worker))
                rates.append(WAITING_JOBS / (time.perf_counter() - begin))
                workers.append(dict(Counter(answers)))
    fault = "" if [len(w) for w in workers] == [1, 2] else f"used {workers}"
    return {"fault": fault, "speedup": round(rates[1] / rates[0], 2), "per_second": rates, "workers": workers}
