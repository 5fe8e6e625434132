"""F: the bundle is made in a clean clone, unpacked, and measured from up to the device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import models
from .bench import Bench, Verdict

PART_MIB = 60
LEAST_LIBRARIES = 100
LEAST_TIMED, LEAST_RECORDS = 60, 50
MAJOR = 9
"""Compute capability of the device that does nothing: the bundle holds kernels for records of sm_90."""
NO_DEVICE = 3
"""The exit code of ``cuda_measure.sh`` where no device answers."""


def point(bench: Bench) -> Verdict:
    """Do the steps of CONTRIBUTING.md in order; each needs the one before."""
    parts = bench.folder / "gpu-bundle"
    models.fetch(bench.cache)

    def one(name: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            return STEPS[name](bench, parts, Path(folder))

    results = bench.items("F", STEPS, one)
    faults = [f"{name}: {r.get('error') or r['faults']}" for name, r in results.items() if wrong(r)]
    shown = "; ".join(r["text"] for r in results.values() if "text" in r)
    return Verdict(not faults, "; ".join([*faults, shown])[:1500], results)


def wrong(result: dict) -> bool:
    return "error" in result or bool(result["faults"])


def bundle(bench: Bench, parts: Path, folder: Path) -> dict:
    """Clone, run gpu_bundle.sh there, and look at the parts."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(bench.root), str(clone)], check=True)
    shutil.rmtree(parts, ignore_errors=True)
    kept = bench.cache / "gpu-bundle.cache"  # compressing TVM takes minutes and gives the same each time
    if kept.exists():
        (clone / "build").mkdir()
        shutil.copytree(kept, clone / "build" / "gpu-bundle.cache")
    command = ["scripts/gpu_bundle.sh", "--out", str(parts), "--part-size", str(PART_MIB)]
    command += ["--models", str(bench.cache / "ocr-models")]
    done = run(command, clone, environment(), 5400)
    if done.returncode:
        return {"error": tail(done)}
    shutil.copytree(clone / "build" / "gpu-bundle.cache", kept, dirs_exist_ok=True)
    index = json.loads((clone / "build" / "cuda" / "index.json").read_text())
    sizes = {path.name: path.stat().st_size for path in sorted(parts.iterdir())}
    faults = [f"{n} has {size} bytes" for n, size in sizes.items() if size > PART_MIB << 20]
    faults += [f"not built: {item['name']}: {item['error']}" for item in index["failed"]]
    if len(index["items"]) < LEAST_LIBRARIES:
        faults.append(f"only {len(index['items'])} libraries")
    total = sum(sizes.values())
    text = f"{len(sizes)} files, {total / 2**20:.0f} MiB, {len(index['items'])} libraries"
    return {"faults": faults, "text": text, "files": sizes, "libraries": len(index["items"])}


