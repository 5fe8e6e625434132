"""E: Relay programs on the command line, from a folder as a user has it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .bench import Bench, Verdict

NET = "net_resnet_block"
TOLERANCE = 2e-5
CASES: dict[str, Callable] = {}


def case(function: Callable) -> Callable:
    """Register a case under its function's name; it returns what is wrong, in words."""
    CASES[function.__name__.replace("_", "-")] = function
    return function


def point(bench: Bench) -> Verdict:
    def one(name: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            wrong = CASES[name](Desk(bench, Path(folder)))
        return {"ok": not wrong, "wrong": "; ".join(wrong)}

    results = bench.items("E", CASES, one)
    bad = [
        f"{name}: {row.get('error') or row['wrong']}" for name, row in results.items() if not row.get("ok")
    ]
    return Verdict(not bad, "; ".join(bad)[:1500] or f"{len(results)} cases", results)


class Desk:
    """A folder with a program as text and JSON, its parameters in both formats, and its inputs."""

    def __init__(self, bench: Bench, folder: Path):
        self.bench, self.folder = bench, folder
        cases = bench.shared / "relay_cases"
        for source, name in (
            (cases / f"{NET}.relay", "net.relay"),
            (cases / f"{NET}.params.npz", "net.npz"),
            (cases / f"{NET}.inputs.npz", "inputs.npz"),
            (cases / f"{NET}.outputs.npz", "wanted.npz"),
            (cases / "json" / f"{NET}.json", "saved.json"),
            (cases / "json" / f"{NET}.params", "net.params"),
        ):
            shutil.copyfile(source, folder / name)

    def run(
        self, *arguments: str, code: int = 0, says: tuple[str, ...] = (), timeout: float = 300
    ) -> list[str]:
        """Run a command; return what is wrong with its exit code or what it says."""
        before = sorted(entry.name for entry in self.folder.iterdir())
        done = self.bench.cli(*arguments, cwd=self.folder, timeout=timeout)
        said = "\n".join(line for line in done.stderr.splitlines() if code == 0 or not line.startswith("["))
        wrong = [f"exit {done.returncode}, not {code}"] if done.returncode != code else []
        wrong += [f"does not say {word!r}" for word in says if word not in said + done.stdout]
        if "Traceback" in said:
            wrong.append("a traceback")
        if code and sorted(entry.name for entry in self.folder.iterdir()) != before:
            wrong.append("left files")
        if code and sum(line.startswith("tvmpass: ") for line in said.splitlines()) != 1:
            wrong.append("not one error")
        return [f"tvmpass {' '.join(arguments)}: {', '.join(wrong)}: {said[-300:]}"] if wrong else []

    def results_of(self, library: str) -> list[str]:
        """Run a library on the inputs and compare with what Relay computed."""
        wrong = self.run("run", library, "--inputs", "inputs.npz", "--outputs", "got.npz")
        if wrong:
            return wrong
        with np.load(self.folder / "got.npz") as got, np.load(self.folder / "wanted.npz") as wanted:
            pairs = list(zip((got[name] for name in got.files), (wanted[name] for name in wanted.files)))
            if len(got.files) != len(wanted.files):
                return [f"{len(got.files)} outputs, not {len(wanted.files)}"]
        close = all(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE) for a, b in pairs)
        return [] if close else ["results differ from Relay's"]


@case
def build_from_text(desk: Desk) -> list[str]:
    wrong = desk.run("build", "net.relay", "--params", "net.params", "-o", "net.so", "--report", "r.json")
    wrong += desk.results_of("net.so")
    wrong += desk.run("explain", "r.json", "--at", "%0", says=("%0",))
    report = json.loads((desk.folder / "r.json").read_text())
    if any(not kernel["origin"] for kernel in report["kernels"]):
        wrong.append("a kernel does not say what it comes from")
    return wrong


