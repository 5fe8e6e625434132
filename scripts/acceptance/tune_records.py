"""D: records of another class of devices are never used; a moved schedule moves its version.

Every record here claims to be ten times faster than the library's choice and is
of a kernel of the very model, so that a build that looked at the kernel alone
would take it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import models
from .bench import ONE_THREAD, Bench, Verdict

AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 1}
OTHERS = ("x86-64-v2-t1", "aarch64-dotprod-fp16-t1", "cuda-sm_90")
RUN = (
    "schedules/cpu/tile.py",
    "schedules/cuda/finish.py",
    "tir_passes/recipes.py",
    "tir_passes/tile_rows.py",
)
VERSIONS = "test_moved_code_moves_the_version"


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)
    work: dict[str, Callable[[], dict]] = {
        "another-class": lambda: another_class(bench, paths["cls"]),
        "cross-compiled": lambda: bench.child("tune_records:cross_compiled", paths["cls"]),
        "stock": lambda: bench.child("tune_records:stock"),
        "moved-sources": lambda: moved_sources(bench),
    }
    results = bench.items("D", work, lambda name: work[name]())
    bad = [
        f"{n}: {r.get('error') or r.get('fault')}" for n, r in results.items() if r.get("error") or r["fault"]
    ]
    shown = [r["text"] for r in results.values() if r.get("text")]
    return Verdict(not bad, "; ".join(bad or shown), results)


def another_class(bench: Bench, path: str) -> dict:
    """Build the model with records under its own keys, whose files are of other classes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = bench.child("tune_records:plant", path, str(folder))
        if "error" in made:
            return made
        report = folder / "report.json"
        command = ["build", path, "-o", str(folder / "m.so"), "--shape", _shape("cls")]
        command += ["--config", f"tuning_logs={folder}", "--config", "threads=1", "--report", str(report)]
        done = bench.cli(*command)
        if done.returncode:
            return {"error": done.stderr[-400:]}
        found = json.loads(report.read_text())["records"]
    said = done.stdout + done.stderr
    faults = []
    wanted = {"present": made["present"], "used": made["used"], "orphaned": made["orphaned"]}
    if found != wanted:
        faults.append(f"the report counts {found}, there are {wanted}")
    if f"{made['used']} of {made['present']} tuning records used, {made['orphaned']} for other" not in said:
        faults.append(f"the build says {said.strip()[-200:]!r}")
    text = (
        f"of {made['present']} records {found['used']} used (all of this class), {found['orphaned']} orphaned"
    )
    return {"fault": "; ".join(faults), "text": text, "records": found}


def plant(path: str, folder: str) -> dict:
    """Write one file of records for this class, of half the kernels, and one for each other class."""
    from tvmpass.compile.target import parse_target
    from tvmpass.cost.device import device_class

    own = device_class(parse_target("llvm", 1), 1)
    lines = _lines(path, "llvm")
    half = lines[::2]
    _write(Path(folder), own, half)
    others = [name for name in (*OTHERS, own.removesuffix("1") + "2") if name != own]
    for name in others:
        _write(Path(folder), name, lines)
    _write(Path(folder), own, lines, tvm="0.0.1", file="old")
    foreign = len(lines) * (len(others) + 1)
    # Kernels without a planted record of this class may use one that ships.
    ships = shipped("llvm")
    more = sum(ships.best(line["kernel_key"]) is not None for line in lines[1::2])
    return {
        "present": len(half) + foreign + ships.present,
        "used": len(half) + more,
        "orphaned": foreign + ships.orphaned,
    }


def shipped(target: Any):
    """Return what a build for ``target`` finds where only the shipped records are."""
    from tvmpass.compile.records import Records
    from tvmpass.compile.target import parse_target
    from tvmpass.core.options import Options
    from tvmpass.cost.device import device_class

    with tempfile.TemporaryDirectory() as empty:
        resolved = parse_target(target, 1)
        return Records.of(Options(threads=1, tuning_logs=empty), resolved, device_class(resolved, 1))


def cross_compiled(path: str) -> dict:
    """Use each target's records for that target alone: two x86 levels and aarch64."""
    import tvmpass
    from tvmpass.compile.target import parse_target
    from tvmpass.cost.device import device_class

    targets: dict[str, Any] = {"llvm": "llvm", "x86-64-v3": "llvm:x86-64-v3", "aarch64": AARCH64}
    classes = {name: device_class(parse_target(target, 1), 1) for name, target in targets.items()}
    if len(set(classes.values())) < len(classes):
        return {"error": f"the machine is one of the others: {classes}"}
    faults, counts = [], {}
    with tempfile.TemporaryDirectory() as folder:
        numbers = {}
        for name, target in targets.items():
            lines = _lines(path, target)
            numbers[name] = len(lines)
            _write(Path(folder), classes[name], lines)
        for name, target in targets.items():
            config = {"tvmpass.tuning_logs": folder, "tvmpass.threads": 1}
            with tvmpass.PassContext(config=config):
                mod = tvmpass.load(path, shapes={"x": models.MODELS["cls"][1]})
                _, report = tvmpass.optimize(mod, target)
            total = sum(numbers.values())
            ships = shipped(target)
            wanted = {
                "present": total + ships.present,
                "used": numbers[name],
                "orphaned": total - numbers[name] + ships.orphaned,
            }
            counts[name] = report.records
            if report.records != wanted:
                faults.append(f"{name}: {report.records} instead of {wanted}")
    return {
        "fault": "; ".join(faults),
        "text": f"{len(targets)} targets each use their own",
        "records": counts,
    }


