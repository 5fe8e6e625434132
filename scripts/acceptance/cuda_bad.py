"""D: what cannot work on CUDA is one clear line each, with the exit code and nothing half-written."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from .bad_input import FAILED, USAGE, Desk, outcomes
from .bench import Bench, Verdict

SHAPE = ("--shape", "x:1,3,48,192")

GREEDY = """
import sys
from tvm import s_tir
from tvmpass.catalogue import parse_recipe
from tvmpass.cli import main
from tvmpass.compile import schedule as scheduling

def greedy(recipe, function, target):
    "Stage the whole input, 300 KB, in one block's shared memory."
    schedule = s_tir.Schedule(function)
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
    outer, _, thread = schedule.split(schedule.fuse(*schedule.get_loops(block)), [1, None, 256])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    staged = schedule.cache_read(block, 0, "shared.dyn")
    schedule.compute_at(staged, outer)
    _, thread = schedule.split(schedule.fuse(*schedule.get_loops(staged)[1:]), [None, 256])
    schedule.bind(thread, "threadIdx.x")
    return schedule.mod["main"]

scheduling.recipes = lambda *_: [parse_recipe("")]
scheduling.apply_recipe = greedy
main(sys.argv[4:])
"""
"""A build whose only schedule takes 307,200 bytes; called with ``python -m tvmpass ARGUMENTS`` behind it."""


def point(bench: Bench) -> Verdict:
    results, faults = outcomes(bench, "D", CASES)
    messages = "; ".join(f"{n}: {r['message']}" for n, r in results.items() if r.get("ok"))
    return Verdict(not faults, ("; ".join(faults) or messages)[:1500], results)


def unknown_architecture(desk: Desk) -> dict:
    """`sm_999` is refused before any work, with the wrong usage's exit code."""
    return desk.build(
        desk.example, "out.so", "--target", "cuda:sm_999", *SHAPE, code=USAGE, needed="'sm_999'"
    )


def no_nvcc(desk: Desk) -> dict:
    """Without nvcc anywhere: what is missing and what to install."""
    wrap = ["env", "-u", "CUDA_HOME", "-u", "CUDA_PATH", f"PATH={path_without_nvcc(desk.folder)}"]
    blocked = desk.folder / "blocked"
    if has_wheel_nvcc():
        # Another package named nvidia in front hides the wheels' compiler.
        (blocked / "nvidia").mkdir(parents=True)
        (blocked / "nvidia" / "__init__.py").touch()
        wrap.append(f"PYTHONPATH={blocked}{os.pathsep}{desk.bench.root}")
    return desk.build(desk.example, "out.so", "--target", "cuda:sm_80", *SHAPE, needed="nvcc", wrap=wrap)


def too_much_shared_memory(desk: Desk) -> dict:
    """A schedule that asks for 300 KB is refused by kernel, need, limit and architecture."""
    model, script = desk.small_model(), desk.folder / "greedy.py"
    script.write_text(GREEDY)
    arguments = [model, "out.so", "--target", "cuda:sm_80,sm_90", "--shape", "x:19200,4"]
    found = desk.build(*arguments, needed="307200 bytes", wrap=[sys.executable, str(script)])
    names_limit = "sm_80 allows" in found["message"]
    return {**found, "ok": found["ok"] and names_limit, "names_limit": names_limit}


def truncated_library(desk: Desk) -> dict:
    """A library that is cut short is not loaded, wherever it was cut."""
    whole = desk.folder / "whole.so"
    done = desk.bench.cli("build", desk.example, "-o", whole, "--target", "cuda:sm_80", *SHAPE, timeout=1200)
    if done.returncode:
        return {"error": done.stderr[-400:]}
    content = whole.read_bytes()
    results = []
    for share in (0.999, 0.9, 0.6, 0.3, 0.05):
        cut = desk.folder / "cut.so"
        cut.write_bytes(content[: int(len(content) * share)])
        results.append(desk.judge(["run", cut], FAILED, "cut.so"))
    worst = next((r for r in results if not r["ok"]), results[0])
    return {**worst, "ok": all(r["ok"] for r in results), "messages": sorted({r["message"] for r in results})}


CASES = {
    "sm_999": unknown_architecture,
    "no-nvcc": no_nvcc,
    "300-kb-shared": too_much_shared_memory,
    "truncated-library": truncated_library,
}


def path_without_nvcc(folder: Path) -> str:
    """Return a PATH that has the C++ compiler and no nvcc."""
    tools = folder.parent / f"{folder.name}-tools"
    tools.mkdir(exist_ok=True)
    for tool in ("g++", "gcc", "cc", "as", "ld", "sh", "env"):
        found = shutil.which(tool)
        if found and not (tools / tool).exists():
            (tools / tool).symlink_to(found)
    return str(tools)


def has_wheel_nvcc() -> bool:
    """Is nvcc among this environment's Python packages?"""
    import importlib.util

    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations or () if found else ()
    return any(Path(folder).glob("*/bin/nvcc") for folder in folders)
