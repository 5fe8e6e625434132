"""Schedule a kernel as a candidate says: by a recipe, by a trace, or by the fallback.

Builds and tuning sessions come here, so that what is measured is what is built.
What a candidate says may come from a file: it is bounded before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.catalogue import apply_recipe, cuda_fallback, finish, parse_recipe
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.errors import UsageError, last_line
from tvmpass.core.options import Options
from tvmpass.core.rule import ScheduleRule

from .trace import apply_trace

STEP_RAISED = RefusalKind("step-raised", "a step of the recipe raised {error}")
RECIPE_UNREADABLE = RefusalKind("recipe-unreadable", "the recipe cannot be read: {reason}")
NOT_SCHEDULABLE = RefusalKind(
    "not-schedulable", "the kernel is written as plain loops: there is no block to schedule"
)
TOO_LARGE = RefusalKind("code-too-large", "{what} is {found}; at most {allowed} is compiled")

MAX_RECIPE = 2000
"""Characters of a recipe."""

MAX_OPTION = 1 << 16
"""Largest value of a step's option."""

MAX_LANES = 1024
"""Elements of a vectorised loop."""

MAX_COPIES = 1 << 14
"""Stores of a kernel, those of unrolled loops written out."""


def apply_candidate(
    function: tirx.PrimFunc,
    recipe: str | None,
    trace: str | None,
    target: tvm.target.Target,
    options: Options,
    steps: Sequence[ScheduleRule] = (),
) -> tirx.PrimFunc | Refusal:
    """Return an unscheduled kernel scheduled and finished, or why the candidate cannot be.

    ``recipe`` is a recipe's text, ``trace`` a trace's JSON text; with neither
    the kernel gets the fallback schedule.  ``steps`` are rules that a recipe may
    name beside the built-in ones.  Never raises for what a candidate says.
    """
    if recipe is None and trace is None:
        return fallback_kernel(function, target, options)[0]
    if not is_schedulable(function):
        return NOT_SCHEDULABLE()
    try:
        made = (
            apply_trace(function, trace)
            if trace is not None
            else _by_recipe(function, str(recipe), target, steps)
        )
        made = made if isinstance(made, Refusal) else _bounded(made)
        return made if isinstance(made, Refusal) else finish(made, target, options)
    except UsageError as error:
        return RECIPE_UNREADABLE(reason=str(error))
    except Exception as error:  # whatever a step raises costs the candidate, and is told
        return STEP_RAISED(error=f"{type(error).__name__}: {last_line(error)}")


def fallback_kernel(
    function: tirx.PrimFunc, target: tvm.target.Target, options: Options
) -> tuple[tirx.PrimFunc, str | None]:
    """Return the kernel with only the mandatory steps, and how, where there is a choice."""
    if target.kind.name == "cuda":
        return cuda_fallback(function, target)
    if is_schedulable(function):
        return finish(function, target, options), None
    return function, None


def is_schedulable(function: tirx.PrimFunc) -> bool:
    """Return True for a kernel in blocks under one root, as TVM's compute definitions give."""
    body = function.body
    return isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root"


def _by_recipe(
    function: tirx.PrimFunc, text: str, target: tvm.target.Target, steps: Sequence[ScheduleRule]
) -> tirx.PrimFunc | Refusal:
    if len(text) > MAX_RECIPE:
        return TOO_LARGE(what="the recipe's text", found=len(text), allowed=MAX_RECIPE)
    parsed = parse_recipe(text, steps)
    for step in parsed.steps:
        for name, value in vars(step).items():
            if isinstance(value, int) and abs(value) > MAX_OPTION:
                return TOO_LARGE(what=f"{step.name}: {name}", found=value, allowed=MAX_OPTION)
    return apply_recipe(parsed, function, target)


def _bounded(function: tirx.PrimFunc) -> tirx.PrimFunc | Refusal:
    """Refuse a schedule whose code would be so large that compiling it does not end."""
    copies, lanes = _extent_of_code(function)
    if lanes > MAX_LANES:
        return TOO_LARGE(what="the longest vector", found=lanes, allowed=MAX_LANES)
    if copies > MAX_COPIES:
        return TOO_LARGE(what="the number of stores, loops unrolled,", found=copies, allowed=MAX_COPIES)
    return function


def _extent_of_code(function: tirx.PrimFunc) -> tuple[int, int]:
    """Return the stores of a scheduled kernel, unrolled loops written out, and its longest vector."""
    longest = 1

    def count(statement: tirx.Stmt) -> int:
        nonlocal longest
        if isinstance(statement, tirx.For):
            times = int(statement.extent) if isinstance(statement.extent, (int, tirx.IntImm)) else 1
            if int(statement.kind) == tirx.ForKind.VECTORIZED:
                longest = max(longest, times)
            unrolled = int(statement.kind) == tirx.ForKind.UNROLLED
            return count(statement.body) * (max(1, times) if unrolled else 1)
        if isinstance(statement, tirx.SeqStmt):
            return sum(map(count, statement.seq))
        if isinstance(statement, s_tir.SBlockRealize):
            return count(statement.block)
        if isinstance(statement, s_tir.SBlock):
            return count(statement.body) + (count(statement.init) if statement.init is not None else 0)
        found: list[tirx.Stmt] = []
        tvm_ffi.structural_walk(statement, [(tirx.BufferStore, found.append)])
        return max(1, len(found))

    return count(function.body), longest
