"""Lines of record files, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm

from tvmpass.catalogue import recipe_version
from tvmpass.compile.kernel_key import record_key
from tvmpass.compile.records import TuningRecord, tuning_record
from tvmpass.cost.dataset import header

CLASS = "x86-64-v3-t1"
KEY = "ab" * 32
RECIPE = "tile-matmul vectorize-inner"


def line(**changes: Any) -> dict[str, Any]:
    """Return a candidate's line that a build would use, with ``changes``."""
    entry: dict[str, Any] = {
        "kernel_key": KEY,
        "kind": "matmul",
        "recipe": RECIPE,
        "trace": None,
        "recipe_version": recipe_version("matmul", "llvm"),
        "role": "candidate",
        "status": "ok",
        "median_us": 8.0,
        "samples_us": [7.5, 8.0, 8.5],
        "candidate0_us": 10.0,
        "features": [1.0, 2.5],
        "wins": 1.0,
        "cause": None,
        "spent_s": 0.5,
        "worker": "here",
        "checked": "reference",
        **changes,
    }
    text = entry["recipe"] or json.dumps(entry["trace"], separators=(",", ":"))
    entry.setdefault("key", record_key(entry["kernel_key"], text, entry["recipe_version"]))
    return entry


def record(**changes: Any) -> TuningRecord:
    """Return the same as a record."""
    return tuning_record(line(**changes))


def write(path: Path, *lines: Any, device_class: str = CLASS, **head: Any) -> Path:
    """Write a record file; texts are written as they are."""
    first = {**header(device_class, tvm.__version__, "test", host={}), **head}
    shown = [text if isinstance(text, str) else json.dumps(text) for text in (first, *lines)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(shown) + "\n", encoding="utf-8")
    return path
