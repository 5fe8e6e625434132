"""Recipes beside a recipe: one option of one step changed.

A generator lists what is likely to be good before anything is measured; around
what turned out good, finer changes are worth a look.  Steps check their own
options, so nothing here has to know what a step can do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

MAX_NUMBER = 512

_KEPT = ("lanes",)
"""Options that are never changed: the width of a vector follows from the machine."""

_CHOICES = {"per": ("rows", "channels", "image")}
"""The words an option may take."""


def neighbours(recipe: Any) -> Iterator[Any]:
    """Yield recipes that differ from ``recipe`` in one option, or two that belong together.

    The order is fixed.  Many will be refused by a step's check.
    """
    steps = recipe.steps
    for position, step in enumerate(steps):
        for changed in _changed(step):
            yield type(recipe)((*steps[:position], changed, *steps[position + 1 :]))


def _changed(step: Any) -> Iterator[Any]:
    options = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    lanes = options.get("lanes")
    for name, value in options.items():
        if name in _KEPT:
            continue
        for other in _others(name, value, lanes):
            yield dataclasses.replace(step, **{name: other})
    if lanes and {"m", "n"} <= options.keys():
        yield from _traded(step, lanes)


def _others(name: str, value: Any, lanes: int | None) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        step = lanes if name == "n" and lanes else 1
        near = [value - step, value + step, value - 2 * step, value + 2 * step, value // 2, value * 2]
        lowest = 0 if name in ("k", "rows") else 1
        return list(dict.fromkeys(v for v in near if lowest <= v <= MAX_NUMBER and v != value))
    if isinstance(value, str):
        return [word for word in _CHOICES.get(name, ()) if word != value]
    return []


def _traded(step: Any, lanes: int) -> Iterator[Any]:
    """Yield tiles with rows traded for vectors: the two share the registers."""
    vectors = max(1, step.n // lanes)
    for other in (vectors - 1, vectors + 1, 2 * vectors, vectors // 2):
        m = step.m * vectors // other if other > 0 else 0
        if m >= 1 and other != vectors:
            yield dataclasses.replace(step, m=m, n=other * lanes)
