"""C: every graph of the corpus, one process each, tvmpass beside stock TVM."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from .bench import Bench, Verdict

LEAST_RIGHT = 132
MOST_SECONDS = 45 * 60
PER_GRAPH = 300.0


def point(bench: Bench) -> Verdict:
    folder = bench.shared / "corpus"
    index = json.loads((folder / "index.json").read_text())
    names = sorted(name for family in index["families"].values() for name in family)
    ours = bench.items("C", names, lambda n: _outcome(bench, "tvmpass", folder, n), parallel=True)
    stock = bench.items(
        "C-stock", names, lambda n: _outcome(bench, "stock", folder, n), parallel=True, version="tvm-0.27"
    )
    right = [n for n in ours if ours[n].get("right")]
    lost = [n for n in ours if stock[n].get("right") and not ours[n].get("right")]
    unclear = [n for n in ours if not ours[n].get("right") and not ours[n].get("clear")]
    seconds = sum(r["wall_s"] for r in ours.values()) / max(1, bench.jobs)
    needed = LEAST_RIGHT if not bench.only else len(ours)
    passed = len(right) >= needed and not lost and not unclear and seconds <= MOST_SECONDS
    text = (
        f"{len(right)} of {len(ours)} right (stock TVM {sum(bool(r.get('right')) for r in stock.values())}), "
        f"lost that stock gets right: {', '.join(lost) or 'none'}; "
        f"failures that are not one clear error: {', '.join(unclear) or 'none'}; {seconds / 60:.1f} minutes"
    )
    others = {n: ours[n].get("error") or ours[n] for n in ours if not ours[n].get("right")}
    return Verdict(
        passed, text, {"right": len(right), "not_right": others, "fusion_estimates": sources(ours)}
    )


def sources(results: dict[str, dict]) -> dict[str, int]:
    """Add up where the fusion decisions' estimates came from."""
    total: Counter[str] = Counter()
    for result in results.values():
        total.update(result.get("fusion_estimates", {}))
    return dict(sorted(total.items()))


def _outcome(bench: Bench, how: str, folder: Path, name: str) -> dict:
    return bench.child(f"corpus:check_{how}", str(folder), name, timeout=PER_GRAPH)


def make_inputs(record: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw the inputs of a corpus record by its value rules."""
    arrays = {}
    for position, entry in enumerate(record["inputs"]):
        generator = np.random.default_rng([seed, position])
        shape = entry.get("example_shape") or entry["shape"]
        arrays[entry["name"]] = np.ascontiguousarray(
            _values(generator, shape, entry["range"]).astype(entry["dtype"])
        )
    return arrays


def _values(generator, shape, rule: dict) -> np.ndarray:
    kind = rule["rule"]
    if kind == "normal":
        values = generator.standard_normal(shape) * rule["std"] + rule["mean"]
        if rule.get("min") is not None:
            values = np.maximum(values, rule["min"])
        if rule.get("max") is not None:
            values = np.minimum(values, rule["max"])
        return values
    if kind == "int":
        return generator.integers(rule["min"], rule["max"], size=shape, endpoint=True)
    if kind == "bool":
        return generator.random(shape) < rule["p_true"]
    if kind == "choice":
        chances = np.asarray(rule["probs"], dtype="float64")
        values = np.asarray([float(value) for value in rule["values"]])
        return values[generator.choice(len(values), size=shape, p=chances / chances.sum())]
    if kind == "data":
        return np.asarray([float(v) for v in np.ravel(rule["values"])]).reshape(shape)
    raise ValueError(f"unknown value rule {kind!r}")


def agrees(got: list[np.ndarray], wanted: list[np.ndarray], tolerance: dict) -> str | None:
    """Return None where the outputs agree, else what differs first."""
    if len(got) != len(wanted):
        return f"{len(got)} outputs, not {len(wanted)}"
    for index, (a, b) in enumerate(zip(got, wanted)):
        if a.shape != b.shape:
            return f"output {index} has shape {a.shape}, not {b.shape}"
        if a.dtype != b.dtype:
            return f"output {index} has dtype {a.dtype}, not {b.dtype}"
        if b.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return f"output {index} differs in {int((a != b).sum())} values"
        elif not np.allclose(
            a.astype("float64"), b.astype("float64"), rtol=tolerance["rtol"], atol=tolerance["atol"],
            equal_nan=True,
        ):  # fmt: skip
            worst = np.nanmax(np.abs(a.astype("float64") - b.astype("float64")))
            return f"output {index} differs by up to {worst:.3g}"
    return None


def _case(folder: str, name: str):
    from benchmarks.rivals import onnxruntime_runner

    record = json.loads((Path(folder) / f"{name}.json").read_text())
    path = str(Path(folder) / f"{name}.onnx")
    inputs = make_inputs(record)
    return record, path, inputs, onnxruntime_runner(path, inputs).outputs()


def check_tvmpass(folder: str, name: str) -> dict:
    """Build under numeric verification, run, compare with ONNX Runtime."""
    import tvmpass

    record, path, inputs, wanted = _case(folder, name)
    shapes = {entry["name"]: tuple(entry["shape"]) for entry in record["inputs"]}
    try:
        with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
            library = tvmpass.build(tvmpass.load(path, shapes=shapes), target="llvm")
        got = library.run(inputs)
    except tvmpass.TvmpassError as error:
        return {"right": False, "clear": "\n" not in str(error), "error": str(error)}
    report = library.report.to_json()
    wrong = agrees(got, wanted, record["tolerance"])
    result = {
        "right": wrong is None,
        "clear": False,
        "kernels": len(report["kernels"]),
        "sum_law": sum_law(report),
        "verify": report["verify"],
        "rolled_back": sum(row["rolled_back"] for row in report["rules"].values()),
        "fusion_estimates": dict(fusion_estimates(report)),
    }
    return result if wrong is None else {**result, "error": wrong}


def check_stock(folder: str, name: str) -> dict:
    """The same with stock TVM's importer and default pipeline."""
    from benchmarks.rivals import stock_runner

    record, path, inputs, wanted = _case(folder, name)
    try:
        got = stock_runner(path, inputs).outputs()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return {"right": False, "error": f"{type(error).__name__}: {lines[-1][:300]}"}
    wrong = agrees(got, wanted, record["tolerance"])
    return {"right": wrong is None} if wrong is None else {"right": False, "error": wrong}


def sum_law(report: dict) -> bool:
    """Return True where each rule's outcomes add up to its matches, counted anew."""
    outcomes = ("applied", "illegal", "unprofitable", "superseded", "rolled_back")
    counted = Counter((d["rule"], d["outcome"]) for d in report["decisions"])
    return all(
        row["matched"] == sum(row[o] for o in outcomes) and all(row[o] == counted[name, o] for o in outcomes)
        for name, row in report["rules"].items()
    )


def fusion_estimates(report: dict) -> Counter[str]:
    """Count the sources of the estimates behind decisions of fusion rules."""
    import tvmpass

    fusing = {
        rule.name for rule in tvmpass.rules() if type(rule).__module__.startswith("relay_passes.fusion")
    }
    return Counter(
        d["estimate"]["source"].partition(":")[0] if d["estimate"] else "none"
        for d in report["decisions"]
        if d["rule"] in fusing and d["outcome"] != "illegal"
    )
