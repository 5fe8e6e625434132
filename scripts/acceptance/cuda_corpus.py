"""G: whole graphs of the corpus, every kernel's CUDA text run in the emulator.

Beyond what is asked: point B checks kernels of made-up graphs and of one model.
"""

from __future__ import annotations

import json
from pathlib import Path

from .bench import Bench, Verdict

TARGET = "cuda:sm_80,sm_90"
PER_GRAPH = 300.0
TOO_LONG = "takes too long in the emulator"


def point(bench: Bench) -> Verdict:
    folder = bench.shared / "corpus"
    index = json.loads((folder / "index.json").read_text())
    names = sorted(name for family in index["families"].values() for name in family)
    results = bench.items(
        "G",
        names,
        lambda n: bench.child("cuda_corpus:check", str(folder), n, timeout=PER_GRAPH),
        parallel=True,
    )
    wrong = {n: r.get("error") for n, r in results.items() if not r.get("right") and not _too_long(r)}
    long = [n for n, r in results.items() if _too_long(r)]
    right = sum(bool(r.get("right")) for r in results.values())
    text = (
        f"{right} of {len(results)} right with every block emulated; "
        f"too long to emulate: {', '.join(long) or 'none'}; wrong: {', '.join(wrong) or 'none'}"
    )
    return Verdict(not wrong, text, {"right": right, "too_long": long, "wrong": wrong})


def _too_long(result: dict) -> bool:
    return any(words in str(result.get("error")) for words in (TOO_LONG, "no end after"))


def check(folder: str, name: str) -> dict:
    """Optimise for CUDA, emulate all kernels, compare with ONNX Runtime."""
    import tvmpass
    from benchmarks.rivals import onnxruntime_runner
    from tvmpass.testing.cuda_emulator import EmulationError
    from tvmpass.testing.cuda_model import emulate_model

    from .corpus import agrees, make_inputs

    record = json.loads((Path(folder) / f"{name}.json").read_text())
    path = str(Path(folder) / f"{name}.onnx")
    inputs = make_inputs(record)
    wanted = onnxruntime_runner(path, inputs).outputs()
    module = tvmpass.load(path, shapes={entry["name"]: tuple(entry["shape"]) for entry in record["inputs"]})
    lowered, _ = tvmpass.optimize(module, TARGET)
    names = json.loads(str(module["main"].attrs["tvmpass.inputs"]))
    arguments = {p.name: inputs[given] for p, given in zip(lowered["main"].params, names, strict=True)}
    try:
        got = emulate_model(lowered, TARGET, arguments)
    except EmulationError as error:
        text = TOO_LONG if error.fault == "no end" else str(error)
        return {"right": False, "error": text}
    wrong = agrees(got, wanted, record["tolerance"])
    return {"right": wrong is None} if wrong is None else {"right": False, "error": wrong}
