"""B: random programs go round: tree, text or JSON, reader, converter, build; against an interpreter.

The interpreter and the printer are judged by real Relay first: the one by the
outputs of the golden cases, the other by their text, and every form of the
random texts by its occurrence in a golden one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from .bench import Bench, Verdict

PROGRAMS, CHUNK, SPARE = 2000, 100, 3
SHARED = 200
LEVELS = (3, 0, 1, 2, "most")
"""The level of each program in turn; "most" is 3 with every legal fusion, and channels last."""

TOLERANCE = 2e-5
_COMMENT = re.compile(r" /\* ty=.*?\*/")
_OPERATOR = re.compile(r"[ (]([a-z][a-z0-9_.]*)\(")


def point(bench: Bench) -> Verdict:
    golden = bench.items("B", ["golden"], lambda _: bench.child("relay_roundtrip:golden", str(bench.shared)))
    names = [f"programs-{place:02}" for place in range(PROGRAMS // CHUNK + SPARE)]
    names += [f"shared-{place:02}" for place in range(SHARED // CHUNK)]
    results = bench.items("B", names, lambda name: _chunk(bench, name), parallel=True)
    bad = [f"{name}: {row['error']}" for name, row in {**golden, **results}.items() if row.get("error")]
    good = [row for row in results.values() if "hashes" in row]
    distinct = {mark for name, row in results.items() if name[0] == "p" for mark in row.get("hashes", ())}
    problems = [problem for row in good for problem in row["problems"]]
    unproven = sorted({name for row in good for name in row["operators"]} - set(_proven(golden)))
    operators = sum((Counter(row["operators"]) for row in good), Counter())
    if len(distinct) < PROGRAMS and not bench.only:
        bad.append(f"only {len(distinct)} different programs")
    if unproven:
        bad.append(f"no golden case has {', '.join(unproven)}")
    cancelled = sum(row["cancelled"] for row in good)
    text = (
        f"{len(distinct)} different programs, {sum(operators.values())} calls of {len(operators)} operators, "
        f"at levels {', '.join(map(str, LEVELS))}, and {SHARED} from JSON that share nodes between blocks: "
        f"{len(problems)} differences; {cancelled} judged by the largest value on the way"
    )
    if problems or bad:
        text += "; " + "; ".join([*bad, *(problem.splitlines()[0] for problem in problems)])[:1500]
    figures = {**golden, **results, "operators": dict(operators.most_common())}
    return Verdict(not problems and not bad, text, figures)


def _proven(golden: dict[str, dict]) -> list[str]:
    return golden.get("golden", {}).get("proven", [])


def _chunk(bench: Bench, name: str) -> dict:
    kind, _, place = name.partition("-")
    return bench.child("relay_roundtrip:chunk", str(bench.shared), kind, int(place), timeout=3600)


# -- the interpreter and the printer against real Relay


def golden(shared: str) -> dict:
    """Interpret and print every golden case; return the operators that are proven so."""
    from tvmpass.frontends.relay.json_reader import read_json
    from tvmpass.frontends.relay.parser import parse
    from tvmpass.testing.relay.interpreter import OPERATORS
    from tvmpass.testing.relay.json_writer import write_json
    from tvmpass.testing.relay.printer import print_module

    cases = Path(shared) / "relay_cases"
    index = json.loads((cases / "index.json").read_text())
    bad, proven, exact, foreign = [], set(), 0, []
    for name, case in index.items():
        text = (cases / f"{name}.relay").read_text()
        used = operators_of(text)
        if not set(used) <= OPERATORS:
            foreign.append(name)
            continue
        module = parse(text, name)
        problem, types = _interpreted(cases, name, case["order"], module)
        if problem:
            bad.append(f"{name}: {problem}")
        else:
            proven |= set(used)
        printed = print_module(module, types)
        exact += printed == text
        if _program(print_module(module)) != _program(text):
            bad.append(f"{name}: printed otherwise than Relay prints it")
        if print_module(read_json(write_json(module), name)) != print_module(module):
            bad.append(f"{name}: read otherwise from JSON than from text")
    saved = sorted((cases / "json").glob("*.json"))
    for path in saved:
        module = read_json(path.read_text(), path.name)
        if not _nodes(write_json(module)) <= _nodes(path.read_text()):
            bad.append(f"{path.name}: written with nodes that Relay's JSON does not have")
    nets = sorted((Path(shared) / "relay_nets").glob("*.relay"))
    for path in nets:
        text = path.read_text()
        if _program(print_module(parse(text, path.name))) != _program(text):
            bad.append(f"{path.name}: printed otherwise than Relay prints it")
    row = {
        "cases": len(index),
        "not_interpreted": foreign,
        "nets": len(nets),
        "json": len(saved),
        "texts_equal_with_types_and_metadata": exact,
        "proven": sorted(proven),
    }
    return {**row, "error": "; ".join(bad)} if bad else row


def _interpreted(cases: Path, name: str, order: list[str], module) -> tuple[str, dict]:
    from tvmpass.testing.relay.interpreter import interpret, types_of
    from tvmpass.testing.relay.roundtrip import leaves

    arrays: dict[str, np.ndarray] = {}
    for part in ("inputs", "params"):
        with np.load(cases / f"{name}.{part}.npz", allow_pickle=False) as stored:
            arrays |= {key: stored[key] for key in stored.files}
    with np.load(cases / f"{name}.outputs.npz", allow_pickle=False) as stored:
        wanted = [stored[key] for key in stored.files]
    inputs = [arrays[key] for key in order]
    found = leaves(interpret(module, inputs))
    same = len(found) == len(wanted) and all(map(_equal, found, wanted))
    return "" if same else "the interpreter differs from Relay", types_of(module, inputs)


def _equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return False
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    return np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def _nodes(text: str) -> set[tuple[str, ...]]:
    """Return the forms of a JSON program's nodes: type keys with the names of their fields."""
    return {(node["type_key"], *sorted(node.get("attrs", ()))) for node in json.loads(text)["nodes"]}


