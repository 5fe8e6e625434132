"""`tvmpass tune` from end to end on a small model: output, exit codes, files, errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvmpass.compile.records import read_file

ROOT = Path(__file__).parents[2]
SHAPE = ("--shape", "x:64,32", "--threads", "1")


def write_model(path: Path) -> Path:
    """Write softmax(relu(x @ w))."""
    weights = np.random.default_rng(0).standard_normal((32, 48)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["r"], name="clip"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "three_nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 48])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "three_nodes.onnx")


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    """Tune once with everything that can be written; return the folder and the process."""
    folder = tmp_path_factory.mktemp("tuned")
    command = [sys.executable, "-m", "tvmpass", "tune", str(model), *SHAPE, "--trials", "12"]
    command += ["--html", "page.html", "--json", "result.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder, done


def errors_of(done) -> list[str]:
    return [line for line in done.stderr.splitlines() if line and not line.startswith("[")]


def test_writes_records_a_page_and_figures(tuned):
    folder, done = tuned
    result = json.loads((folder / "result.json").read_text())
    assert result["recorded"] == result["new"] == 12 and result["reason"] == "budget"
    log = read_file(folder / result["path"])
    assert log.problems == [] and sum(r.role == "candidate" for r in log.records) == 12
    assert all(record.status == "ok" for record in log.records)
    assert "12 candidates on record for this model of 12; 12 of them new" in done.stdout
    assert "whole model: " in done.stdout
    assert errors_of(done) == []
    page = (folder / "page.html").read_text()
    assert all(task["name"] in page for task in result["tasks"])
    assert (
        not re.search(r"(?:src|href)=(?![\"']?data:)", page) and "http:" not in page and "https:" not in page
    )


def test_a_second_tune_does_nothing_and_says_so(tuned, model, tvmpass):
    folder, _ = tuned
    before = _candidates(folder / "tuning_logs")
    done = tvmpass("tune", model, *SHAPE, "--trials", 12, "--json", "-", cwd=folder, env=_environment())
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["reason"], result["new"], result["recorded"]) == ("already", 0, 12)
    assert _candidates(folder / "tuning_logs") == before == 12


def test_a_build_counts_the_records(tuned, model, tvmpass):
    folder, _ = tuned
    result = json.loads((folder / "result.json").read_text())
    arguments = ("build", model, "-o", "m.so", "--shape", "x:64,32", "--config", "threads=1", "--report", "-")
    done = tvmpass(*arguments, cwd=folder, env=_environment())
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["records"]
    assert records["used"] >= result["used"] and records["present"] >= 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(model, tmp_path, number):
    command = [sys.executable, "-m", "tvmpass", "tune", str(model), *SHAPE, "--minutes", "30"]
    command += ["--logs", str(tmp_path / "logs"), "--json", str(tmp_path / "r.json")]
    mark = f"TUNE_TEST={tmp_path}"
    child = subprocess.Popen(
        command,
        env={**_environment(), "TUNE_TEST": str(tmp_path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and not _candidates(tmp_path / "logs"):
        time.sleep(0.2)
    os.kill(child.pid, number)
    output, errors = child.communicate(timeout=60)
    # Python itself ends by the signal where an import was interrupted; a shell shows the same.
    assert child.returncode in (128 + number, -number), errors
    kept = _candidates(tmp_path / "logs")
    assert kept and "Traceback" not in errors
    assert (
        f"interrupted; {json.loads((tmp_path / 'r.json').read_text())['new']} new candidates are kept"
        in errors
    )
    assert ": interrupted" in output
    assert _processes(mark) == []


def _candidates(folder: Path) -> int:
    return sum(path.read_text().count('"role":"candidate"') for path in folder.glob("*.tuned.jsonl"))


def _processes(mark: str) -> list[str]:
    """Return the processes with ``mark`` in their environment that still run a second later."""
    time.sleep(1.0)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue  # it ended meanwhile, or is not ours
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such.onnx"], 2, "no-such.onnx"),
        (["MODEL", "--shape", "x:64,33"], 2, "33"),
        (["MODEL", "--shape", "y:64,32"], 2, "unknown input 'y'"),
        (["MODEL", *SHAPE, "--target", "lvm"], 2, "did you mean 'llvm'"),
        (["MODEL", *SHAPE, "--target", "cuda:sm_90"], 1, "--rpc"),
        (["MODEL", *SHAPE, "--trials", "1", "--minutes", "1"], 2, "--trials or --minutes, not both"),
        (["MODEL", *SHAPE, "--trials", "0"], 2, "--trials"),
        (["MODEL", *SHAPE, "--minutes", "0"], 2, "--minutes"),
        (["MODEL", *SHAPE, "--rpc", "host:1"], 2, "belong together"),
        (["MODEL", *SHAPE, "--logs", "/proc/no/such"], 1, "/proc/no/such"),
        (["MODEL", *SHAPE, "--html", "no/such/page.html"], 1, "no/such/page.html"),
        (["MODEL", *SHAPE, "--without", "grow-epilog"], 2, "did you mean 'grow-epilogue'"),
        (["MODEL", *SHAPE, "--rules", "no-such.py"], 2, "no-such.py"),
        (["MODEL", "--threads", "none"], 2, "threads"),
    ],
)
def test_errors_are_one_line(tvmpass, model, tmp_path, arguments, code, message):
    given = [str(model) if word == "MODEL" else word for word in arguments]
    done = tvmpass("tune", *given, cwd=tmp_path, env=_environment())
    lines = errors_of(done)
    assert done.returncode == code, done.stderr
    assert len(lines) == 1 and lines[0].startswith("tvmpass: ") and message in lines[0]
    assert not list(tmp_path.rglob("*.jsonl*"))


def test_cuda_without_a_device_names_both_ways(tvmpass, model, tmp_path):
    done = tvmpass("tune", model, *SHAPE, "--target", "cuda:sm_90", cwd=tmp_path, env=_environment())
    if done.returncode == 0:
        pytest.skip("a CUDA device answers here")
    (line,) = errors_of(done)
    assert "--rpc" in line and "device" in line
