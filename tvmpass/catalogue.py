"""All rules, in order: the only file that imports the rule packages."""

from __future__ import annotations

import functools
import importlib.metadata
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tvmpass.core.errors import TvmpassError, UsageError, nearest
from tvmpass.core.options import Options
from tvmpass.core.rule import ProposalRule, Rule, ScheduleRule, SimplifyRule

ENTRY_POINTS = "tvmpass.rules"


@functools.cache
def builtin_rules() -> tuple[Rule, ...]:
    """Return one instance of every rule that ships with tvmpass, in order."""
    import tir_passes
    from relay_passes import fusion, layout, recognize, simplify

    packages = (simplify, recognize, layout, fusion, tir_passes)
    return tuple(rule() for package in packages for rule in package.RULES)


@functools.cache
def installed_rules() -> tuple[Rule, ...]:
    """Return the rules that other packages offer through entry points, by name."""
    found: list[Rule] = []
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        try:
            loaded = entry.load()
        except Exception as error:  # other people's code
            raise TvmpassError(f"entry point {entry.name!r}: {type(error).__name__}: {error}") from error
        found.extend(_as_rules(loaded, f"entry point {entry.name!r}"))
    return tuple(found)


def __getattr__(name: str):
    """Re-export the recipes, the fallback and the packing of weights for `tvmpass.compile`."""
    import schedules.cpu.pack
    from tir_passes import cuda_fallback, recipes

    if name == "packing":
        return schedules.cpu.pack.packing
    if name == "cuda_fallback":
        return cuda_fallback.cuda_fallback
    if name in ("apply_recipe", "finish", "parse_recipe", "recipe_version", "recipes"):
        return getattr(recipes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def rules() -> tuple[Rule, ...]:
    """Return all rules a build uses by default: built-in, then third-party."""
    return check_unique((*builtin_rules(), *installed_rules()))


def rules_from_file(path: str | Path) -> tuple[Rule, ...]:
    """Run a Python file and return its ``RULES``. This runs the file's code."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"--rules: no such file: {path}")
    try:
        namespace = runpy.run_path(str(path), run_name="tvmpass_rules")
    except (Exception, SystemExit) as error:  # other people's code
        raise TvmpassError(f"--rules {path}: {type(error).__name__}: {error}") from error
    if "RULES" not in namespace:
        raise UsageError(f"--rules {path}: the file defines no RULES")
    return _as_rules(namespace["RULES"], str(path))


def _as_rules(value, where: str) -> tuple[Rule, ...]:
    items = value if isinstance(value, (tuple, list)) else (value,)
    made = tuple(item() if isinstance(item, type) and issubclass(item, Rule) else item for item in items)
    for rule in made:
        if not isinstance(rule, (SimplifyRule, ScheduleRule)):
            raise UsageError(f"{where}: {rule!r} is not a rule")
    return made


def check_unique(every: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return ``every`` as a tuple; two rules of one name are an error."""
    seen: dict[str, Rule] = {}
    for rule in every:
        if rule.name in seen:
            raise UsageError(f"two rules are called {rule.name!r}: {type(seen[rule.name])} and {type(rule)}")
        seen[rule.name] = rule
    return tuple(every)


def names(every: Iterable[Rule] | None = None) -> dict[str, str]:
    """Map every accepted spelling (class name, kebab name) to the kebab name."""
    table: dict[str, str] = {}
    for rule in rules() if every is None else every:
        table[rule.name] = table[type(rule).__name__] = rule.name
    return table


PLANNERS = {"PlanLayout": "layout", "PlanFusion": "fusion", "PlanPacking": "packing"}
"""The passes that proposal rules run inside, and which plan each makes."""


def check_names(
    given: Iterable[str], where: str, stock: Iterable[str] = (), every: Iterable[Rule] | None = None
) -> None:
    """Raise `UsageError` for a name that is neither a rule's nor a TVM pass's."""
    known = {*names(every), *names_of_classes(), *stock, *PLANNERS}
    for name in given:
        if str(name) not in known:
            raise UsageError(f"{where}: unknown rule or pass {str(name)!r}{nearest(str(name), known)}")


def names_of_classes() -> set[str]:
    """Return the names of every rule class defined in this process, a user's own included."""
    found: set[str] = set()
    waiting: list[type[Rule]] = [Rule]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__ != Rule.__module__:
                found.update((cls.__name__, cls.rule_name()))
    return found


def select(
    every: Sequence[Rule], options: Options, without: Iterable[str] = ()
) -> tuple[list[Rule], list[str]]:
    """Split into the rules that run and the names of those switched off.

    A rule above ``options.level`` is off unless ``required``; a disabled one is
    off, and so are the proposal rules of a disabled planner.
    """
    table = names(every)
    without = list(without)
    for name in without:
        if name not in table:
            raise UsageError(f"without: unknown rule {name!r}{nearest(name, table)}")
    off = {table[n] for n in (*options.disabled, *without) if n in table}
    no_plans = {plan for name, plan in PLANNERS.items() if name in options.disabled}
    off |= {rule.name for rule in every if isinstance(rule, ProposalRule) and rule.plans in no_plans}
    forced = {table[n] for n in options.required if n in table}
    active, disabled = [], []
    for rule in every:
        if rule.name in off or (rule.level > options.level and rule.name not in forced):
            disabled.append(rule.name)
        else:
            active.append(rule)
    return active, disabled


def of_kind(every: Iterable[Rule], kind: str) -> list[Any]:
    """Return the rules of one kind: ``simplify``, ``proposal`` or ``schedule``."""
    tests = {
        "simplify": lambda r: isinstance(r, SimplifyRule) and not isinstance(r, ProposalRule),
        "proposal": lambda r: isinstance(r, ProposalRule),
        "schedule": lambda r: isinstance(r, ScheduleRule),
    }
    return [rule for rule in every if tests[kind](rule)]
