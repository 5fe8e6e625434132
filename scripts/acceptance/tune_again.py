"""G: a second tune does nothing; two at once lose nothing; Ctrl-C ends in order."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from . import models
from .bench import Bench, Verdict
from .tune_runs import Tune, candidates, problems

TRIALS = 48
MOST_SECONDS = 10.0
TIMEOUT = 600
STOPS = (0.4, 0.8, 1.5, 2.5, 4.0, 6.0, 8.0, 11.0)
"""Seconds after its start at which a tune gets Ctrl-C: during imports, planning, measuring."""


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)
    work = {
        "again": lambda: again(bench, paths),
        "one-model-at-once": lambda: at_once(bench, paths, ("cls", "cls")),
        "two-models-at-once": lambda: at_once(bench, paths, ("cls", "rec")),
        "interrupted": lambda: interrupted(bench, paths["cls"]),
    }
    results = bench.items("G", work, lambda name: work[name]())
    bad = [
        f"{name}: {r.get('error') or r['fault']}"
        for name, r in results.items()
        if r.get("error") or r["fault"]
    ]
    seconds = ", ".join(f"{n} {s}" for n, s in results.get("again", {}).get("seconds", {}).items())
    text = f"a second tune takes (s) {seconds}; {len(results) - len(bad)} of {len(results)} hold"
    return Verdict(not bad, "; ".join([*bad, text]), results)


def again(bench: Bench, paths: dict[str, str]) -> dict:
    """Tune each model, then again: nothing is measured, and the output says so."""
    seconds, faults = {}, []
    for name, path in paths.items():
        logs = _fresh(bench, f"again-{name}")
        tune = Tune(bench, name, path, logs, "--trials", str(TRIALS))
        code, output = tune.end(TIMEOUT)
        before = _content(logs)
        start = time.perf_counter()
        second = Tune(bench, name, path, logs, "--trials", str(TRIALS))
        second_code, said = second.end(TIMEOUT)
        seconds[name] = round(time.perf_counter() - start, 2)
        if code or second_code:
            faults.append(f"{name}: exit {code}, {second_code}: {output[-200:]} {said[-200:]}")
        if "nothing was done" not in said:
            faults.append(f"{name}: it does not say that nothing was done")
        if _content(logs) != before:
            faults.append(f"{name}: the records changed")
        if seconds[name] >= MOST_SECONDS:
            faults.append(f"{name}: {seconds[name]} s")
    return {"fault": "; ".join(faults), "seconds": seconds}


def at_once(bench: Bench, paths: dict[str, str], names: tuple[str, str]) -> dict:
    """Start two tunes on one folder: one waits, says so, and nothing is lost or done twice."""
    logs = _fresh(bench, "-".join(("at-once", *names)))
    tunes = [Tune(bench, name, paths[name], logs, "--trials", str(TRIALS)) for name in names]
    ends = [tune.end(TIMEOUT) for tune in tunes]
    found = [tune.document() for tune in tunes]
    keys = [line["key"] for line in candidates(logs)]
    waited = sum("waiting until it is done" in output for _, output in ends)
    faults = [f"exit {code}: {output[-200:]}" for code, output in ends if code]
    if waited != 1:
        faults.append(f"{waited} of two said that they waited")
    if len(keys) != len(set(keys)):
        faults.append(f"{len(keys) - len(set(keys))} candidates recorded twice")
    if sum(f["new"] for f in found) != len(keys):
        faults.append(f"{len(keys)} on record, {[f['new'] for f in found]} measured")
    if any(f["recorded"] != TRIALS for f in found):
        faults.append(f"budgets: {[f['recorded'] for f in found]}")
    if names[0] == names[1] and sorted(f["new"] for f in found) != [0, TRIALS]:
        faults.append(f"the second did {[f['new'] for f in found]}")
    return {"fault": "; ".join([*faults, *problems(logs)]), "new": [f["new"] for f in found]}


def interrupted(bench: Bench, path: str) -> dict:
    """Stop tunes by Ctrl-C at several moments: one line, no process left.

    A shell shows 130 for the exit code 130 and for an end by the signal alike.
    """
    logs = _fresh(bench, "interrupted")
    faults, kept = [], []
    for moment in STOPS:
        tune = Tune(bench, "cls", path, logs, "--trials", "5000")
        time.sleep(moment)
        end = time.perf_counter() + 120
        while moment == STOPS[-1] and not _number(logs) and time.perf_counter() < end:
            time.sleep(0.1)  # the last one is stopped while it measures, however slow the machine is
        os.kill(tune.process.pid, signal.SIGINT)
        start = time.perf_counter()
        code, output = tune.end(60)
        took = time.perf_counter() - start
        time.sleep(0.5)
        said = [line for line in output.splitlines() if line.startswith("tvmpass:")]
        if code not in (130, -signal.SIGINT) or len(said) != 1 or "Traceback" in output:
            faults.append(f"at {moment} s: exit {code}: {output[-200:]!r}")
        if tune.left():
            faults.append(f"at {moment} s: {len(tune.left())} processes left")
        if took > 5:
            faults.append(f"at {moment} s: {took:.1f} s to end")
        kept.append(_number(logs))
    if kept != sorted(kept) or not kept[-1]:
        faults.append(f"records: {kept}")
    return {"fault": "; ".join([*faults, *problems(logs)]), "records_after_each": kept}


def _number(logs: Path) -> int:
    return len(candidates(logs)) if list(logs.glob("*.tuned.jsonl")) else 0


def _content(logs: Path) -> bytes:
    (path,) = logs.glob("*.tuned.jsonl")
    return path.read_bytes()


def _fresh(bench: Bench, name: str) -> Path:
    folder = bench.folder / "G-logs" / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder
