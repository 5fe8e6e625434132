"""Read a report file, check its form, and select a part of it."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvmpass.core.decision import OUTCOMES
from tvmpass.core.errors import TvmpassError, UsageError, nearest
from tvmpass.core.rule import kebab

SCHEMA = 1
"""The report schema that this version reads."""

MAX_BYTES = 1 << 30

EVERY = "every decision"
"""Key of a selection under which the decisions of the whole report stay, to name winners."""

_NEEDED: Mapping[str, type] = {
    "target": str,
    "model": str,
    "rules": dict,
    "decisions": list,
    "kernels": list,
    "records": dict,
    "verify": dict,
}
_DECISION = ("rule", "function", "site", "origin", "outcome")
_KERNEL = ("name", "kind", "origin", "schedule")
_RESOURCES = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "spill_bytes", "occupancy")


def read_report(path: str) -> dict[str, Any]:
    """Read and check a report, or the one in an artifact; raises `TvmpassError` with one line."""
    file = Path(path)
    try:
        if file.is_file() and _is_library(file):
            from tvmpass.compile.artifact import read_artifact_report

            document = read_artifact_report(file)
        elif file.is_file() and file.stat().st_size > MAX_BYTES:
            raise TvmpassError(f"{path}: larger than any report (1 GiB)")
        else:
            document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise TvmpassError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TvmpassError(f"{path}: not a report (not text)") from None
    except ValueError as error:
        raise TvmpassError(f"{path}: not a report (not JSON: {error})") from None
    except RecursionError:
        raise TvmpassError(f"{path}: not a report (nested too deeply)") from None
    _check(path, document)
    return document


def _is_library(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _check(path: str, document: Any) -> None:
    def wrong(what: str) -> TvmpassError:
        return TvmpassError(f"{path}: not a report of tvmpass: {what}")

    if not isinstance(document, dict) or "schema" not in document:
        raise wrong("it has no 'schema'")
    if document["schema"] != SCHEMA:
        raise TvmpassError(
            f"{path}: report schema {document['schema']!r}; this tvmpass reads schema {SCHEMA}: build again"
        )
    for key, kind in _NEEDED.items():
        if not isinstance(document.get(key), kind):
            raise wrong(f"{key!r} is missing or no {kind.__name__}")
    for name, row in document["rules"].items():
        for key in ("matched", *OUTCOMES):
            if not isinstance(row, dict) or not isinstance(row.get(key), int):
                raise wrong(f"rules[{name!r}] has no number {key!r}")
    for where, entries, keys in (
        ("decisions", document["decisions"], _DECISION),
        ("kernels", document["kernels"], _KERNEL),
    ):
        for index, entry in enumerate(entries):
            missing = [key for key in keys if not isinstance(entry, dict) or key not in entry]
            if missing:
                raise wrong(f"{where}[{index}] has no {missing[0]!r}")
    for index, kernel in enumerate(document["kernels"]):
        found = kernel.get("cuda") or {}
        rows = list(found.values()) if isinstance(found, dict) else [None]
        if not all(isinstance(row, dict) and _numbers(row, _RESOURCES) for row in rows):
            raise wrong(f"kernels[{index}]: 'cuda' does not give {', '.join(_RESOURCES)} per architecture")
        if not isinstance(kernel.get("record"), (dict, type(None))):
            raise wrong(f"kernels[{index}]: 'record' is neither an object nor null")
    for index, decision in enumerate(document["decisions"]):
        if decision["outcome"] not in OUTCOMES:
            raise wrong(f"decisions[{index}] has the unknown outcome {decision['outcome']!r}")


def _numbers(row: dict, keys: tuple[str, ...]) -> bool:
    return all(isinstance(row.get(key), (int, float)) for key in keys)


def select(
    document: dict[str, Any], rule: str | None = None, where: str | None = None, missing_ok: bool = False
) -> dict[str, Any]:
    """Return the report reduced to one rule and one place; its counts follow.

    ``where`` is a source node, a kernel's name, or ``FUNCTION:SITE``; ``*`` and
    ``?`` match as in file names.  Raises `UsageError` naming the nearest where
    nothing is found, unless ``missing_ok``.
    """
    if rule is None and where is None:
        return document
    decisions, kernels, rules = document["decisions"], document["kernels"], document["rules"]
    if rule is not None:
        name = rule if rule in rules else kebab(rule)
        if name not in rules and name in document.get("disabled", ()):
            raise UsageError(f"rule {name!r} was disabled in this build")
        if name not in rules and not missing_ok:
            raise UsageError(f"rule {rule!r} matched nothing in this report{nearest(rule, rules)}")
        decisions = [d for d in decisions if d["rule"] == name]
        kernels = []
        rules = {name: rules[name]} if name in rules else {}
    if where is not None:
        found = [d for d in decisions if _is_at(d, where)]
        kernels = [k for k in kernels if k["name"] == where or _matches(k["origin"], where)]
        if not found and not kernels and not missing_ok:
            places = {node for entry in (*decisions, *document["kernels"]) for node in entry["origin"]}
            places |= {k["name"] for k in document["kernels"]}
            raise UsageError(f"nothing in this report is at {where!r}{nearest(where, places)}")
        decisions = found
        rules = count(decisions)
    selected = {"decisions": decisions, "kernels": kernels, "rules": rules}
    return {**document, **selected, EVERY: document["decisions"]}


def count(decisions: list[dict]) -> dict[str, dict[str, int]]:
    """Return per rule ``matched`` and one number per outcome."""
    rules: dict[str, dict[str, int]] = {}
    for decision in decisions:
        row = rules.setdefault(decision["rule"], {"matched": 0, **dict.fromkeys(OUTCOMES, 0)})
        row["matched"] += 1
        row[decision["outcome"]] += 1
    return rules


def _is_at(decision: dict, where: str) -> bool:
    if _matches(decision["origin"], where):
        return True
    function, colon, value = where.partition(":")
    if not colon or decision["function"] != function:
        return False
    root = (decision.get("evidence") or {}).get("value")
    return bool(value) and (decision["site"].startswith(value) or root == value)


def _matches(nodes: list[str], where: str) -> bool:
    return where in nodes or any(fnmatch.fnmatchcase(node, where) for node in nodes)