def damage(bench: Bench, parts: Path, folder: Path) -> dict:
    """A part that is missing or has a wrong byte is one line, and nothing is unpacked."""
    copy, kept = folder / "copy", {**environment(), "PYTHON": python312() or ""}
    shutil.copytree(parts, copy)
    first = min(copy.glob("tvmpass-gpu.part*"))
    content = bytearray(first.read_bytes())
    faults = []
    for what in ("damaged", "missing"):
        if what == "damaged":
            content[len(content) // 2] ^= 1
            first.write_bytes(content)
        else:
            first.unlink()
        done = run(["bash", str(copy / "unpack.sh"), "here"], folder, kept, 600)
        lines = done.stderr.strip().splitlines()
        if done.returncode != 1 or len(lines) != 1 or first.name not in lines[0] or what not in lines[0]:
            faults.append(f"{what}: exit {done.returncode}, {lines[-2:]}")
        if (folder / "here").exists() or (folder / "here.partial").exists():
            faults.append(f"{what}: something was unpacked")
    return {"faults": faults}


def host(bench: Bench, parts: Path, folder: Path) -> dict:
    """Unpack and measure with Python 3.12 alone: no pip, no nvcc, no compiler, no packages."""
    unpacked, alone = unpack(parts, folder)
    out = folder / "results"
    command = [str(unpacked / "project/scripts/cuda_measure.sh"), "--minutes", "8", "--out", str(out)]
    done = run(["bash", *command], folder, alone, 900)
    if not (out / "summary.json").exists():
        return {"error": tail(done)}
    summary = json.loads((out / "summary.json").read_text())
    libraries, tests = summary.get("loaded", {}), summary["tests"]
    faults = []
    if done.returncode != NO_DEVICE:
        faults.append(f"exit {done.returncode}: {tail(done)}")
    if "no CUDA device answers" not in summary.get("stopped", ""):
        faults.append("the summary does not say that no device answers")
    if libraries.get("libraries", 0) < LEAST_LIBRARIES or libraries.get("not_resolvable"):
        faults.append(f"libraries: {libraries}")
    if tests["failed"] or tests["passed"] or tests["skipped"] < LEAST_LIBRARIES:
        faults.append(f"tests: {tests}")
    commit = json.loads((parts / "manifest.json").read_text())["commit"]
    if summary["commit"] != commit:
        faults.append(f"it measured {summary['commit']}, not {commit}")
    text = f"{libraries.get('libraries')} libraries load, {tests['skipped']} tests wait for a device, "
    text += f"stopped: {summary.get('stopped')}"
    return {
        "faults": faults,
        "text": text,
        "summary": summary,
        "files": sorted(p.name for p in out.iterdir()),
    }


def idle(bench: Bench, parts: Path, folder: Path) -> dict:
    """Measure on a driver that launches nothing: everything runs, and no result passes as right."""
    from tvmpass.compile.cuda_toolchain import find_nvcc
    from tvmpass.compile.host_compiler import host_compiler

    driver = folder / "driver"
    driver.mkdir()
    (driver / "versions").write_text("libcudart.so.13 { global: *; };\n")
    source = bench.root / "tests" / "compile" / "fake_cuda.c"
    for name, option in (
        ("libcuda.so.1", "-DFAKE_DRIVER"),
        ("libcudart.so.13", f"-Wl,--version-script={driver / 'versions'}"),
    ):
        command = [host_compiler(), "-x", "c", "-w", "-shared", "-fPIC", f"-DFAKE_MAJOR={MAJOR}", option]
        command += [
            f"-Wl,-soname,{name}",
            f"-I{find_nvcc().root / 'include'}",
            str(source),
            "-o",
            str(driver / name),
        ]
        subprocess.run(command, check=True, capture_output=True)
    unpacked, alone = unpack(parts, folder)
    alone |= {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": os.devnull}
    out = folder / "results"
    command = [str(unpacked / "project/scripts/cuda_measure.sh"), "--minutes", "15", "--out", str(out)]
    done = run(["bash", *command], folder, alone, 1200)
    if not (out / "summary.json").exists():
        return {"error": tail(done)}
    summary = json.loads((out / "summary.json").read_text())
    tests, cases, models_done = summary["tests"], summary.get("cases", []), summary.get("models", [])
    faults = []
    if done.returncode != 1 or summary["device"]["name"] != "fake":
        faults.append(f"exit {done.returncode} on {summary['device']}: {tail(done)}")
    if tests["passed"] or tests["failed"] < LEAST_LIBRARIES:
        faults.append(f"tests on a device that does nothing: {tests}")
    if len(cases) < LEAST_TIMED or any("error" in entry for entry in cases):
        faults.append(f"{len(cases)} cases timed, {sum('error' in e for e in cases)} errors")
    if len(models_done) != len(models.MODELS) or any(entry.get("right", True) for entry in models_done):
        faults.append(f"models: {models_done}")
    records = summary.get("records", {}).get("records", 0)
    if records < LEAST_RECORDS:
        faults.append(f"{records} records: {summary['notes']}")
    text = f"on a device that does nothing {tests['failed']} tests fail, {len(cases)} libraries are timed, "
    text += f"{len(models_done)} models are found wrong, {records} records are written"
    return {"faults": faults, "text": text, "notes": summary["notes"]}


STEPS = {"bundle": bundle, "damage": damage, "host": host, "idle-device": idle}


def unpack(parts: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Unpack as a host with little more than Python 3.12 would; return where, and that host's environment."""
    python = python312()
    if python is None:
        raise RuntimeError("no Python 3.12 on this machine; name one with PYTHON312=...")
    tools = folder / "tools"
    tools.mkdir()
    (tools / "python3.12").symlink_to(python)
    names = "bash sh env cat cp cut dirname ls mkdir mv rm sed sort tar xz"
    for tool in names.split():
        (tools / tool).symlink_to(shutil.which(tool))
    alone = {"PATH": str(tools), "HOME": str(folder), "LANG": "C.UTF-8"}
    unpacked = folder / "unpacked"
    done = run(["bash", str(parts / "unpack.sh"), str(unpacked)], folder, alone, 600)
    if done.returncode:
        raise RuntimeError(tail(done))
    return unpacked, alone


def python312() -> str | None:
    """Return a Python 3.12 without a virtual environment around it."""
    places = [os.environ.get("PYTHON312"), shutil.which("python3.12")]
    places += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.12*/bin/python3.12"))]
    for place in filter(None, places):
        done = subprocess.run(
            [place, "-c", "import sys; print(sys.version_info[:2] == (3, 12), sys.executable)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.startswith("True"):
            return done.stdout.split()[1]
    return None


def environment() -> dict[str, str]:
    """Return this environment without what could lend the clone our packages."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept["PATH"] = os.pathsep.join(
        part for part in kept["PATH"].split(os.pathsep) if not part.startswith(sys.prefix + os.sep)
    )
    return kept


def run(command: list[str], folder: Path, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)


def tail(done: subprocess.CompletedProcess) -> str:
    return f"exit {done.returncode}: " + " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
