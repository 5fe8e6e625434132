"""A: the golden cases of real Relay, from text, from JSON with parameter files, and by hand."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from .bench import Bench, Verdict

TOLERANCE = 2e-5
LEVELS = (0, 3)
REFUSED = {
    "adt_match": ("match over an algebraic data type (ADT)", "line 9"),
    "no_meta_section": (":3:", "meta[relay.Constant][0]", "no metadata section"),
}


def point(bench: Bench) -> Verdict:
    cases = bench.shared / "relay_cases"
    index = json.loads((cases / "index.json").read_text())
    names = [f"text/{name}" for name in index]
    names += [f"json/{path.stem}" for path in sorted((cases / "json").glob("*.json"))]
    names += ["saved/all"]
    names += [f"handwritten/{path.stem}" for path in sorted((cases / "handwritten").glob("*.relay"))]
    names += [f"unsupported/{path.stem}" for path in sorted((cases / "unsupported").glob("*.relay"))]

    def one(item: str) -> dict:
        kind, _, name = item.partition("/")
        if kind == "unsupported":
            return refused(bench, cases / kind / f"{name}.relay")
        if kind == "saved":
            return bench.child("relay_cases:saved", str(bench.shared))
        return bench.child("relay_cases:compare", str(cases), kind, name)

    results = bench.items("A", names, one, parallel=True)
    bad = [f"{name}: {row.get('error') or row}" for name, row in results.items() if not row.get("ok")]
    worst = max((row.get("worst", 0.0) for row in results.values()), default=0.0)
    counts = {
        kind: sum(name.startswith(kind) for name in results)
        for kind in ("text", "json", "handwritten", "saved", "unsupported")
    }
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    text = f"{told}; largest difference {worst:.1e} at levels {LEVELS}; integers and bools exact"
    return Verdict(not bad, "; ".join(bad)[:1500] or text, results)


def compare(folder: str, kind: str, name: str) -> dict:
    """Build one case at each level, run it, and compare with what Relay computed."""
    import tvmpass

    cases = Path(folder)
    home = cases / "handwritten" if kind == "handwritten" else cases
    model = cases / "json" / f"{name}.json" if kind == "json" else home / f"{name}.relay"
    params = cases / "json" / f"{name}.params" if kind == "json" else home / f"{name}.params.npz"
    inputs, expected = _arrays(home / f"{name}.inputs.npz"), _arrays(home / f"{name}.outputs.npz")
    # Hand-written text keeps its inputs in the order of @main; the index says it of the others.
    order = list(inputs)
    if kind != "handwritten":
        order = json.loads((cases / "index.json").read_text())[name]["order"]
    found = [param.name for param in tvmpass.load(model)["main"].params]
    if found != order:
        return {"ok": False, "error": f"inputs {found}, not {order}"}
    worst = 0.0
    for level in LEVELS:
        mod = tvmpass.load(model, params=params if params.exists() else None)
        with tvmpass.PassContext(opt_level=level):
            library = tvmpass.build(mod)
        results = library.run(inputs)
        if len(results) != len(expected):
            return {"ok": False, "error": f"{len(results)} outputs, not {len(expected)}"}
        for (label, wanted), got in zip(expected.items(), results):
            problem, difference = _difference(got, wanted)
            worst = max(worst, difference)
            if problem:
                return {"ok": False, "error": f"level {level}, {label}: {problem}"}
    return {"ok": True, "worst": worst}


def saved(folder: str) -> dict:
    """Convert each text directly and by way of the JSON that TVM would have saved; compare."""
    import tvm

    from tvmpass.frontends.relay.convert import convert
    from tvmpass.frontends.relay.json_reader import read_json
    from tvmpass.frontends.relay.parser import parse
    from tvmpass.testing.relay.json_writer import write_json

    cases = Path(folder) / "relay_cases"
    pairs = []
    for path in [*sorted(cases.glob("*.relay")), *sorted((Path(folder) / "relay_nets").glob("*.relay"))]:
        module = parse(path.read_text(), path.name)
        pairs.append((path.name, module, read_json(write_json(module), path.name)))
    for path in sorted((cases / "json").glob("*.json")):
        text = (cases / f"{path.stem}.relay").read_text()
        pairs.append((path.name, parse(text, path.name), read_json(path.read_text(), path.name)))
    different = []
    for name, one, other in pairs:
        try:
            tvm.ir.assert_structural_equal(convert(one), convert(other), map_free_vars=True)
        except Exception as error:  # whatever it is, the other files are still worth knowing
            different.append(f"{name}: {str(error)[-200:]}")
    return {"ok": not different, "equal": len(pairs) - len(different), "different": different}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _difference(got: np.ndarray, wanted: np.ndarray) -> tuple[str, float]:
    """Return what is wrong, and the largest difference of floats."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}", 0.0
    if wanted.dtype.kind != "f":
        unequal = int((got != wanted).sum())
        return (f"{unequal} of {wanted.size} values differ" if unequal else ""), 0.0
    got, wanted = np.atleast_1d(got), np.atleast_1d(wanted)
    difference = np.abs(got.astype("float64") - wanted.astype("float64"))
    difference[np.isnan(got) & np.isnan(wanted) | (got == wanted)] = 0.0
    close = np.allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    largest = float(difference.max(initial=0.0))
    return ("" if close else f"differs by up to {largest:.2e}"), largest


def refused(bench: Bench, path: Path) -> dict:
    """Build what is not supported: one error that says what and where, nothing written."""
    with tempfile.TemporaryDirectory() as folder:
        done = bench.cli("build", path, "-o", "out.so", cwd=folder)
        left = sorted(entry.name for entry in Path(folder).iterdir())
    said = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    text = "\n".join(said)
    checks = {
        "code": done.returncode == 1,
        "one_error": sum(line.startswith("tvmpass: ") for line in said) == 1,
        "says": all(word in text for word in REFUSED[path.stem]),
        "no_traceback": "Traceback" not in text,
        "nothing_left": not left,
    }
    failed = [name for name, good in checks.items() if not good]
    return {"ok": not failed, "message": text, "failed_checks": failed}