def stock() -> dict:
    """Ask TVM's own database for a record of another target: what this point is about."""
    import tvm
    from tvm import s_tir, te
    from tvm.s_tir import meta_schedule as ms

    a = te.placeholder((32,), name="a")
    mod = tvm.IRModule({"main": te.create_prim_func([a, te.compute((32,), lambda i: a[i] + 1.0, name="b")])})
    schedule = s_tir.Schedule(mod)
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    schedule.split(loop, [None, 4])
    x86 = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 4})
    database = ms.database.MemoryDatabase()
    info = ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    workload = database.commit_workload(mod)
    database.commit_tuning_record(ms.database.TuningRecord(schedule.trace, workload, [1e-3], x86, info))
    arm = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2})
    found = database.query_tuning_record(mod, arm, "main") is not None
    said = "returns one of x86 for aarch64" if found else "keeps targets apart"
    return {"fault": "", "text": f"TVM's own database {said}", "returned": found}


def moved_sources(bench: Bench) -> dict:
    """Change each file of the schedules in a copy of the tree: the tests of versions must see it.

    What the tests compare is asked for every file; some are really run.
    """
    every = [
        path.relative_to(bench.root)
        for folder in ("schedules", "tir_passes")
        for path in sorted((bench.root / folder).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    # Packing changes the kernel, and so its key; the CUDA fallback is no candidate's schedule.
    exempt = {Path("schedules/cpu/pack.py"), Path("tir_passes/cuda_fallback.py")}
    files = [str(file) for file in every if file not in exempt]
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for folder in ("schedules", "tir_passes", "tvmpass", "relay_passes", "tests", "scripts"):
            shutil.copytree(bench.root / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(bench.root / "pyproject.toml", tree)
        if not _versions_hold(tree):
            return {"error": "the tests of versions fail on the tree as it is"}
        found = replace(bench, root=tree).child("tune_records:unseen", files)
        if "error" in found:
            return found
        unseen = list(found["unseen"])
        for file in RUN:
            source = _move(tree / file)
            if _versions_hold(tree):
                unseen.append(file)
            (tree / file).write_text(source)
    fault = f"changed unseen: {', '.join(unseen)}" if unseen else ""
    return {"fault": fault, "text": f"a change of each of {len(files)} sources is seen", "files": len(files)}


def unseen(files: list[str]) -> dict:
    """Return the files that can change without a digest of the tests of versions changing."""
    from tests.tir_passes import test_cuda_recipe_versions as cuda
    from tests.tir_passes import test_recipes as cpu

    def digests() -> list[str]:
        return [module.digest(kind) for module in (cpu, cuda) for kind in module.KINDS]

    before, found = digests(), []
    for file in files:
        source = _move(Path(file))
        if digests() == before:
            found.append(file)
        Path(file).write_text(source)
    return {"unseen": found}


def _move(file: Path) -> str:
    """Change a file, and return what it was."""
    source = file.read_text()
    file.write_text(_moved(file, source))
    return source


def _moved(file: Path, source: str) -> str:
    """Return the source with a statement more; in files of which one function counts, inside it."""
    inside = {
        "recipes.py": "    kernel = classify(func)\n",
        "step.py": "    refusal = step.check(schedule, kernel)\n",
    }
    line = inside.get(file.name)
    return source + "\nMOVED = 1\n" if line is None else source.replace(line, line + "    moved = 1\n", 1)


def _versions_hold(tree: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", VERSIONS]
    command += ["tests/tir_passes/test_recipes.py", "tests/tir_passes/test_cuda_recipe_versions.py"]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-300:]}")
    return done.returncode == 0


def _lines(path: str, target: Any) -> list[dict]:
    """Return a record of each kernel of the model that has a recipe, said to be ten times as fast."""
    import tvmpass
    from tvmpass.compile.kernel_key import record_key
    from tvmpass.compile.target import parse_target
    from tvmpass.core.options import Options
    from tvmpass.cost.device import device_class
    from tvmpass.tune.tasks import plan_tasks

    options = Options(threads=1)
    resolved = parse_target(target, 1)
    mod = tvmpass.load(path, shapes={"x": models.MODELS["cls"][1]})
    tasks, _ = plan_tasks(mod, resolved, options, device_class(resolved, 1))
    lines = []
    for task in tasks:
        recipe = task.workload.candidate0.recipe
        if recipe is not None:
            lines.append(
                {
                    "key": record_key(task.key, recipe, task.recipe_version),
                    "kernel_key": task.key,
                    "kind": task.kind,
                    "recipe": recipe,
                    "trace": None,
                    "recipe_version": task.recipe_version,
                    "role": "candidate",
                    "status": "ok",
                    "median_us": 1.0,
                    "samples_us": [1.0],
                    "candidate0_us": 10.0,
                    "features": None,
                    "wins": 1.0,
                }
            )
    return lines


def _write(folder: Path, device_class: str, lines: list[dict], file: str | None = None, **head: Any) -> None:
    import tvm

    from tvmpass.cost.dataset import header
    from tvmpass.version import VERSION

    first = {**header(device_class, tvm.__version__, VERSION, host={}), **head}
    text = "".join(json.dumps(entry) + "\n" for entry in (first, *lines))
    (folder / f"{file or device_class}.tuned.jsonl").write_text(text, encoding="utf-8")


def _shape(name: str) -> str:
    return "x:" + ",".join(map(str, models.MODELS[name][1]))
