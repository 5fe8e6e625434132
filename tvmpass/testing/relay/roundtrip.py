"""Bring random programs around: tree, text or JSON, tree, Relax, outputs; against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tvmpass.compile.build import build
from tvmpass.compile.context import PassContext
from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.json_reader import read_json
from tvmpass.frontends.relay.parser import parse

from .interpreter import interpret
from .json_writer import write_json
from .printer import print_module
from .programs import Program

RELATIVE = 2e-5
"""Float results may differ by this much of the largest value of the output."""

MOST = "most"
"""The level that stands for level 3 with every legal fusion, and channels last."""

_MOST = {"tvmpass.fusion": "always", "tvmpass.layout": "NHWC"}


@dataclass(frozen=True)
class Outcome:
    """What a program gave: ``problem`` is empty where all agrees.

    ``cancelled`` says that a result agrees only by the measure of the largest
    value on the way to it: large values were subtracted.
    """

    problem: str = ""
    cancelled: bool = False


def sample(strategy: SearchStrategy[Program], count: int, start: int) -> list[Program]:
    """Draw ``count`` programs that are all different, the same ones for the same ``start``."""
    found: dict[str, Program] = {}
    while len(found) < count:
        _draw(strategy, count, start + len(found), found)
    return list(found.values())[:count]


def _draw(strategy: SearchStrategy[Program], count: int, start: int, found: dict[str, Program]) -> None:
    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(program: Program) -> None:
        found.setdefault(print_module(program.module), program)

    keep()


def from_text(program: Program, comments: bool = True) -> tuple[ast.Module, str]:
    """Return the program that the parser makes of its text, and what is wrong with it."""
    text = print_module(program.module, program.types if comments else None)
    module = parse(text, "random.relay")
    return module, _other(program, module, "text")


def from_json(program: Program) -> tuple[ast.Module, str]:
    """Return the program that the JSON reader makes of its JSON, and what is wrong with it."""
    module = read_json(write_json(program.module, program.types), "random.json")
    return module, _other(program, module, "JSON")


def _other(program: Program, module: ast.Module, form: str) -> str:
    """Say so where a program that was read is not the one that was written."""
    # What the printer makes of a tree depends on all of it, and on what is shared.
    same = print_module(module) == print_module(program.module)
    return "" if same else f"the {form} is read as another program"


def outcome(program: Program, module: ast.Module, level: int | str, start: int) -> Outcome:
    """Convert and run ``module``, which should be ``program``, on random inputs; compare."""
    inputs = program.inputs(start)
    largest = 1.0

    def note(_: ast.Expression, value: Any) -> None:
        nonlocal largest
        for array in leaves(value):
            if array.dtype.kind == "f" and array.size:
                largest = max(largest, float(np.abs(array).max()))

    wanted = leaves(interpret(program.module, inputs, observe=note))
    found = execute(convert(module), leaves(tuple(inputs)), level)
    problem = difference(wanted, found)
    if problem and not difference(wanted, found, largest):
        return Outcome(cancelled=True)
    return Outcome(problem)


def execute(module: tvm.IRModule, inputs: Sequence[np.ndarray], level: int | str) -> list[np.ndarray]:
    """Build a converted module at a level (or `MOST`), run it on the tensors of its inputs."""
    names = [param.name for param in module["main"].params]
    number, config = (3, _MOST) if isinstance(level, str) else (level, {})
    with PassContext(opt_level=number, config=config):
        library = build(module, target="llvm")
    return list(library.run(dict(zip(names, inputs))))


def leaves(value: Any) -> list[np.ndarray]:
    """Return the arrays of nested tuples, in order; functions are left out."""
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, np.ndarray) else []


def difference(wanted: Sequence[np.ndarray], found: Sequence[np.ndarray], largest: float = 0.0) -> str:
    """Say how outputs differ; empty where they agree.

    Integers and truths must be equal, floats within `RELATIVE` of the largest
    value of the output, or of ``largest``.
    """
    if len(wanted) != len(found):
        return f"{len(found)} outputs, not {len(wanted)}"
    for place, (right, got) in enumerate(zip(wanted, found)):
        if (right.shape, right.dtype) != (got.shape, got.dtype):
            kinds = f"{got.shape} {got.dtype}, not {right.shape} {right.dtype}"
            return f"output {place} is {kinds}"
        if right.dtype.kind != "f":
            if not np.array_equal(right, got):
                return f"output {place}: {np.sum(right != got)} of {right.size} integers differ"
        elif not _close(right, got, largest):
            worst = np.abs(right.astype("float64") - got).max()
            return f"output {place} differs by {worst:.3g}, its largest value is {np.abs(right).max():.3g}"
    return ""


def _close(right: np.ndarray, found: np.ndarray, largest: float) -> bool:
    finite = np.isfinite(right)
    scale = max(1.0, largest, float(np.abs(right[finite]).max(initial=0)))
    exact = RELATIVE if right.dtype != np.float16 else 2.0**-10
    return np.allclose(found, right, rtol=0, atol=exact * scale, equal_nan=True)
