"""C: whole nets as Relay text agree with what Relay computed, and are read within a second."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .bench import Bench, Verdict

WITH_OUTPUTS = ("mlp", "dqn", "squeezenet", "dcgan", "resnet18")
WITHOUT_OUTPUTS = ("lstm", "densenet", "vgg11")
LARGEST = "densenet"
TOLERANCE = 1e-4
"""Of the spread of an output."""
MOST_SECONDS = 1.0


def point(bench: Bench) -> Verdict:
    folder = str(bench.shared / "relay_nets")
    results = bench.items(
        "C",
        (*WITH_OUTPUTS, *WITHOUT_OUTPUTS),
        lambda name: bench.child("relay_nets:check", folder, name, timeout=900),
    )
    bad = [name for name, r in results.items() if "error" in r or not r["difference"] <= TOLERANCE]
    bad += [name for name, r in results.items() if r.get("same_argmax") is False]
    read = results.get(LARGEST, {}).get("read_s", 0.0)
    worst = max((r.get("difference", np.inf) for r in results.values()), default=0.0)
    text = (
        f"{len(results) - len(set(bad))} of {len(results)} nets agree, largest difference {worst:.1e} of the "
        f"spread; wrong: {', '.join(sorted(set(bad))) or 'none'}; "
        f"{LARGEST} parsed and converted in {read:.2f} s"
    )
    return Verdict(not bad and read < MOST_SECONDS, text, results)


def value(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Draw an input or parameter by its name, as the outputs on disk were made."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = rng.standard_normal(shape).astype("float32")
    if name.endswith("var"):
        drawn = np.abs(drawn) * 0.1 + 0.5
    elif name.endswith("gamma"):
        drawn = 1 + 0.1 * drawn
    elif not is_input(name):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        drawn = drawn * (1 / np.sqrt(fan) if fan > 1 else 0.1)
    return drawn.astype(dtype)


def is_input(name: str) -> bool:
    return name == "data" or name.startswith("input")


def values(program) -> dict[str, np.ndarray]:
    """Draw everything that ``@main`` takes."""
    params = program.functions["main"].params
    return {p.name: value(p.name, p.type.shape, p.type.dtype) for p in params}


def load(folder: str, name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a net with its parameters bound, and its inputs."""
    from tvmpass.frontends.relay.load import load_relay
    from tvmpass.frontends.relay.parser import parse

    path = Path(folder) / f"{name}.relay"
    drawn = values(parse(path.read_text(encoding="utf-8"), path.name))
    inputs = {key: array for key, array in drawn.items() if is_input(key)}
    return load_relay(path, params={k: v for k, v in drawn.items() if k not in inputs}), inputs


def check(folder: str, name: str) -> dict[str, Any]:
    """Build one net and compare it with Relay's outputs, or with its unoptimised form."""
    import tvmpass

    mod, inputs = load(folder, name)
    found = list(tvmpass.build(mod, target="llvm").run(inputs))
    kept = Path(folder) / f"{name}.outputs.npz"
    if kept.is_file():
        with np.load(kept) as arrays:
            wanted = [arrays[key] for key in arrays.files]
    else:
        wanted = unoptimised(mod, inputs)
    differences = [spread_difference(a, b) for a, b in zip(found, wanted, strict=True)]
    return {
        "difference": max(differences),
        "against": "Relay" if kept.is_file() else "unoptimised",
        "same_argmax": all(bool((a.argmax(-1) == b.argmax(-1)).all()) for a, b in zip(found, wanted)),
        "read_s": reading_time(folder, name),
        "characters": (Path(folder) / f"{name}.relay").stat().st_size,
    }


def unoptimised(mod, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a module as stock TVM compiles it, without any rule or schedule of ours."""
    import tvm
    from tvm import relax

    executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(inputs[p.name]) for p in mod["main"].params))
    return [result.numpy()] if hasattr(result, "numpy") else [item.numpy() for item in result]


def spread_difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference over the spread of what is wanted."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype or not np.isfinite(found).all():
        return float("inf")
    spread = float(wanted.max() - wanted.min())
    return float(np.abs(found.astype("float64") - wanted).max()) / (spread or 1.0)


def reading_time(folder: str, name: str, rounds: int = 3) -> float:
    """Return the best time to parse and convert a text, in seconds."""
    from tvmpass.frontends.relay.convert import convert
    from tvmpass.frontends.relay.parser import parse

    text = (Path(folder) / f"{name}.relay").read_text(encoding="utf-8")
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        convert(parse(text, name))
        times.append(time.perf_counter() - begin)
    return round(min(times), 3)
