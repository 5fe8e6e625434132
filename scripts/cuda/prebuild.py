#!/usr/bin/env python3
"""Build everything that is checked and timed on a GPU host, so that it needs no compiler there.

    python -m scripts.cuda.prebuild --out build/cuda --models FOLDER

writes one exported library per case, size and fusion mode, the models with
inputs and the CPU's outputs, and ``index.json``, which says what each is.  What
does not build is named there and on stderr, and the exit code is 1; the others
are still usable.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.acceptance import models
from scripts.cuda.cases import LARGE, SMALL, cases

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_TARGET = "cuda:sm_80,sm_90"
INDEX = "index.json"
FUSION = {"fused": "always", "unfused": "never"}
TOLERANCE = {"line": 1e-4, "noise": 1e-2}
"""Of a model on a line of text, and on noise, where a detector's output is hardly above rounding."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cuda", help="folder to fill")
    parser.add_argument("--target", default=DEFAULT_TARGET, help=f"default {DEFAULT_TARGET}")
    parser.add_argument("--models", type=Path, help="folder with the three OCR models; else only the example")
    parser.add_argument("--only", action="append", default=[], help="only items whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default 2)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    named = dict(todo(arguments.out, arguments.target, arguments.models))
    chosen = {k: v for k, v in named.items() if not arguments.only or any(t in k for t in arguments.only)}
    begin, items, failed = time.monotonic(), [], []
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for number, item in enumerate(pool.imap_unordered(attempt, chosen.items()), 1):
            (failed if "error" in item else items).append(item)
            state = item.get("error") or f"{item['kernels']} kernels"
            took = time.monotonic() - begin
            print(f"[{took:6.1f} s] {number}/{len(chosen)} {item['name']}: {state}", file=sys.stderr)
    items.sort(key=lambda item: list(chosen).index(item["name"]))
    document = {"schema": 1, "target": arguments.target, "items": items, "failed": failed}
    (arguments.out / INDEX).write_text(json.dumps(document, indent=1) + "\n")
    print(f"{arguments.out}: {len(items)} libraries, {len(failed)} failed")
    return 1 if failed else 0


def todo(out: Path, target: str, folder: Path | None) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield what is to be built: a name, and the work."""
    for size in (SMALL, LARGE):
        for name in cases(size):
            for mode in FUSION:
                yield f"{name}.{size}.{mode}", partial(build_case, out, target, name, size, mode)
    for name, path in model_files(folder).items():
        yield f"model-{name}", partial(build_model, out, target, name, str(path))


def attempt(task: tuple[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Do one piece of work; what goes wrong becomes part of the result."""
    name, work = task
    begin = time.monotonic()
    try:
        made = work()
    except Exception as error:  # one case that cannot be built must not cost the others
        made = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[-400:]}"}
    return {"name": name, **made, "build_s": round(time.monotonic() - begin, 1)}


def build_case(out: Path, target: str, name: str, size: str, mode: str) -> dict[str, Any]:
    """Build and export one case; return its entry of the index."""
    import tvmpass

    case = cases(size)[name]
    with tvmpass.PassContext(config={"tvmpass.fusion": FUSION[mode]}):
        library = tvmpass.build(case.module(), target=target)
    file = f"{name}.{size}.{mode}.so"
    library.export(out / file)
    return {
        "case": name,
        "family": case.family,
        "dtype": case.dtype,
        "size": size,
        "fusion": mode,
        "file": file,
        "flops": case.flops,
        "bytes": case.bytes(),
        **kernel_facts(library.report.to_json()),
    }


def build_model(out: Path, target: str, name: str, path: str) -> dict[str, Any]:
    """Build a model for CUDA and for the CPU; keep inputs and the CPU's outputs beside it."""
    import tvmpass

    shape = models.MODELS[name][1]
    module = tvmpass.load(path, shapes={"x": shape})
    library = tvmpass.build(module, target=target)
    file = f"model-{name}.so"
    library.export(out / file)
    reference = tvmpass.build(tvmpass.load(path, shapes={"x": shape}), target="llvm")
    arrays: dict[str, np.ndarray] = {}
    for label, array in (("line", models.text_lines(shape)[0]), ("noise", models.noise(shape))):
        arrays[f"{label}/in"] = array
        (arrays[f"{label}/out"],) = reference.run({"x": array})
    np.savez(out / f"model-{name}.npz", **arrays)
    return {
        "model": name,
        "file": file,
        "arrays": f"model-{name}.npz",
        "tolerance": TOLERANCE,
        **kernel_facts(library.report.to_json()),
    }


def model_files(folder: Path | None) -> dict[str, Path]:
    """Return the models that are there: those of ``folder``, else the example."""
    places = [folder] if folder else [ROOT / "examples" / "models"]
    found = {name: place / file for place in places for name, (file, _) in models.MODELS.items()}
    return {name: path for name, path in found.items() if path.exists()}


def kernel_facts(report: dict[str, Any]) -> dict[str, Any]:
    """Return number, launches and resources of a library's kernels, from its report."""
    kernels = report["kernels"]
    return {
        "kernels": len(kernels),
        "launches": sum(k["calls"] for k in kernels),
        "schedules": [k["schedule"] for k in kernels],
        "resources": [k["cuda"] for k in kernels],
    }


if __name__ == "__main__":
    raise SystemExit(main())
