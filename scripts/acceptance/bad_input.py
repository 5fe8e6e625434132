"""F: bad input gives one line, the documented exit code, and nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .bench import Bench, Verdict

FAILED, USAGE = 1, 2
CASES: dict[str, Callable] = {}


def case(function: Callable) -> Callable:
    """Register a case under its function's name."""
    CASES[function.__name__.replace("_", "-")] = function
    return function


def outcomes(bench: Bench, letter: str, cases: dict[str, Callable]) -> tuple[dict[str, dict], list[str]]:
    """Do each case at a desk of its own; return the results, and what is wrong in words."""

    def one(name: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            return cases[name](Desk(bench, Path(folder)))

    results = bench.items(letter, cases, one)
    return results, [f"{n}: {r.get('error') or r}" for n, r in results.items() if not r.get("ok")]


def point(bench: Bench) -> Verdict:
    results, bad = outcomes(bench, "F", CASES)
    return Verdict(not bad, "; ".join(bad)[:1500] or f"{len(results)} cases", results)


class Desk:
    """A folder to work in, with the example model, and a judge of what a command did."""

    def __init__(self, bench: Bench, folder: Path):
        self.bench, self.folder = bench, folder
        self.example = bench.root / "examples" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"

    def judge(self, arguments: list, code: int, needed: str, wrap: list[str] | None = None) -> dict:
        """Run a command; expect ``code``, one line with ``needed``, no new files."""
        before = self._listing()
        if wrap is None:
            done = self.bench.cli(*arguments, cwd=self.folder)
        else:
            environment = {**os.environ, "PYTHONPATH": str(self.bench.root)}
            command = [*wrap, sys.executable, "-m", "tvmpass", *map(str, arguments)]
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300
            )
        # Progress lines begin with "[": they are no part of the message.
        message = [line for line in done.stderr.splitlines() if not line.startswith("[")]
        checks = {
            "code": done.returncode == code,
            "one_line": len(message) == 1 and message[0].startswith("tvmpass: "),
            "says": needed in done.stderr,
            "no_traceback": "Traceback" not in done.stderr,
            "nothing_left": self._listing() == before,
        }
        return {
            "ok": all(checks.values()),
            "message": message[0] if message else "",
            "code": done.returncode,
            "failed_checks": [key for key, good in checks.items() if not good],
        }

    def build(self, model, output="out.so", *more, code=FAILED, needed="", wrap=None) -> dict:
        arguments = ["build", model, "-o", output, *more]
        return self.judge(arguments, code, needed, wrap)

    def small_model(self, name: str = "small.onnx", **tensor) -> Path:
        """Write y = x + c with c of shape [4]; ``tensor`` overrides external data."""
        import onnx
        from onnx import TensorProto, helper

        constant = helper.make_tensor("c", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
        if tensor:
            constant.ClearField("float_data")
            constant.data_location = TensorProto.EXTERNAL
            for key, value in tensor.items():
                constant.external_data.add(key=key, value=str(value))
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "c"], ["y"], name="add_it")],
            "small",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
            [constant],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        path = self.folder / name
        path.write_bytes(model.SerializeToString())
        assert onnx.load(str(path), load_external_data=False).graph.node
        return path

    def built(self) -> Path:
        """Build the small model; return the library."""
        library = self.folder / "small.so"
        done = self.bench.cli("build", self.small_model(), "-o", library, "--shape", "x:3,4")
        if done.returncode:
            raise RuntimeError(done.stderr)
        return library

    def _listing(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*"))


@case
def truncated_onnx(desk: Desk) -> dict:
    path = desk.folder / "cut.onnx"
    path.write_bytes(desk.example.read_bytes()[:200_000])
    return desk.build(path, needed="cut.onnx")


@case
def text_named_onnx(desk: Desk) -> dict:
    path = desk.folder / "notes.onnx"
    path.write_text("These are my notes, not a model.\n" * 20)
    return desk.build(path, needed="notes.onnx")


@case
def no_such_model(desk: Desk) -> dict:
    return desk.build("missing.onnx", code=USAGE, needed="missing.onnx")


@case
def wrong_shape_name(desk: Desk) -> dict:
    return desk.build(desk.example, "out.so", "--shape", "xx:1,3,48,192", code=USAGE, needed="x")


@case
def missing_shape(desk: Desk) -> dict:
    return desk.build(desk.example, code=USAGE, needed="--shape")


@case
def unknown_operator(desk: Desk) -> dict:
    import onnx

    path = desk.small_model("odd.onnx")
    model = onnx.load(str(path))
    model.graph.node[0].op_type = "AddTwice"
    path.write_bytes(model.SerializeToString())
    return desk.build(path, "out.so", "--shape", "x:3,4", needed="add_it")


@case
def external_data_missing(desk: Desk) -> dict:
    path = desk.small_model("ext.onnx", location="weights.bin", offset=0, length=16)
    return desk.build(path, "out.so", "--shape", "x:3,4", needed="weights.bin")


@case
def external_data_outside(desk: Desk) -> dict:
    inner = desk.folder / "model"
    inner.mkdir()
    (desk.folder / "weights.bin").write_bytes(bytes(16))
    path = desk.small_model("model/ext.onnx", location="../weights.bin", offset=0, length=16)
    return desk.build(path, "out.so", "--shape", "x:3,4", needed="weights.bin")


@case
def parent_is_a_file(desk: Desk) -> dict:
    (desk.folder / "file").write_text("")
    return desk.build(desk.small_model(), "file/out.so", "--shape", "x:3,4", needed="file/out.so")


@case
def read_only_mount(desk: Desk) -> dict:
    return _mounted(desk, "ro", "Read-only file system")


@case
def full_disk(desk: Desk) -> dict:
    return _mounted(desk, "size=16k", "No space left on device")


def _mounted(desk: Desk, options: str, needed: str) -> dict:
    """Write to a tmpfs that only this command sees."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return {"ok": False, "error": "needs root and unshare to mount a tmpfs"}
    (desk.folder / "disk").mkdir()
    script = f'mount -t tmpfs -o {options} tmpfs disk && "$@"; code=$?; ls -A disk >&3; exit $code'
    listing = desk.folder.parent / (desk.folder.name + ".listing")
    wrap = ["unshare", "-m", "bash", "-c", f"exec 3>{listing}; {script}", "bash"]
    result = desk.build(desk.small_model(), "disk/out.so", "--shape", "x:3,4", needed=needed, wrap=wrap)
    left = listing.read_text().strip()
    listing.unlink()
    if left:
        result["failed_checks"].append(f"left on the disk: {left}")
    return {**result, "ok": result["ok"] and not left}


@case
def corrupt_log_line(desk: Desk) -> dict:
    logs = desk.folder / "logs"
    logs.mkdir()
    for shipped in sorted((desk.bench.root / "tuning_logs").glob("*.jsonl"))[:1]:
        lines = shipped.read_text().splitlines()[:3]
        (logs / shipped.name).write_text("\n".join([*lines, '{"key": "cut']) + "\n")
    if not any(logs.iterdir()):
        (logs / "bad.jsonl").write_text('{"key": "cut\n')
    return desk.judge(["train", "--logs", logs], FAILED, "line")


@case
def no_compiler(desk: Desk) -> dict:
    empty = desk.folder / "bin"
    empty.mkdir()
    wrap = ["env", f"PATH={empty}", "CXX="]
    return desk.build(desk.small_model(), "out.so", "--shape", "x:3,4", needed="g++", wrap=wrap)


@case
def strided_input_is_copied(desk: Desk) -> dict:
    import numpy as np

    wide = np.arange(24, dtype="float32").reshape(4, 6)
    x = wide[:, ::2].T  # 3x4, neither axis contiguous
    library = desk.built()
    np.savez(desk.folder / "in.npz", x=np.asfortranarray(x))
    done = desk.bench.cli("run", library, "--inputs", "in.npz", "--outputs", "out.npz", cwd=desk.folder)
    child = desk.bench.child("bad_input:run_strided", str(library))
    if done.returncode or "error" in child:
        return {"ok": False, "error": done.stderr or child.get("error")}
    got = np.load(desk.folder / "out.npz", allow_pickle=False)["y"]
    return {"ok": bool(np.array_equal(got, x + np.array([1, 2, 3, 4], "float32"))) and child["ok"]}


def run_strided(library: str) -> dict:
    import numpy as np

    import tvmpass

    x = np.arange(24, dtype="float32").reshape(4, 6)[:, ::2].T
    assert not x.flags.c_contiguous
    (got,) = tvmpass.load_artifact(library).run(x=x)
    return {"ok": bool(np.array_equal(got, x + np.array([1, 2, 3, 4], "float32")))}


@case
def wrong_dtype(desk: Desk) -> dict:
    return _wrong_input(desk, "float64", {"x": (3, 4)})


@case
def wrong_shape(desk: Desk) -> dict:
    return _wrong_input(desk, "3x4", {"x": (4, 3)}, "float32")


@case
def wrong_input_name(desk: Desk) -> dict:
    return _wrong_input(desk, "'z'", {"z": (3, 4)}, "float32")


def _wrong_input(desk: Desk, needed: str, shapes: dict, dtype: str = "float64") -> dict:
    import numpy as np

    library = desk.built()
    np.savez(desk.folder / "in.npz", **{name: np.zeros(shape, dtype) for name, shape in shapes.items()})
    arguments = ["run", library, "--inputs", "in.npz", "--outputs", "out.npz"]
    return desk.judge(arguments, USAGE, needed)


@case
def pickled_input(desk: Desk) -> dict:
    import numpy as np

    library = desk.built()
    np.savez(desk.folder / "in.npz", x=np.array([{"a": 1}], dtype=object))
    return desk.judge(["run", library, "--inputs", "in.npz"], FAILED, "in.npz")


@case
def cut_library(desk: Desk) -> dict:
    library = desk.built()
    library.write_bytes(library.read_bytes()[:5000])
    return desk.judge(["run", library], FAILED, "small.so")


@case
def report_of_something_else(desk: Desk) -> dict:
    path = desk.folder / "r.json"
    path.write_text(json.dumps({"schema": 1, "rows": []}))
    return desk.judge(["explain", path], FAILED, "not a report")
