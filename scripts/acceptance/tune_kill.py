"""B: kill -9 ten times at random moments of one tune, then let it end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time

from . import models
from .bench import Bench, Verdict
from .tune_runs import Tune, candidates, problems, waiting

MODEL = "cls"
BUDGET = 220
KILLS = 10
BETWEEN = (1.0, 10.0)
"""Seconds after its start at which a tune is killed, at random."""
SLACK = 10
WITHIN = 1.1
TIMEOUT = 900


def point(bench: Bench) -> Verdict:
    path = models.fetch(bench.cache)[MODEL]
    results = bench.items(
        "B",
        ("uninterrupted", "killed"),
        lambda name: (whole if name == "uninterrupted" else killed)(bench, path),
    )
    errors = [f"{name}: {r['error']}" for name, r in results.items() if "error" in r]
    if errors or len(results) < 2:
        return Verdict(False, "; ".join(errors) or "both items are needed", results)
    plain, result = results["uninterrupted"], results["killed"]
    worse = round(result["kernel_ratio"] / plain["kernel_ratio"], 4)
    faults = []
    if result["kills"] < KILLS:
        faults.append(f"the budget was used up after {result['kills']} kills")
    if abs(result["measured"] - BUDGET) > SLACK:
        faults.append(f"{result['measured']} candidates measured, not {BUDGET}")
    if result["twice"]:
        faults.append(f"{result['twice']} candidates recorded twice")
    if result["problems"]:
        faults.append(f"the file: {result['problems'][0]}")
    if result["children_left"]:
        faults.append(f"{result['children_left']} processes outlived their tune")
    if worse > WITHIN:
        faults.append(f"{worse} times the uninterrupted run's time")
    text = (
        f"{result['kills']} kills, {result['measured']} of {BUDGET} candidates, none twice, kernels take "
        f"{result['kernel_ratio']} of untuned, uninterrupted {plain['kernel_ratio']} ({worse} times)"
    )
    return Verdict(not faults, "; ".join([*faults, text]), results)


def whole(bench: Bench, path: str) -> dict:
    """Tune without a stop."""
    logs = _fresh(bench, "whole")
    tune = Tune(bench, MODEL, path, logs, "--trials", str(BUDGET))
    code, output = tune.end(TIMEOUT)
    if code != 0:
        return {"error": f"exit {code}: {output[-300:]}"}
    return {"kernel_ratio": tune.document()["kernel_ratio"], "measured": len(_keys(logs))}


def killed(bench: Bench, path: str) -> dict:
    """Tune, kill, look at what is there, tune on."""
    logs = _fresh(bench, "killed")
    generator = random.Random(0)
    kills, left, pending, moments, faults = 0, 0, set(), [], []
    while kills < KILLS:
        tune = Tune(bench, MODEL, path, logs, "--trials", str(BUDGET))
        moment = generator.uniform(*BETWEEN)
        time.sleep(moment)
        if tune.process.poll() is not None:
            tune.end(TIMEOUT)
            break
        os.kill(tune.process.pid, signal.SIGKILL)
        tune.process.communicate()
        kills += 1
        moments.append(round(moment, 2))
        time.sleep(2.0)  # what lives on after that is a fault
        left += len(tune.left())
        if list(logs.glob("*.tuned.jsonl")):
            faults += [p for p in problems(logs) if "has no end" not in p]
            pending |= waiting(logs)
    tune = Tune(bench, MODEL, path, logs, "--trials", str(BUDGET))
    code, output = tune.end(TIMEOUT)
    if code != 0:
        return {"error": f"exit {code}: {output[-300:]}"}
    keys = _keys(logs)
    return {
        "kills": kills,
        "moments": moments,
        "measured": len(set(keys)) + len(waiting(logs)),
        "twice": len(keys) - len(set(keys)),
        "waited_at_a_kill": len(pending),
        "problems": [*faults, *problems(logs)],
        "children_left": left + len(tune.left()),
        "kernel_ratio": tune.document()["kernel_ratio"],
    }


def _keys(logs) -> list[str]:
    return [line["key"] for line in candidates(logs)]


def _fresh(bench: Bench, name: str):
    folder = bench.folder / "B-logs" / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder
