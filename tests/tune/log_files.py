"""Record files made by hand, for the tests of what reads and writes them."""

from __future__ import annotations

import json
from pathlib import Path

import tvm

from tests.cost.records import kernel_line, vector
from tvmpass.catalogue import recipe_version
from tvmpass.compile.kernel_key import record_key
from tvmpass.compile.record_files import dump_trace
from tvmpass.cost.dataset import header

CLASS = "x86-64-v3-t1"


def kernel(number: int) -> str:
    """Return the key of a made-up kernel."""
    return f"{number:064x}"


def record(number: int = 1, recipe: str | None = "tile-matmul{m=6}", **changes) -> dict:
    """Return the line of a candidate for kernel ``number`` that beat candidate 0 by half."""
    entry = {
        "kernel_key": kernel(number),
        "kind": "matmul",
        "recipe": recipe,
        "trace": None,
        "recipe_version": recipe_version("matmul", "llvm"),
        "role": "candidate",
        "status": "ok",
        "median_us": 5.0,
        "samples_us": [4.9, 5.0, 5.1],
        "candidate0_us": 10.0,
        "wins": 1.0,
        "features": [round(float(v), 3) for v in vector(1000.0 + number, 10.0)],
        "host": "somewhere",
        "mcpu": "haswell",
        "cause": None,
        "spent_s": 0.5,
        "worker": "somewhere",
        "checked": "reference",
        **changes,
    }
    text = entry["recipe"] or (dump_trace(entry["trace"]) if entry["trace"] else "fallback")
    key = record_key(entry["kernel_key"], text, entry["recipe_version"])
    return {"key": key, **entry, **({"key": changes["key"]} if "key" in changes else {})}


def failed(number: int = 1, recipe: str = "tile-matmul{m=8}", status: str = "crash") -> dict:
    """Return the line of a candidate that failed."""
    return record(number, recipe, status=status, median_us=None, samples_us=[], features=None, cause="why")


def candidate0(number: int = 1) -> dict:
    """Return the line of the library's own choice."""
    return record(number, "tile-matmul{m=4}", role="candidate0", median_us=10.0, wins=None)


def train_line(name: str) -> dict:
    """Return a line of training data."""
    return kernel_line(name, vector(1000.0, 0.0))


def alternative(group: str, name: str, time: float = 1.0) -> dict:
    """Return a fusion alternative."""
    return {"group_key": group, "alternative": name, "kernel_keys": ["a"], "median_us": time}


def write(path: Path, *lines: dict | str, device_class: str | None = CLASS, **head) -> Path:
    """Write a record file; a line that is a text is written as it is."""
    first = {
        **header(str(device_class), tvm.__version__, "0.0.0", host={}),
        **head,
        "device_class": device_class,
    }
    texts = [line if isinstance(line, str) else json.dumps(line) for line in [first, *lines]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def entries(path: Path) -> list[dict]:
    """Return the lines of a record file below its header."""
    import gzip

    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()][1:]
