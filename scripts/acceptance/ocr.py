"""B: the three OCR models against ONNX Runtime and stock TVM, untuned, one thread."""

from __future__ import annotations

import tempfile

from . import models
from .bench import Bench, Verdict

LINES_TOLERANCE = 1e-4
NOISE_TOLERANCE = 1e-2
LEAST_SPEED = 0.95
COLD_BUILD = {"cls": 8.0, "det": 20.0}
SECONDS = 25.0
STOCK_SECONDS = 10.0


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)

    def one(name: str) -> dict:
        with tempfile.TemporaryDirectory() as cold:
            ours = bench.child("ocr:measure", name, paths[name], env={"TVMPASS_CACHE_DIR": cold}, timeout=900)
        return {**ours, "stock": bench.child("ocr:measure_stock", name, paths[name], timeout=900)}

    results = bench.items("B", models.MODELS, one)
    faults = []
    for name, result in results.items():
        if "error" in result:
            faults.append(f"{name}: {result['error']}")
            continue
        checks = [
            (result["lines"] <= LINES_TOLERANCE, f"lines differ by {result['lines']:.2g}"),
            (result["noise"] <= NOISE_TOLERANCE, f"noise differs by {result['noise']:.2g}"),
            (result["speedup"] >= LEAST_SPEED, f"{result['speedup']:.3f} of ONNX Runtime"),
            (
                result["build_s"] <= COLD_BUILD.get(name, float("inf")),
                f"cold build {result['build_s']:.1f} s",
            ),
        ]
        faults += [f"{name}: {text}" for good, text in checks if not good]
    speeds = ", ".join(
        f"{name} {r['speedup']:.3f} (cold build {r['build_s']:.1f} s)"
        for name, r in results.items()
        if "speedup" in r
    )
    return Verdict(not faults, "; ".join(faults) or f"times the speed of ONNX Runtime: {speeds}", results)


def measure(name: str, path: str) -> dict:
    """Build once (cold), compare on lines and noise, time alternated."""
    from benchmarks import rivals, timing
    from benchmarks.models import CONFIG

    shape = models.MODELS[name][1]
    sample = models.text_lines(shape)
    ours = rivals.tvmpass_runner(path, {"x": sample[0]}, CONFIG)
    theirs = rivals.onnxruntime_runner(path, {"x": sample[0]})

    def worst(arrays) -> float:
        differences = []
        for array in arrays:
            wanted = theirs.detail.run(None, {"x": array})
            got = ours.detail.run({"x": array})
            differences += [models.relative(a, b) for a, b in zip(got, wanted, strict=True)]
        return max(differences)

    samples = timing.alternate({"tvmpass": ours.run, "onnxruntime": theirs.run}, SECONDS)
    ratio = timing.speedup(samples, "tvmpass", "onnxruntime")
    return {
        "lines": worst(sample),
        "noise": worst([models.noise(shape)]),
        "speedup": ratio["by_median"],
        "ratios": ratio,
        "times": timing.summary(samples),
        "build_s": round(ours.build_seconds, 2),
        "kernels": len(ours.detail.report.kernels),
    }


def measure_stock(name: str, path: str) -> dict:
    """Time stock TVM's default pipeline against ONNX Runtime, the same way."""
    from benchmarks import rivals, timing

    array = models.text_lines(models.MODELS[name][1])[0]
    theirs = rivals.onnxruntime_runner(path, {"x": array})
    stock = rivals.stock_runner(path, {"x": array})
    samples = timing.alternate({"tvm": stock.run, "onnxruntime": theirs.run}, STOCK_SECONDS, least=5)
    return {
        "difference": models.relative(stock.outputs()[0], theirs.outputs()[0]),
        "ratios": timing.speedup(samples, "tvm", "onnxruntime"),
        "build_s": round(stock.build_seconds, 2),
    }
