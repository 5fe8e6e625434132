"""What a workload's candidates must compute: the unscheduled kernel, run once, in a child."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm

from tvmpass.catalogue import finish
from tvmpass.compile.schedule import is_schedulable
from tvmpass.compile.target import parse_target
from tvmpass.compile.verify_numeric import MAX_SCALAR_OPS
from tvmpass.core.analysis.types import EXAMPLE_EXTENT

from .build_job import SYMBOL, compile_library
from .checks import Arguments, Case, write_cases, write_inputs, write_results
from .drawing import arguments_of, draw, scalar_operations, symbols_of, tolerance_scale
from .workload_file import Unit, read_workload

MAX_ARGUMENT_BYTES = 2 << 30
"""Of one set of arguments; a kernel with more is not measured."""

FIRST_EXTENT = 3
"""Symbolic dimensions of the second set: not the extent that is timed, and odd."""
MORE_EXTENTS = (1, 17)
"""Those of thorough sets: one, and beyond the widest vector."""


def make_cases(folder: str, tame: bool) -> dict[str, Any]:
    """Draw the sets of arguments of the workload in ``folder`` and compute their results.

    The first set is the one that is timed.  A set with too much work for the
    unscheduled kernel gets no results: candidate 0 is its reference.  ``tame``
    draws numbers near one, for a kernel that others make crash.
    """
    place = Path(folder)
    unit = read_workload(place)
    run = _unscheduled(unit, place)
    symbols = symbols_of(unit.function)
    made: list[Case] = []
    for name, kind, extent, thorough in _wanted(unit, bool(symbols), tame):
        case = _case(unit, place, name, dict.fromkeys(symbols, extent), thorough)
        size = sum(argument.bytes for argument in case.arguments)
        if made and (size > MAX_ARGUMENT_BYTES or not case.expected):
            continue  # only the first set is needed
        if size > MAX_ARGUMENT_BYTES:
            return {"refused": f"its arguments take {size / (1 << 30):.1f} GiB"}
        write_inputs(case, draw(unit.function, list(case.arguments), kind, unit.options.seed))
        if case.expected:
            arguments = Arguments(case, tvm.cpu(), guarded=True)
            run(*arguments.values)
            write_results(case, arguments.outputs())
        made.append(case)
    write_cases(made, place)
    return {
        "checked": "reference" if made[0].expected else "candidate0",
        "bytes": max(sum(argument.bytes for argument in case.arguments) for case in made),
        "operations": scalar_operations(unit.function, dict.fromkeys(symbols, EXAMPLE_EXTENT)),
    }


def _wanted(unit: Unit, symbolic: bool, tame: bool):
    kind = "tame" if tame else "normal"
    yield "timed", kind, EXAMPLE_EXTENT, False
    if symbolic:
        yield f"extent-{FIRST_EXTENT}", kind, FIRST_EXTENT, False
        for extent in MORE_EXTENTS:
            yield f"extent-{extent}", kind, extent, True
    if not tame and not unit.options.fast_math:
        yield "special", "special", EXAMPLE_EXTENT, True


def _case(unit: Unit, folder: Path, name: str, extents: Mapping[Any, int], thorough: bool) -> Case:
    return Case(
        name,
        tuple(arguments_of(unit.function, extents)),
        scalar_operations(unit.function, extents) <= MAX_SCALAR_OPS,
        thorough,
        tolerance_scale(unit.function),
        folder,
    )


def _unscheduled(unit: Unit, folder: Path):
    """Compile the kernel as it is for this machine's CPU, whatever the target."""
    here = parse_target("llvm", 1)
    function = unit.function
    if is_schedulable(function):
        function = finish(function, here, unit.options)
    library = folder / "reference.so"
    own = Unit(function, here, unit.options, unit.device_class, {})
    with own.context():
        compile_library(function, own, library)
    return tvm.runtime.load_module(str(library))[SYMBOL]
