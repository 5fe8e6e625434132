"""The measuring command: built, run and stopped, with this CPU in the device's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(module: str, *arguments, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory) -> Path:
    """Build the softmax and one model for this CPU."""
    folder = tmp_path_factory.mktemp("prebuilt")
    run(
        "scripts.cuda.prebuild", "--target", "llvm", "--out", folder, "--only", "softmax-float32", "--jobs", 1
    )
    return folder


def measure(prebuilt: Path, out: Path, minutes: float, code: int = 0, device: str = "cpu") -> dict:
    arguments = ("--device", device, "--prebuilt", prebuilt, "--minutes", minutes, "--out", out)
    run("scripts.cuda.measure", *arguments, code=code)
    return json.loads((out / "summary.json").read_text())


def test_index_says_what_was_built(prebuilt):
    index = json.loads((prebuilt / "index.json").read_text())
    names = {item["name"] for item in index["items"]}
    assert names == {f"softmax-float32.{s}.{m}" for s in ("small", "large") for m in ("fused", "unfused")}
    assert not index["failed"] and index["target"] == "llvm"
    assert all((prebuilt / item["file"]).exists() for item in index["items"])
    (large,) = [item for item in index["items"] if item["name"] == "softmax-float32.large.fused"]
    assert large["bytes"] == 2 * 4 * 16384 * 1024 and large["flops"] > 0 and large["kernels"] >= 1


def test_rates_follow_from_times(prebuilt, tmp_path):
    summary = measure(prebuilt, tmp_path, 0.5)
    assert summary["finished"] and len(summary["cases"]) == 2
    for entry in summary["cases"]:
        assert entry["gb_per_s"] == pytest.approx(
            entry["bytes"] / entry["median_us"] / 1e3, rel=0.02, abs=0.1
        )
    fused, unfused = sorted(summary["cases"], key=lambda entry: entry["fusion"])
    table = summary["families"]["norm-softmax"]["float32"]
    assert table["fused_speedup"] == pytest.approx(unfused["median_us"] / fused["median_us"], rel=0.01)
    assert table["gb_per_s"] == max(fused["gb_per_s"], unfused["gb_per_s"])


def test_what_there_was_no_time_for_is_named(prebuilt, tmp_path):
    summary = measure(prebuilt, tmp_path, 0.1, code=4)
    assert not summary["finished"] and len(summary["cases"]) < 2
    assert any("(time limit)" in note for note in summary["notes"])


def test_a_library_that_cannot_be_loaded_costs_only_itself(prebuilt, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in prebuilt.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "softmax-float32.large.fused.so").write_bytes(b"no library")
    summary = measure(copy, tmp_path / "out", 0.5, code=1)
    errors = {entry["fusion"]: "error" in entry for entry in summary["cases"]}
    assert errors == {"fused": True, "unfused": False}
