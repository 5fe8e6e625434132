"""F: training on the shipped records: decisions held out by graph and by family of kernels."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from .bench import ONE_THREAD, Bench, Verdict

MIN_ACCURACY = 0.93
MAX_REGRET = 1.03
"""The goals, held out by graph."""

FOLDED = ("conv", "depthwise", "elementwise", "matmul", "norm-softmax", "pool", "reduce")
"""The families that have fusions to decide, each of which must have figures."""


def point(bench: Bench) -> Verdict:
    work: dict[str, Callable[[], dict]] = {
        "lines": lambda: lines(bench),
        "shipped": lambda: shipped(bench),
        "again": lambda: again(bench),
    }
    results = bench.items("F", work, lambda name: work[name]())
    bad = [f"{n}: {r.get('error') or r['fault']}" for n, r in results.items() if r.get("error") or r["fault"]]
    shown = [r["text"] for r in results.values() if r.get("text")]
    return Verdict(not bad, "; ".join([*bad, *shown]), results)


def lines(bench: Bench) -> dict:
    """Read every shipped line: none may be bad."""
    done = bench.cli("logs", "check", str(bench.root / "tuning_logs"), "--json", "-")
    if done.returncode not in (0, 1):
        return {"error": done.stderr[-400:]}
    found = json.loads(done.stdout)
    problems = found["problems"]
    return {"fault": "; ".join(problems[:3]) or None, "files": found["files"]}


def shipped(bench: Bench) -> dict:
    """Train on what ships and judge the figures."""
    found = train(bench)
    if "error" in found:
        return found
    metrics = found["metrics"]
    faults = []
    if metrics["decision_accuracy"] < MIN_ACCURACY:
        faults.append(f"accuracy {metrics['decision_accuracy']} is below {MIN_ACCURACY}")
    if metrics["regret_geomean"] > MAX_REGRET:
        faults.append(f"regret {metrics['regret_geomean']} is above {MAX_REGRET}")
    families = metrics.get("families", {})
    missing = [name for name in FOLDED if families.get(name, {}).get("decision_accuracy") is None]
    if missing:
        faults.append(f"no figures for the families {', '.join(missing)}")
    parts = [_told("by graph", metrics), _told("by family", metrics["leave_family_out"])]
    parts += [_told(name, inner) for name, inner in families.items() if inner["decisions"]]
    return {"fault": "; ".join(faults) or None, "text": "; ".join(parts), "metrics": metrics}


def again(bench: Bench) -> dict:
    """Train twice: the same records give the same model, byte for byte."""
    with tempfile.TemporaryDirectory() as name:
        models = []
        for number in (1, 2):
            path = Path(name) / f"{number}.json"
            found = train(bench, "-o", str(path))
            if "error" in found:
                return found
            models.append(path.read_bytes())
    return {"fault": None if models[0] == models[1] else "two models of one file of records differ"}


def train(bench: Bench, *more: str) -> dict:
    arguments = ("train", "--logs", str(bench.root / "tuning_logs"), "--threads", "1", "--json", "-", *more)
    done = bench.cli(*arguments, env=ONE_THREAD, timeout=900)
    if done.returncode:
        return {"error": done.stderr[-400:]}
    return {"metrics": json.loads(done.stdout)}


def _told(name: str, figures: dict) -> str:
    return (
        f"{name}: right {figures['decision_accuracy']:.3f} "
        f"(always {figures['accuracy_always']:.3f}, never {figures['accuracy_never']:.3f}), "
        f"regret {figures['regret_geomean']:.3f} "
        f"(always {figures['regret_always']:.3f}, never {figures['regret_never']:.3f})"
    )
