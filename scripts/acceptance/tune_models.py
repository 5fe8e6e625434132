"""A: det, rec and cls tuned for 15 minutes each, against untuned and ONNX Runtime, one thread."""

from __future__ import annotations

from pathlib import Path

from . import models
from .bench import Bench, Verdict
from .tune_runs import Tune

MINUTES = 15.0
WITHIN = 1.02
SECONDS = 60.0
LINES_TOLERANCE = 1e-4


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)

    def one(name: str) -> dict:
        # Of this commit alone; a run that was stopped goes on in it.
        logs = bench.folder / "A-logs" / f"{name}-{bench.commit}"
        tune = Tune(bench, name, paths[name], logs, "--minutes", str(MINUTES))
        code, output = tune.end(MINUTES * 60 + 600)
        if code != 0:
            return {"error": f"exit {code}: {output[-300:]}"}
        found = tune.document()
        compared = bench.child("tune_models:measure", name, paths[name], str(logs), timeout=900)
        return {
            **compared,
            "candidates": found["recorded"],
            "failed": found["failed"],
            "kernels_tuned": found["used"],
            "kernels": len(found["tasks"]),
            "by_records": found["kernel_ratio"],
            "own_check": (found["check"] or {}).get("ratio"),
            "tuned_minutes": round(found["spent_s"] / 60, 2),
        }

    results = bench.items("A", models.MODELS, one)
    faults = []
    for name, result in results.items():
        if "error" in result:
            faults.append(f"{name}: {result['error']}")
            continue
        if result["tuned_over_untuned"] > WITHIN:
            faults.append(f"{name}: tuned takes {result['tuned_over_untuned']} of untuned")
        if result["lines"] > LINES_TOLERANCE:
            faults.append(f"{name}: differs from ONNX Runtime by {result['lines']:.2g}")
    text = ", ".join(
        f"{name} {r['tuned_over_untuned']} of untuned, {r['over_onnxruntime']} times as fast as ONNX Runtime "
        f"(untuned {r['untuned_over_onnxruntime']})"
        for name, r in results.items()
        if "error" not in r
    )
    return Verdict(not faults, "; ".join([*faults, text]), results)


def measure(name: str, path: str, logs: str) -> dict:
    """Build tuned and untuned, and alternate both with ONNX Runtime in this process."""
    from benchmarks import rivals, timing

    sample = models.text_lines(models.MODELS[name][1])
    inputs = {"x": sample[0]}
    config = {"tvmpass.threads": 1}
    tuned = rivals.tvmpass_runner(path, inputs, {**config, "tvmpass.tuning_logs": str(Path(logs).resolve())})
    untuned = rivals.tvmpass_runner(path, inputs, {**config, "tvmpass.tuning_logs": "off"})
    theirs = rivals.onnxruntime_runner(path, inputs)
    samples = timing.alternate(
        {"tuned": tuned.run, "untuned": untuned.run, "onnxruntime": theirs.run}, SECONDS, most=20_000
    )
    wanted = [theirs.detail.run(None, {"x": array})[0] for array in sample]
    differences = [
        models.relative(tuned.detail.run({"x": array})[0], want) for array, want in zip(sample, wanted)
    ]
    gain = timing.speedup(samples, "tuned", "untuned")
    return {
        "tuned_over_untuned": round(1 / gain["by_round"], 4),
        "over_onnxruntime": timing.speedup(samples, "tuned", "onnxruntime")["by_round"],
        "untuned_over_onnxruntime": timing.speedup(samples, "untuned", "onnxruntime")["by_round"],
        "lines": max(differences),
        "gain": gain,
        "times": timing.summary(samples),
        "records": tuned.detail.report.records,
    }
