"""The points of Relay programs, by letter; each is imported when its turn comes."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from .bench import Bench, Verdict


def _later(*modules: str) -> Callable[[Bench], Verdict]:
    """Return a point made of the ``point`` of each module; it holds where all hold."""

    def point(bench: Bench) -> Verdict:
        verdicts = [importlib.import_module(f"scripts.acceptance.{name}").point(bench) for name in modules]
        return Verdict(
            all(verdict.passed for verdict in verdicts),
            "; ".join(verdict.text for verdict in verdicts),
            {name: verdict.figures for name, verdict in zip(modules, verdicts)},
        )

    return point


POINTS = {
    "A": ("golden cases as text and JSON, hand-written text, what is not supported", _later("relay_cases")),
    "B": (
        "2,000 generated programs against a numpy interpreter; 10,000 mutated texts",
        _later("relay_roundtrip", "relay_mutations"),
    ),
    "C": ("whole nets against real Relay; parsing and converting within a second", _later("relay_nets")),
    "D": ("rules fire on converted nets", _later("relay_rules")),
    "E": (
        "the command line: build, run, tune, convert, and what is wrong with its input",
        _later("relay_cli"),
    ),
}
