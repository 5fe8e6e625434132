"""Read rules from a user's Python file (``--rules FILE``)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from tvmpass.core.errors import UsageError


def read_rules(paths: Iterable[str]) -> tuple:
    """Execute each file and return the rules of its ``RULES`` tuples.

    Raises `UsageError` naming the file, and the line where the file fails.
    """
    found: list = []
    for path in paths:
        found.extend(_rules_of(Path(path)))
    return tuple(found)


def _rules_of(path: Path) -> tuple:
    from tvmpass.core.rule import Rule

    if not path.is_file():
        raise UsageError(f"--rules {path}: no such file")
    name = f"tvmpass_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--rules {path}: not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"--rules {path}{_line_in(error, path)}: {type(error).__name__}: {error}") from error
    rules = getattr(module, "RULES", None)
    if not isinstance(rules, (tuple, list)) or not rules:
        raise UsageError(f"--rules {path}: defines no tuple RULES of rule classes or rules")
    made = tuple(rule() if isinstance(rule, type) and issubclass(rule, Rule) else rule for rule in rules)
    for rule in made:
        if not isinstance(rule, Rule):
            raise UsageError(f"--rules {path}: RULES holds {rule!r}, which is no tvmpass rule")
    return made


def _line_in(error: BaseException, path: Path) -> str:
    """Return `` line N`` of the user's file where the error arose."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" line {line}" if line else ""
