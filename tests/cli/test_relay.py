"""Relay programs on the command line: build, run, explain, tune, convert, and their errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

ROOT = Path(__file__).parents[2]
TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, 8), float32], %w: Tensor[(6, 8), float32], %b: Tensor[(6), float32]) {
  %0 = nn.dense(%x, %w, units=6);
  let %shifted = nn.bias_add(%0, %b);
  nn.relu(%shifted)
}
"""
W = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
B = np.arange(6, dtype="float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("relay")
    (made / "net.relay").write_text(TEXT)
    np.savez(made / "net.npz", w=W, b=B)
    return made


def command(folder: Path, *arguments: str, timeout: int = 300) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tvmpass", *arguments]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)


def message(done: subprocess.CompletedProcess) -> list[str]:
    """Return the lines of the error, without those of progress."""
    return [line for line in done.stderr.splitlines() if not line.startswith("[")]


def test_build_run_and_explain(folder):
    words = ["net.relay", "-o", "net.so", "--params", "net.npz", "--shape", "x:n,8", "--report", "r.json"]
    done = command(folder, "build", *words)
    assert done.returncode == 0, done.stderr
    x = np.random.default_rng(1).standard_normal((3, 8)).astype("float32")
    np.savez(folder / "in.npz", x=x)
    done = command(folder, "run", "net.so", "--inputs", "in.npz", "--outputs", "out.npz")
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as outputs:
        assert outputs.files == ["output0"]
        np.testing.assert_allclose(outputs["output0"], np.maximum(x @ W.T + B, 0), rtol=1e-5, atol=1e-6)
    report = json.loads((folder / "r.json").read_text())
    assert report["model"] == "net.relay"
    assert {"%0", "%shifted"} <= {name for kernel in report["kernels"] for name in kernel["origin"]}
    done = command(folder, "explain", "r.json", "--at", "%shifted")
    assert done.returncode == 0 and "%shifted" in done.stdout


def test_convert_writes_what_tvm_and_build_read(folder):
    done = command(
        folder, "convert", "net.relay", "-o", "net.json", "--params", "net.npz", "--shape", "x:2,8"
    )
    assert done.returncode == 0, done.stderr
    assert "1 input (x)" in done.stderr
    mod = tvm.ir.load_json((folder / "net.json").read_text())
    (param,) = mod["main"].params
    assert param.name == "x" and [int(dim) for dim in param.ty.shape] == [2, 8]
    done = command(folder, "build", "net.json", "-o", "second.so")
    assert done.returncode == 0, done.stderr
    done = command(folder, "convert", "net.json", "-o", "again.json")
    assert done.returncode == 0, done.stderr


def test_convert_of_onnx(folder):
    model = ROOT / "examples" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    done = command(folder, "convert", str(model), "-o", "cls.json", "--shape", "x:1,3,48,192")
    assert done.returncode == 0, done.stderr
    assert tvm.ir.load_json((folder / "cls.json").read_text())["main"].params[0].name == "x"


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        (TEXT.replace("nn.relu(", "nn.rellu("), [], 1, ["bad.relay:5:", "nn.rellu", "nn.relu", "^"]),
        (TEXT.replace("units=6)", "units=6"), [], 1, ["bad.relay:3:", "units=6", "^"]),
        (TEXT, ["--params", "none.params"], 2, ["parameter file not found: none.params"]),
        (TEXT, ["--params", "bad.relay"], 1, ["neither the bytes of relay.save_param_dict"]),
        (TEXT, ["--shape", "x:3,9"], 2, ["'x' has dim 1 fixed at 8"]),
        (TEXT, ["--shape", "y:3,9"], 2, ["unknown input 'y'"]),
        ("", [], 1, ["bad.relay is empty"]),
    ],
)
def test_errors(tmp_path, text, arguments, code, said):
    (tmp_path / "bad.relay").write_text(text)
    for name in ("build", "convert"):
        done = command(tmp_path, name, "bad.relay", "-o", "out.so", *arguments)
        assert done.returncode == code, done.stderr
        lines = message(done)
        assert lines[0].startswith("tvmpass: ") and all(word in "\n".join(lines) for word in said)
        assert sum(line.startswith("tvmpass: ") for line in lines) == 1
        assert "Traceback" not in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.relay"]


def test_outputs_never_overwrite_inputs(folder):
    for output in ("net.relay", "net.npz"):
        done = command(folder, "convert", "net.relay", "-o", output, "--params", "net.npz")
        assert done.returncode == 2 and "would overwrite" in done.stderr
    assert (folder / "net.relay").read_text() == TEXT


def test_the_example_runs(tmp_path):
    script = ROOT / "examples" / "relay_build.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "fold-batch-norm-into-conv: applied 1 of 1" in done.stdout


def test_tune(folder, tmp_path):
    words = ["net.relay", "--params", "net.npz", "--shape", "x:64,8", "--trials", "4", "--threads", "1"]
    done = command(folder, "tune", *words, "--logs", str(tmp_path / "logs"), "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == 1
    assert list((tmp_path / "logs").iterdir())
