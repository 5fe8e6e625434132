"""Compare the tuned model with the untuned one, alternated, in a process of its own.

Kernels that won alone may still lose in the model, where others share the caches.
Tuned code may also crash, so nothing of it is run in the session's process.

    python -m tvmpass.tune.model_check TUNED.so UNTUNED.so SECONDS SEED

prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvmpass.compile.build import build
from tvmpass.compile.context import PassContext
from tvmpass.compile.target import missing_features, required_features
from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.options import CONFIG_PREFIX, Options

from .result import ModelCheck

SECONDS = 8.0
"""How long the two are alternated."""
LEAST_ROUNDS, MOST_ROUNDS = 11, 1001
TIMEOUT_S = 180.0
SYMBOLIC = 4
"""Extent of an open dimension, as kernels are tuned at it."""
_MARK = "model-check "


def check_model(
    mod: Any,
    target: tvm.target.Target,
    options: Options,
    logs: str | os.PathLike,
    *,
    params: Mapping[str, Any] | None = None,
    rules: Sequence[Any] | None = None,
    without: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> ModelCheck:
    """Build ``mod`` with the records in ``logs`` and without, and time both.

    A fault (a crash, no C++ compiler, a target that is not this machine) is a
    `ModelCheck` that says so, never an exception.
    """
    here = _runs_here(target)
    if here is not None:
        return ModelCheck(reason=here)
    with tempfile.TemporaryDirectory(prefix="tvmpass-check-") as folder:
        paths = []
        try:
            for name, where in (("tuned", str(logs)), ("untuned", "off")):
                if progress is not None:
                    progress(f"building the model {name}")
                with _context(options, where):
                    library = build(mod, target, params=params, rules=rules, without=without)
                paths.append(str(Path(folder) / f"{name}.so"))
                library.export(paths[-1])
        except TvmpassError as error:
            return ModelCheck(reason=str(error))
        if progress is not None:
            progress("timing the model, tuned against untuned")
        return _in_child(paths, options)


def _runs_here(target: tvm.target.Target) -> str | None:
    """Say why code for ``target`` cannot be run on this machine, None where it can."""
    kind = target.kind.name
    if kind == "llvm":
        missing = missing_features(required_features(target))
        return f"this CPU lacks {', '.join(missing[:4])}" if missing else None
    try:
        there = bool(tvm.device(kind, 0).exist)
    except Exception as error:  # TVM raises several classes where its runtime for the device is missing
        return f"no {kind} device answers on this machine: {last_line(error)}"
    return None if there else f"no {kind} device answers on this machine"


def _context(options: Options, logs: str):
    """Return a PassContext that reads as ``options``, with ``logs`` for its records."""
    config = {key: getattr(options, spec.name) for key, spec in Options.keys().items()}
    current = dict(tvm.transform.PassContext.current().config)
    known = set(tvm.transform.PassContext.list_configs())
    theirs = {k: v for k, v in current.items() if k in known and not k.startswith(CONFIG_PREFIX)}
    config = {**theirs, **config, "tvmpass.tuning_logs": logs, "tvmpass.verify": "structure"}
    return PassContext(
        opt_level=options.level,
        required_pass=options.required,
        disabled_pass=options.disabled,
        config=config,
    )


def _in_child(paths: Sequence[str], options: Options) -> ModelCheck:
    command = [sys.executable, "-m", "tvmpass.tune.model_check", *paths, str(SECONDS), str(options.seed)]
    root = str(Path(__file__).parents[2])
    inherited = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "TVM_NUM_THREADS": str(options.threads),
        "PYTHONPATH": os.pathsep.join(filter(None, (root, inherited))),
    }
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which ends the child itself
    )
    try:
        output, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return ModelCheck(reason=f"no end within {TIMEOUT_S:.0f} s")
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    for line in output.splitlines():
        if line.startswith(_MARK):
            return ModelCheck(**json.loads(line.removeprefix(_MARK)))
    tail = [line.strip() for line in errors.splitlines() if line.strip()][-1:]
    return ModelCheck(
        reason=f"the process that times it ended with {child.returncode}: {' '.join(tail)[-200:]}"
    )


def compare(paths: Sequence[str], seconds: float, seed: int) -> ModelCheck:
    """Load two artifacts, run both on the same inputs, and alternate them."""
    from tvmpass.compile.artifact import load_artifact

    libraries = [load_artifact(path) for path in paths]
    generator = np.random.default_rng(seed)
    arrays = {entry.name: _draw(entry, generator) for entry in libraries[0].input_info}
    wanted, got = libraries[1].run(arrays), libraries[0].run(arrays)
    calls = []
    for library in libraries:
        device = tvm.cpu() if library.metadata.kind == "llvm" else tvm.device(library.metadata.kind, 0)
        run = library.vm()["main"]
        tensors = [tvm.runtime.tensor(a, device) for a in library.check_inputs(arrays)]
        calls.append(_synchronous(run, tensors, device))
    tuned, untuned = _alternate(calls, seconds)
    ratio = statistics.median(a / b for a, b in zip(tuned, untuned))
    return ModelCheck(
        tuned_ms=round(statistics.median(tuned) * 1e3, 5),
        untuned_ms=round(statistics.median(untuned) * 1e3, 5),
        ratio=round(ratio, 4),
        rounds=len(tuned),
        difference=max((_difference(a, b) for a, b in zip(got, wanted)), default=0.0),
    )


def _synchronous(run, tensors, device):
    def call() -> None:
        run(*tensors)
        device.sync()

    return call


def _alternate(calls, seconds: float) -> list[list[float]]:
    """Time the calls in turn, in s; the order is reversed in every second round."""
    for call in [*calls, *calls]:
        call()
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() < end):
        order = list(enumerate(calls))
        for index, call in order if rounds % 2 == 0 else reversed(order):
            start = time.perf_counter()
            call()
            samples[index].append(time.perf_counter() - start)
        rounds += 1
    return samples


def _draw(entry, generator: np.random.Generator) -> np.ndarray:
    from tvmpass.compile.verify_inputs import draw_array

    shape = [SYMBOLIC if isinstance(dim, str) else dim for dim in entry.shape or ()]
    return draw_array(shape, entry.dtype or "float32", generator, "normal")


def _difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the greatest difference over the greatest absolute value; 0 where both are NaN."""
    if got.shape != wanted.shape:
        return float("inf")
    if got.dtype.kind not in "fiub" or not got.size:
        return 0.0
    a, b = got.astype("float64"), wanted.astype("float64")
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale


def main(arguments: Sequence[str]) -> None:
    """Compare the two artifacts that the command line names."""
    from dataclasses import asdict

    from tvmpass.core.quiet import quiet

    tuned, untuned, seconds, seed = arguments
    with quiet():
        result = compare((tuned, untuned), float(seconds), int(seed))
    print(_MARK + json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
