"""`build --target cuda:…` and what follows, on a machine with nvcc and no GPU."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvmpass.compile.cuda_probe import probe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Write softmax(relu(x @ w)) with x of 6 x 20."""
    weights = np.random.default_rng(0).standard_normal((20, 10)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
            helper.make_node("Relu", ["m"], ["r"], name="clip"),
            helper.make_node("Softmax", ["r"], ["y"], name="share"),
        ],
        "three_nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 10])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    path = tmp_path_factory.mktemp("model") / "three_nodes.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def built(model, tmp_path_factory):
    """Build for two architectures with an empty cache; return the folder and the process."""
    import subprocess

    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "tvmpass", "build", str(model), "-o", "m.so", "--report", "r.json"]
    done = subprocess.run(
        [*command, "--target", "cuda:sm_80,sm_90"],
        cwd=folder,
        env={**ENVIRONMENT, "TVMPASS_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder, done


def test_progress_shows_what_nvcc_does(built):
    _, done = built
    lines = done.stderr.splitlines()
    assert done.stdout == "" and all(line.startswith("[") for line in lines)
    assert any("nvcc: " in line for line in lines)
    assert "kernels (0 by the fallback, 0 with spills)" in lines[-1]


def test_report_and_words_give_resources_per_architecture(built, tvmpass):
    folder, _ = built
    report = json.loads((folder / "r.json").read_text())
    assert report["target"] == "cuda:sm_80,sm_90"
    for kernel in report["kernels"]:
        assert set(kernel["cuda"]) == {"sm_80", "sm_90"}
        assert all(0 < found["occupancy"] <= 1 for found in kernel["cuda"].values())
        assert kernel["predicted_us"]["source"] == "analytic (uncalibrated for this device)"
    done = tvmpass("explain", folder / "r.json", "--html", folder / "r.html")
    assert "    sm_80: " in done.stdout and "On sm_90: no kernel spills registers" in done.stdout
    assert "analytic (uncalibrated for this device)" in done.stdout
    assert "on the devices" in (folder / "r.html").read_text()


def test_run_needs_a_device_and_says_so(built, tvmpass):
    if probe().answers:
        pytest.skip("a CUDA device answers here")
    folder, _ = built
    for arguments in ((), ("--device", "cuda")):
        done = tvmpass("run", folder / "m.so", *arguments, env=ENVIRONMENT)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("tvmpass: ") and done.stderr.count("\n") == 1
        assert "no CUDA device answers on this machine" in done.stderr


def test_run_on_the_wrong_device_is_wrong_usage(built, tvmpass):
    folder, _ = built
    done = tvmpass("run", folder / "m.so", "--device", "cpu", env=ENVIRONMENT)
    assert done.returncode == 2
    assert "the artifact was built for cuda:sm_80,sm_90" in done.stderr


def test_missing_nvcc_is_one_line_and_nothing_is_left(model, tvmpass, tmp_path):
    tools, hidden, work = tmp_path / "tools", tmp_path / "hidden", tmp_path / "work"
    for folder in (tools, hidden / "nvidia", work):
        folder.mkdir(parents=True)
    (tools / "g++").symlink_to(shutil.which("g++"))
    (hidden / "nvidia" / "__init__.py").touch()  # hides the wheels' compiler
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in ("CUDA_HOME", "CUDA_PATH")}
    environment |= {"PATH": str(tools), "PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}
    done = tvmpass("build", model, "-o", work / "m.so", "--target", "cuda:sm_80", env=environment)
    message = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert done.returncode == 1 and len(message) == 1
    assert "needs nvcc" in message[0] and "pip install 'tvmpass[cuda]'" in message[0]
    assert list(work.iterdir()) == []


def test_new_steps_are_listed(tvmpass):
    done = tvmpass("passes", "--json", "-", env=ENVIRONMENT)
    steps = {rule["name"]: rule for rule in json.loads(done.stdout)["rules"] if rule["kind"] == "schedule"}
    expected = {"tile-blocks", "tile-warps", "stage-shared", "vectorize-loads", "pipeline-loads"}
    assert expected | {"tensorize-wmma", "unroll-registers"} <= set(steps)
    assert steps["pipeline-loads"]["refusals"] and "stages" in steps["pipeline-loads"]["options"]
