"""Check a built candidate and time it against candidate 0, wherever it is loaded.

The same code serves this machine and an RPC server: ``load`` brings a library
there and returns its module, ``device`` is where the arguments go.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from .build_job import SYMBOL
from .checks import Arguments, Case, compare, read_cases
from .timing import SCREENING, THOROUGH, Side, alternate

Load = Callable[[Path], Any]

PLACES = 3
"""Places in memory at which each side's code is timed on a CPU."""

DEPTHS = 8
"""Places on the stack from which a kernel is called in turn."""


def check_and_time(
    folder: Path,
    library: Path,
    library0: Path,
    load: Load,
    device: Any,
    thorough: bool,
    guarded: bool,
    copies: Mapping[Path, Sequence[Path]] | None = None,
) -> dict[str, Any]:
    """Return the fields of a `Measurement` that running the candidate gives, as JSON values.

    ``folder`` holds the workload's cases; ``library0`` is candidate 0.  Both sides
    are timed on the very same arguments.  ``guarded`` puts guards around them.
    ``copies`` are further files of a library's content, timed in turn with it: where
    code lies in memory makes small kernels up to a third faster or slower, and in
    an artifact it will lie elsewhere.
    """
    cases = read_cases(folder)
    candidate, candidate0 = (load(path) for path in (library, library0))
    for case in cases:
        if thorough or not case.thorough:
            wrong = _check(case, candidate, candidate0, device, guarded)
            if wrong is not None:
                return {"status": "wrong", "cause": wrong}
    timed = Arguments(cases[0], device, guarded)
    more, more0 = ([load(path) for path in (copies or {}).get(side, ())] for side in (library, library0))
    side = _side([candidate, *more], 0, device, timed)
    side0 = _side([candidate0, *more0], 1, device, timed)
    found = alternate(side, side0, THOROUGH if thorough else SCREENING)
    wrong = _check_again(cases[0], candidate, timed)
    if wrong is not None:
        return {"status": "wrong", "cause": wrong}
    return {
        "status": "ok",
        "median_us": found.median_us,
        "samples_us": found.samples_us,
        "candidate0_us": found.median0_us,
        "wins": found.wins,
    }


def _check(case: Case, candidate: Any, candidate0: Any, device: Any, guarded: bool) -> str | None:
    """Run a candidate once on fresh arguments; return one line where it is wrong."""
    if case.expected:
        expected = case.results()
    else:
        expected = _run(case, candidate0, device, guarded).outputs()
    arguments = _run(case, candidate, device, guarded)
    return arguments.damage() or compare(case, expected, arguments.outputs())


def _run(case: Case, module: Any, device: Any, guarded: bool) -> Arguments:
    arguments = Arguments(case, device, guarded)
    module[SYMBOL](*arguments.values)
    return arguments


def _check_again(case: Case, candidate: Any, timed: Arguments) -> str | None:
    """Is a candidate right after thousands of runs as well? Races show here."""
    if any(argument.role == "inout" for argument in case.arguments):
        return None  # each run went on from the last one's results
    before = timed.outputs()
    candidate[SYMBOL](*timed.values)
    if (damage := timed.damage()) is not None:
        return f"{damage}, after many runs"
    if case.expected and (gap := compare(case, case.results(), timed.outputs())) is not None:
        return f"{gap}, after many runs"
    return compare(case, before, timed.outputs())


def _side(modules: Sequence[Any], shift: int, device: Any, arguments: Arguments) -> Side:
    """Return what times a kernel, each slot on the next of its copies, from another place on the stack.

    ``shift`` lets the pairing of both sides' copies change from cycle to cycle.
    Where the stack begins is drawn once per process and the same in all its
    children: how the small arrays of a kernel lie in cache lines there makes it up
    to a quarter slower, for a whole session, if it is always called from one place.
    """
    evaluators: dict[tuple[int, int, int], Any] = {}
    slots = itertools.count()

    def side(number: int, repeats: int) -> list[float]:
        slot = next(slots)
        cycle, place = divmod(slot, len(modules))
        key = (place + shift * cycle) % len(modules), number, repeats
        if key not in evaluators:
            module = modules[key[0]]
            evaluators[key] = module.time_evaluator(SYMBOL, device, number=number, repeat=repeats)
        timed = _called_at(slot % DEPTHS, lambda: evaluators[key](*arguments.values))
        return [seconds * 1e6 for seconds in timed.results]

    return side


def _called_at(depth: int, call: Callable[[], Any]) -> Any:
    """Call something further down on the stack; unlike a call in Python, `map` takes a frame there."""
    return call() if depth == 0 else next(map(lambda below: _called_at(below, call), (depth - 1,)))


def run_here(folder: str, library: str, library0: str, kind: str, thorough: bool) -> dict[str, Any]:
    """Check and time a candidate on this machine's ``kind`` of device: called in a child."""
    device = tvm.cpu()
    if kind == "cuda":
        from tvmpass.compile.cuda_runtime import ensure_cuda_runtime

        ensure_cuda_runtime()
        device = tvm.cuda(0)

    def load(path: Path) -> Any:
        return tvm.runtime.load_module(str(path))

    paths = Path(library), Path(library0)
    with tempfile.TemporaryDirectory() as scratch:
        copies = {path: _copies(path, Path(scratch, str(i))) for i, path in enumerate(paths)}
        copies = copies if kind == "cpu" else {}
        return check_and_time(Path(folder), *paths, load, device, thorough, guarded=True, copies=copies)


def _copies(path: Path, base: Path) -> list[Path]:
    """Copy a library: the loader takes the same file to the same place."""
    return [Path(shutil.copyfile(path, f"{base}-{i}.so")) for i in range(PLACES - 1)]


def find_device(arches: list[str]) -> dict[str, Any]:
    """Return what record files note about this machine's CUDA device: called in a child.

    ``fault`` says why it cannot run code for ``arches``.
    """
    from tvmpass.compile.cuda_probe import probe
    from tvmpass.compile.cuda_runtime import runs_on

    found = probe()
    if not found.answers:
        return {"fault": f"no CUDA device answers on this machine, {found.reason}"}
    device = tvm.cuda(0)
    if not runs_on(arches, str(device.compute_version)):
        return {"fault": f"this machine's device is {found.reason}"}
    return {"sms": int(device.multi_processor_count), "name": found.name}
