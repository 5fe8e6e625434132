"""E: a model trained on the simulated device's records decides as that device is, and says so.

Everything but the times is what a real device would go through: `collect_cuda.py`
writes records, ``tvmpass train`` fits the model, `tvmpass.optimize` plans with
it.  Whether a decision is right is told by the simulated device's own times.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .bench import ONE_THREAD, Bench, Verdict

TARGET = "cuda:sm_90"
BATCHES = 40
GRAPHS = 48
TEST_SEED = 1_000_003
"""Of the graphs that decisions are judged on; records are collected with seed 0."""

WITHIN = 1.03
"""A plan is right when the best of all plans tried is not faster by more than this."""

PLANS = {
    "analytic": {"tvmpass.cost_model": "analytic"},
    "learned": {},
    "always": {"tvmpass.cost_model": "analytic", "tvmpass.fusion": "always"},
    "never": {"tvmpass.cost_model": "analytic", "tvmpass.fusion": "never"},
}


def point(bench: Bench) -> Verdict:
    results = bench.items("E", ("simulated",), lambda name: bench.child("cuda_sim:run", timeout=3600))
    (result,) = results.values() or ({"error": "not run"},)
    if "error" in result:
        return Verdict(False, result["error"], results)
    held = {
        "the same records, model and decisions a second time": result["repeats"],
        "more plans right than analytic": result["right"]["learned"] > result["right"]["analytic"],
        "cheaper plans than analytic": result["total_us"]["learned"] < result["total_us"]["analytic"],
        "changes for the better": result["better"] > result["worse"],
        "explain says learned": result["explained"],
        "analytic says that it is uncalibrated": result["uncalibrated"],
    }
    text = (
        f"{result['right']['learned']} of {result['graphs']} plans right, analytic "
        f"{result['right']['analytic']}; {result['changed']} plans changed, {result['better']} for the "
        f"better, {result['worse']} for the worse; {result['total_us']['learned']:.0f} us against "
        f"{result['total_us']['analytic']:.0f}, best {result['total_us']['best']:.0f}; "
        f"decision accuracy held out {result['metrics']['decision_accuracy']}"
    )
    failed = [claim for claim, holds in held.items() if not holds]
    return Verdict(not failed, text + (f"; NOT: {'; '.join(failed)}" if failed else ""), results)


def run() -> dict[str, Any]:
    """Collect, train, plan and judge, all of it twice; return the figures."""
    with tempfile.TemporaryDirectory(prefix="tvmpass-") as text:
        first, second = (once(Path(text) / name) for name in ("first", "second"))
    same = first["prints"] == second["prints"]
    return {**{key: value for key, value in first.items() if key != "prints"}, "repeats": same}


def once(folder: Path, batches: int = BATCHES, graphs: int = GRAPHS) -> dict[str, Any]:
    """Do the whole way once; ``prints`` are hashes of everything that it made."""
    root = Path(__file__).resolve().parents[2]
    folder.mkdir(parents=True)
    collect = [sys.executable, str(root / "scripts" / "collect_cuda.py"), "--device", "sim"]
    call([*collect, "--batches", str(batches), "--target", TARGET, "--out", str(folder)], root)
    model, metrics = folder / "model.json", folder / "metrics.json"
    train = [sys.executable, "-m", "tvmpass", "train", "--logs", str(folder), "--target", TARGET]
    call([*train, "-o", str(model), "--json", str(metrics)], root)
    judged = judge(model, graphs)
    reports = folder / "report.json"
    reports.write_text(json.dumps(judged.pop("report")), encoding="utf-8")
    explained = call([sys.executable, "-m", "tvmpass", "explain", str(reports)], root)
    files = [*sorted(folder.glob("*.jsonl")), model, metrics]
    prints = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    prints["plans"] = hashlib.sha256("\n".join(judged.pop("documents")).encode()).hexdigest()
    return {
        **judged,
        "explained": "learned:sim-" in explained,
        "metrics": json.loads(metrics.read_text(encoding="utf-8")),
        "prints": prints,
    }


def judge(model: Path, graphs: int) -> dict[str, Any]:
    """Plan unseen graphs in every way; time each plan on the simulated device."""
    from tvmpass.compile.target import parse_target
    from tvmpass.cost.cuda_device import CudaDevice
    from tvmpass.cost.simulated import SimulatedDevice

    target = parse_target(TARGET, 1)
    device = SimulatedDevice(CudaDevice.of(target))
    configs = {**PLANS, "learned": {"tvmpass.cost_model": str(model)}}
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    changed = better = worse = 0
    documents: list[str] = []
    sources: Counter[str] = Counter()
    report: dict[str, Any] = {}
    for mod in test_graphs(graphs):
        plans = {name: plan(mod, target, config) for name, config in configs.items()}
        times = {name: device_us(device, made) for name, (made, _) in plans.items()}
        best = min(times.values())
        for name, time in times.items():
            right[name] += time <= WITHIN * best
            total[name] += time
        total["best"] += best
        if abs(times["learned"] - times["analytic"]) > 1e-9:
            changed += 1
            better += times["learned"] < times["analytic"]
            worse += times["learned"] > times["analytic"]
        documents += [json.dumps(found, sort_keys=True) for _, found in plans.values()]
        learned = plans["learned"][1]
        sources.update(_sources(learned))
        if not report and any(source.startswith("learned") for source in _sources(learned)):
            report = learned
    uncalibrated = all("uncalibrated" in source for source in _sources(plans["analytic"][1]))
    return {
        "graphs": graphs,
        "right": dict(right),
        "total_us": {name: round(time, 1) for name, time in total.items()},
        "changed": changed,
        "better": better,
        "worse": worse,
        "sources": {s.split(":")[0]: n for s, n in sorted(sources.items())},
        "uncalibrated": uncalibrated,
        "report": report,
        "documents": documents,
    }


def test_graphs(count: int) -> list:
    """Return graphs like those of the records, from another seed."""
    import numpy as np

    from scripts.collect.cuda import CudaCollector
    from scripts.collect.graphs import make_graph

    rng, palette = np.random.default_rng(TEST_SEED), {}
    return [make_graph(rng, palette, CudaCollector.scale)[1] for _ in range(count)]


def plan(mod, target, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the module of scheduled kernels and the report as JSON."""
    import tvmpass

    with tvmpass.PassContext(config={**config, "tvmpass.threads": 1, "tvmpass.tuning_logs": "off"}):
        made, report = tvmpass.optimize(mod, target=target)
    return made, report.to_json()


def device_us(device, made) -> float:
    """Return the simulated time of a module: every kernel as often as ``main`` calls it."""
    from tvm import tirx

    functions = {variable.name_hint: f for variable, f in made.functions_items()}
    calls: Counter[str] = Counter()
    for block in made["main"].body.blocks:
        for binding in block.bindings:
            args = getattr(binding.value, "args", None)
            if args is not None and len(args) and getattr(args[0], "name_hint", None) in functions:
                calls[args[0].name_hint] += 1
    return sum(
        times * device.time_us(functions[name])
        for name, times in calls.items()
        if isinstance(functions[name], tirx.PrimFunc)
    )


def _sources(report: dict[str, Any]) -> list[str]:
    found = [d["estimate"]["source"] for d in report["decisions"] if d["estimate"]]
    return [source for source in found if source != "always"]


def call(command: Sequence[str], root: Path) -> str:
    """Run a command; return its output, or raise with its last line."""
    import os

    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{Path(command[1]).name}: {lines[-1] if lines else done.returncode}")
    return done.stdout
