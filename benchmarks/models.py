"""Compare tvmpass, stock TVM and ONNX Runtime on models, on one thread.

    python -m benchmarks.models [MODEL.onnx NAME:DIMS ...] [--json FILE] [--seconds S] [--skip-stock]

Without a model the example model is taken.  All are built and timed in one
process, alternated; the figures are ratios (above 1: tvmpass is faster).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

for _variable in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402 - the variables must be set first

from benchmarks import rivals, timing  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
EXAMPLE_SHAPE = "x:1,3,48,192"
CONFIG = {"tvmpass.threads": 1, "tvmpass.tuning_logs": "off"}


def measure(path: str, inputs: dict[str, np.ndarray], seconds: float, stock: bool = True) -> dict:
    """Build and time one model with all three; return figures and differences."""
    runners = {
        "tvmpass": rivals.tvmpass_runner(path, inputs, CONFIG),
        "onnxruntime": rivals.onnxruntime_runner(path, inputs),
    }
    failures = {}
    if stock:
        try:
            runners["tvm"] = rivals.stock_runner(path, inputs)
        except Exception as error:  # a rival that cannot build the model is a finding
            failures["tvm"] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    reference = runners["onnxruntime"].outputs()
    samples = timing.alternate({name: runner.run for name, runner in runners.items()}, seconds)
    return {
        "model": Path(path).name,
        "inputs": {name: list(array.shape) for name, array in inputs.items()},
        "build_seconds": {name: round(runner.build_seconds, 3) for name, runner in runners.items()},
        "times": timing.summary(samples),
        "speedup_over": {
            name: timing.speedup(samples, "tvmpass", name) for name in runners if name != "tvmpass"
        },
        "difference": {
            name: difference(runner.outputs(), reference)
            for name, runner in runners.items()
            if name != "onnxruntime"
        },
        "failed": failures,
    }


def difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Return the greatest difference relative to the scale of each output."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape:
            return float("inf")
        scale = float(np.abs(b).max()) if b.size else 1.0
        if b.size:
            worst = max(worst, float(np.abs(a.astype("float64") - b).max()) / (scale or 1.0))
    return worst


def settings() -> dict:
    """Return what the figures depend on."""
    packages = ("tvmpass", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "numpy")
    return {
        "threads": 1,
        "config": CONFIG,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read ``x:1,3,48,192``."""
    name, _, dims = text.rpartition(":")
    return name, tuple(int(dim) for dim in dims.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=str(EXAMPLE))
    parser.add_argument("shapes", nargs="*", help="NAME:DIMS for each input")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--seconds", type=float, default=timing.SECONDS)
    parser.add_argument("--skip-stock", action="store_true", help="leave TVM's own pipeline out: it is slow")
    arguments = parser.parse_args()
    texts = arguments.shapes or ([EXAMPLE_SHAPE] if arguments.model == str(EXAMPLE) else [])
    if not texts:
        parser.error("give each input's shape, as in x:1,3,224,224")
    generator = np.random.default_rng(0)
    inputs = {
        name: generator.standard_normal(dims).astype("float32") for name, dims in map(parse_shape, texts)
    }
    figures = measure(arguments.model, inputs, arguments.seconds, not arguments.skip_stock)
    document = {"schema": 1, "settings": settings(), "models": [figures]}
    for name, ratio in figures["speedup_over"].items():
        print(
            f"{figures['model']}: {ratio['by_median']:.2f} times as fast as {name} "
            f"(by least time {ratio['by_min']:.2f})"
        )
    for name, reason in figures["failed"].items():
        print(f"{figures['model']}: {name} failed: {reason}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
