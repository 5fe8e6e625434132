"""C: planted candidates cost only themselves, are recorded with the cause, and are never chosen."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from .bench import ONE_THREAD, Bench, Verdict
from .planted_rules import FAULTS
from .tune_runs import Tune, candidates, problems

RULES = Path(__file__).with_name("planted_rules.py")
KERNELS = ("matmul", "conv", "softmax", "elementwise")
TRIALS = 90
TIMEOUT = 1500
SHAPE = (1, 3, 24, 24)


def point(bench: Bench) -> Verdict:
    def work(name: str) -> dict[str, Any]:
        if name == "model":
            return model(bench)
        return bench.child("tune_planted:kernel", name, timeout=600)

    results = bench.items("C", (*KERNELS, "model"), work)
    faults = [
        f"{name}: {r.get('error') or r['fault']}"
        for name, r in results.items()
        if r.get("error") or r["fault"]
    ]
    survived = sum(r.get("planted", 0) for r in results.values())
    text = f"{survived} planted candidates in {len(results)} runs, of {len(FAULTS)} kinds"
    return Verdict(not faults, "; ".join([*faults, text]), results)


def kernel(name: str) -> dict[str, Any]:
    """Hand every planted candidate of one kernel to a runner, good ones between them."""
    import os

    from tir_passes.recipes import recipes
    from tvmpass.compile.target import parse_target
    from tvmpass.core.kernels import classify
    from tvmpass.core.options import Options
    from tvmpass.cost.device import device_class
    from tvmpass.tune.runners import LocalRunner
    from tvmpass.tune.work import CANDIDATE0, Candidate, Job, Workload

    options, target, function = Options(threads=1), parse_target("llvm", 1), _function(name)
    listed = [str(recipe) for recipe in recipes(classify(function), target, options)]
    own = Candidate(listed[0], role=CANDIDATE0)
    work = Workload(name, name, function, target, options, device_class(target, 1), 1, own)
    jobs = []
    for fault in FAULTS:
        jobs += [Job(work, Candidate(f"plant{{fault={fault}}}"), thorough=len(jobs) % 4 == 0), Job(work, own)]
    found: dict[int, Any] = {}
    with LocalRunner(target, options, [RULES], build_seconds=10.0, run_seconds=8.0) as runner:
        runner.measure(jobs, lambda job, measurement: found.update({id(job): measurement}))
        folder = runner.server.folder
    faults = []
    for job in jobs:
        measurement = found[id(job)]
        text = job.candidate.recipe or ""
        fault = text.partition("=")[2].rstrip("}") if text.startswith("plant{") else ""
        wanted = FAULTS[fault] if fault else "ok"
        if measurement.status != wanted:
            faults.append(
                f"{fault or 'candidate 0'}: {measurement.status} ({measurement.cause}), not {wanted}"
            )
        if fault and not measurement.cause:
            faults.append(f"{fault}: no cause")
    if folder.exists():
        faults.append("files are left")
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if children.exists() and children.read_text().strip():
        faults.append("processes are left")
    causes = {text: found[id(job)].cause for job in jobs if (text := job.candidate.text).startswith("plant")}
    return {"fault": "; ".join(faults), "planted": len(FAULTS), "causes": causes}


def model(bench: Bench) -> dict[str, Any]:
    """Tune a network whose every kernel is offered all planted candidates; build with the records."""
    folder = bench.folder.parent / "planted"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "network.onnx"
    _network(path)
    logs = folder / "logs"
    tune = Tune(
        bench, "network", str(path), logs, "--trials", str(TRIALS), "--rules", str(RULES), shape=SHAPE
    )
    code, output = tune.end(TIMEOUT)
    faults = [] if code == 0 else [f"exit {code}: {output[-300:]}"]
    if left := tune.left():
        faults.append(f"{len(left)} processes are left")
    measured = candidates(logs)
    planted = [line for line in measured if str(line["recipe"]).startswith("plant")]
    seen: Counter[str] = Counter()
    for line in planted:
        fault = line["recipe"].partition("=")[2].rstrip("}") or "wrong-value"
        seen[fault] += 1
        if line["status"] != FAULTS[fault] or not line["cause"]:
            faults.append(f"{fault}: recorded as {line['status']} ({line['cause']})")
    if missing := sorted(set(FAULTS) - set(seen)):
        faults.append(f"not tried: {', '.join(missing)}")
    if len(measured) <= len(planted):
        faults.append("no other candidate was measured")
    faults += problems(logs)
    faults += _chosen(bench, path, logs)
    return {
        "fault": "; ".join(faults),
        "planted": len(planted),
        "measured": len(measured),
        "kinds": dict(seen),
    }


def _chosen(bench: Bench, path: Path, logs: Path) -> list[str]:
    """Build with the records, compare with a build without, and look for planted kernels."""
    found = bench.child("tune_planted:build", str(path), str(logs), env=ONE_THREAD)
    if "error" in found:
        return [found["error"]]
    faults = [f"a build chose {recipe}" for recipe in found["recipes"] if recipe.startswith("plant")]
    if not found["used"] and found["faster"]:
        faults.append("the build uses no record although some beat candidate 0")
    if not found["difference"] < 1e-5:
        faults.append(f"the tuned model differs by {found['difference']} of its scale")
    return faults


def build(path: str, logs: str) -> dict[str, Any]:
    """Build the network with and without the records."""
    import numpy as np

    import tvmpass

    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    results, built = [], None
    for where in ("off", logs):
        with tvmpass.PassContext(config={"tvmpass.tuning_logs": where, "tvmpass.threads": 1}):
            built = tvmpass.build(tvmpass.load(path))
        results.append(built.run({"x": x})[0])
    assert built is not None
    report = built.report.to_json()
    used = [kernel["record"] for kernel in report["kernels"] if kernel.get("record")]
    lines = [json.loads(line) for line in next(Path(logs).glob("*.tuned.jsonl")).read_text().splitlines()[1:]]
    return {
        "recipes": [record["recipe"] or "trace" for record in used],
        "used": report["records"]["used"],
        "faster": sum(
            line.get("status") == "ok"
            and line.get("role") == "candidate"
            and line["median_us"] < 0.9 * line["candidate0_us"]
            and line["wins"] >= 0.9
            for line in lines
        ),
        "difference": float(np.abs(results[1] - results[0]).max() / np.abs(results[0]).max()),
    }


def _function(name: str):
    from tests.tir_passes import cases

    return {
        "matmul": lambda: cases.matmul(32, 64, 48),
        "conv": lambda: cases.conv(1, 12, 12, 8, 16, 3, pad=1),
        "softmax": lambda: cases.softmax(32, 100),
        "elementwise": lambda: cases.elementwise(64, 100),
    }[name]()


def _network(path: Path) -> None:
    """Write a small convolutional network."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)

    def weight(name: str, *shape: int):
        return numpy_helper.from_array(generator.normal(0, 0.3, shape).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=16),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("GlobalAveragePool", ["s2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    weights = [weight("w1", 16, 3, 3, 3), weight("b1", 16), weight("w2", 16, 1, 3, 3), weight("w3", 16, 10)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(SHAPE))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    onnx.checker.check_model(made)
    onnx.save(made, path)
