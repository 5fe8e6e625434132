"""`build`, `run` and `passes` from end to end, on a model of four nodes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvmpass.cli.arrays import random_inputs
from tvmpass.compile.artifact import InputInfo
from tvmpass.core.errors import UsageError

ROOT = Path(__file__).parents[2]
WEIGHTS = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
BIAS = np.arange(6, dtype="float32")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Write relu(x @ w + b) / 4 with an open first dimension."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"], ["a"], name="shift"),
        helper.make_node("Relu", ["a"], ["r"], name="clip"),
        helper.make_node("Div", ["r", "four"], ["y/out"], name="quarter"),
    ]
    constants = [
        numpy_helper.from_array(WEIGHTS, "w"),
        numpy_helper.from_array(BIAS, "b"),
        numpy_helper.from_array(np.float32(4.0), "four"),
    ]
    graph = helper.make_graph(
        nodes,
        "four_nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y/out", TensorProto.FLOAT, ["batch", 6])],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    path = tmp_path_factory.mktemp("model") / "four_nodes.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def built(model, tmp_path_factory):
    """Build once with everything that can be written; return the folder and the process."""
    import subprocess

    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "tvmpass", "build", str(model), "-o", "m.so", "--shape", "x:n,8"]
    command += ["--report", "r.json", "--dump-ir", "ir", "--verify", "numeric"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder, done


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS + BIAS, 0) / 4


def test_build_writes_what_it_was_asked_for(built):
    folder, _ = built
    assert {path.name for path in folder.iterdir()} >= {"m.so", "r.json", "ir"}
    names = sorted(path.name for path in (folder / "ir").iterdir())
    assert names[0].startswith("01-") and any("fusion" in name for name in names)
    report = json.loads((folder / "r.json").read_text())
    assert report["model"] == "four_nodes.onnx"
    assert report["verify"]["level"] == "numeric" and report["verify"]["checked"] > 0


def test_build_says_nothing_but_progress(built):
    _, done = built
    assert done.stdout == ""
    assert all(line.startswith("[") for line in done.stderr.splitlines()), done.stderr


def test_run_with_inputs_writes_outputs_by_name(built, tvmpass, tmp_path):
    folder, _ = built
    x = np.random.default_rng(1).standard_normal((8, 5)).astype("float32").T  # not contiguous
    np.savez(tmp_path / "in.npz", x=x)
    done = tvmpass("run", folder / "m.so", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    got = np.load(tmp_path / "out.npz", allow_pickle=False)["y/out"]
    np.testing.assert_allclose(got, expected(x), rtol=1e-5, atol=1e-5)


def test_run_draws_inputs_of_the_given_size_and_times(built, tvmpass):
    folder, _ = built
    done = tvmpass("run", folder / "m.so", "--shape", "x:3,8", "--time", "--json", "-")
    document = json.loads(done.stdout)
    assert document["inputs"]["x"]["shape"] == [3, 8]
    assert document["outputs"]["y/out"]["shape"] == [3, 6]
    assert document["time"]["rounds"] >= 10
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    assert document["outputs"]["y/out"]["max"] == pytest.approx(float(expected(x).max()), rel=1e-5)


def test_random_inputs_that_share_a_size_agree():
    inputs = [InputInfo("a", ("n", 4), "float32"), InputInfo("b", ("n",), "int64")]
    drawn = random_inputs(inputs, {"a": (3, 4), "b": (3,)}, seed=0)
    assert [array.shape for array in drawn.values()] == [(3, 4), (3,)]
    with pytest.raises(UsageError, match="--shape b: n is both 3 and 2"):
        random_inputs(inputs, {"a": (3, 4), "b": (2,)}, seed=0)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 8), "float64")}, "input 'x' has dtype float64, the model needs float32"),
        ({"x": np.zeros((2, 7), "float32")}, "input 'x' has shape 2x7, the model needs nx8"),
        ({"z": np.zeros((2, 8), "float32")}, "unknown input 'z'"),
        ({}, "missing input: x"),
    ],
)
def test_wrong_inputs_are_named(built, tvmpass, tmp_path, arrays, message):
    folder, _ = built
    np.savez(tmp_path / "in.npz", **arrays)
    done = tvmpass("run", folder / "m.so", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "o.npz")
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "o.npz").exists()


def test_pickled_arrays_are_refused(built, tvmpass, tmp_path):
    folder, _ = built
    np.savez(tmp_path / "in.npz", x=np.array([{}], dtype=object))
    done = tvmpass("run", folder / "m.so", "--inputs", tmp_path / "in.npz")
    assert done.returncode == 1
    assert "holds Python objects, which are not read" in done.stderr


def test_array_that_claims_more_than_it_holds_is_refused(tmp_path):
    import zipfile

    from tvmpass.core.errors import TvmpassError
    from tvmpass.core.npz import read_npz

    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(TvmpassError, match="array 'x' claims 4000000000000 bytes"):
        read_npz(str(tmp_path / "in.npz"))


def test_unknown_names_are_errors_that_name_the_nearest(model, tvmpass, tmp_path):
    cases = {
        ("--config", "tvmpass.fussion=never"): "did you mean 'tvmpass.fusion'",
        ("--config", "fusion=nevr"): "expected one of auto, always, never",
        ("--without", "grow-epilog"): "did you mean 'grow-epilogue'",
        ("--target", "lvm"): "did you mean 'llvm'",
        ("--shape", "xx:2,8"): "unknown input 'xx'",
    }
    for arguments, message in cases.items():
        done = tvmpass("build", model, "-o", tmp_path / "m.so", *arguments)
        assert done.returncode == 2, done.stderr
        lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
        assert len(lines) == 1 and message in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_rules_of_a_file_take_part(model, tvmpass, tmp_path):
    rules = ROOT / "examples" / "own_rule.py"
    done = tvmpass(
        "build", model, "-o", tmp_path / "m.so", "--shape", "x:2,8", "--rules", rules, "--report", "-"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rules"]["multiply-by-reciprocal"]["applied"] == 1
    (decision,) = [d for d in report["decisions"] if d["rule"] == "multiply-by-reciprocal"]
    assert decision["origin"] == ["quarter"]


def test_broken_rules_file_is_one_line(model, tvmpass, tmp_path):
    (tmp_path / "bad.py").write_text("RULES = (1/0,)\n")
    done = tvmpass("passes", "--rules", tmp_path / "bad.py")
    assert done.returncode in (1, 2)
    assert "bad.py" in done.stderr and "division by zero" in done.stderr and done.stderr.count("\n") == 1


def test_passes_lists_every_rule_once(tvmpass):
    done = tvmpass("passes", "--json", "-")
    rules = json.loads(done.stdout)["rules"]
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names)) and "grow-epilogue" in names
    assert all(rule["summary"] and len(rule["summary"]) <= 80 for rule in rules)
    one = tvmpass("passes", "--rule", "GrowEpilogue")
    assert one.stdout.startswith("grow-epilogue (GrowEpilogue): proposal rule")
    assert tvmpass("passes", "--rule", "grow-epilog").returncode == 2


def test_explain_of_the_real_report(built, tvmpass):
    folder, _ = built
    done = tvmpass("explain", folder / "r.json", "--at", "shift")
    assert done.returncode == 0, done.stderr
    assert "shift" in done.stdout and "matched a rule" in done.stdout
    page = tvmpass("explain", folder / "r.json", "--html", folder / "r.html")
    assert page.returncode == 0 and (folder / "r.html").stat().st_size > 5000