@case
def build_from_json_with_npz(desk: Desk) -> list[str]:
    return desk.run("build", "saved.json", "--params", "net.npz", "-o", "net.so") + desk.results_of("net.so")


@case
def build_with_numeric_checks(desk: Desk) -> list[str]:
    words = ("build", "net.relay", "--params", "net.npz", "-o", "net.so", "--verify", "numeric")
    return desk.run(*words, timeout=600) + desk.results_of("net.so")


@case
def build_for_cuda(desk: Desk) -> list[str]:
    words = ("build", "net.relay", "--params", "net.params", "-o", "net.so", "--target", "cuda:sm_90")
    return desk.run(*words, timeout=900)


@case
def convert_and_back(desk: Desk) -> list[str]:
    wrong = desk.run("convert", "net.relay", "--params", "net.params", "-o", "relax.json")
    wrong += desk.run("build", "relax.json", "-o", "net.so") + desk.results_of("net.so")
    return wrong


@case
def convert_without_parameters(desk: Desk) -> list[str]:
    wrong = desk.run("convert", "saved.json", "-o", "relax.json")
    return (
        wrong
        + desk.run("build", "relax.json", "--params", "net.params", "-o", "net.so")
        + desk.results_of("net.so")
    )


@case
def tune_and_build(desk: Desk) -> list[str]:
    words = ("net.relay", "--params", "net.params")
    wrong = desk.run("tune", *words, "--trials", "8", "--threads", "1", "--logs", "logs", timeout=600)
    config = ("--config", "tuning_logs=logs", "--config", "threads=1")
    return wrong + desk.run("build", *words, "-o", "net.so", *config) + desk.results_of("net.so")


@case
def example(desk: Desk) -> list[str]:
    import subprocess
    import sys

    script = desk.bench.root / "examples" / "relay_build.py"
    environment = {"PYTHONPATH": str(desk.bench.root), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, script],
        cwd=desk.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [] if done.returncode == 0 and "probabilities" in done.stdout else [done.stderr[-300:]]


@case
def faults_in_text(desk: Desk) -> list[str]:
    text = (desk.folder / "net.relay").read_text()
    wrong = []
    for old, new, says in (
        ("nn.relu(", "nn.rellu(", ("nn.rellu", "did you mean", "^")),
        (";\n", "\n", ("bad.relay:", "^")),
        ("Tensor[(1,", "Tensor[(1,,", ("bad.relay:", "^")),
        ("#[version", "#[verzion", ("bad.relay:",)),
        ('"0.0.5"', '"9.9"', ("9.9",)),
    ):
        (desk.folder / "bad.relay").write_text(text.replace(old, new, 1))
        wrong += desk.run("build", "bad.relay", "-o", "out.so", code=1, says=says)
    return wrong


@case
def faults_in_files(desk: Desk) -> list[str]:
    json_text, params = (desk.folder / "saved.json").read_text(), (desk.folder / "net.params").read_bytes()
    (desk.folder / "cut.json").write_text(json_text[: len(json_text) // 2])
    (desk.folder / "cut.params").write_bytes(params[:-5])
    (desk.folder / "other.params").write_bytes(b"PK")
    build = ("build", "-o", "out.so")
    wrong = desk.run(*build, "cut.json", code=1, says=("cut.json: not JSON",))
    wrong += desk.run(*build, "none.relay", code=2, says=("model file not found: none.relay",))
    wrong += desk.run(*build, "net.relay", "--params", "cut.params", code=1, says=("truncated",))
    wrong += desk.run(*build, "net.relay", "--params", "other.params", code=1, says=("save_param_dict",))
    wrong += desk.run(*build, "net.relay", "--params", "none", code=2, says=("parameter file not found",))
    wrong += desk.run(*build, "net.relay", "--params", "inputs.npz", "--shape", "w1:1", code=2, says=("w1",))
    wrong += desk.run("convert", "net.relay", "-o", "net.relay", code=2, says=("would overwrite",))
    return wrong