def _program(text: str) -> str:
    """Return a text without its comments and its metadata."""
    return _COMMENT.sub("", text.split("\n#[metadata]")[0])


def operators_of(text: str) -> Counter:
    """Count the operators that a printed program calls."""
    return Counter(_OPERATOR.findall(_program(text).replace("if (", "").replace("fn (", "")))


def golden_forms(shared: str) -> set:
    """Return the forms of all texts that Relay printed."""
    from .relay_forms import forms

    folder = Path(shared)
    paths = [*(folder / "relay_cases").glob("*.relay"), *(folder / "relay_nets").glob("*.relay")]
    return {form for path in paths for form in forms(path.read_text())}


# -- random programs


def chunk(shared: str, kind: str, place: int) -> dict:
    """Bring a hundred programs around: as text and JSON, ``shared`` ones as JSON only."""
    from tvmpass.testing.relay.printer import print_module
    from tvmpass.testing.relay.programs import programs
    from tvmpass.testing.relay.roundtrip import from_json, from_text, outcome, sample

    from .relay_forms import forms, unknown

    golden = golden_forms(shared)
    printable = kind == "programs"
    start = (1 + place) * 100_000
    found: dict = {"hashes": [], "problems": [], "cancelled": 0, "composed": set()}
    operators: Counter = Counter()
    for number, program in enumerate(sample(programs(shared=not printable), CHUNK, start)):
        text = print_module(program.module, program.types)
        level = LEVELS[number % len(LEVELS)]
        found["hashes"].append(hashlib.sha256(text.encode()).hexdigest()[:16])
        operators += operators_of(text)
        try:
            module, problem = from_json(program)
            if printable and not problem:
                module, problem = from_text(program, comments=number % 8 != 7)
            result = outcome(program, module, level, start + number)
            problem, found["cancelled"] = problem or result.problem, found["cancelled"] + result.cancelled
        except Exception as error:  # one program's failure is a finding, not the end
            problem = f"{type(error).__name__}: {error}"
        if problem:
            found["problems"].append(f"{kind} {place}, program {number} at level {level}: {problem}\n{text}")
        if printable:
            composed, unseen = unknown(forms(text), golden)
            found["composed"] |= {" ".join(form) for form in composed}
            if unseen:
                found["problems"].append(f"forms that no golden text has: {sorted(unseen)}\n{text}")
    return {**found, "composed": sorted(found["composed"]), "operators": dict(operators)}
