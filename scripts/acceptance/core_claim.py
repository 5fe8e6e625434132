"""G: fusion decided by the model is as good as the best of always and never."""

from __future__ import annotations

import numpy as np

from . import corpus
from .bench import Bench, Verdict

WITHIN = 1.10
LEAST_LEARNED = 0.60
SECONDS = 6.0
# None of these is among the shapes that scripts/collect_cpu.py measures.
SHAPES = ((517, 1031), (300, 2050), (96, 5003), (1201, 643), (2111, 411))
CASES = tuple(f"{kind}-{m}x{n}" for kind in ("broadcast", "chain") for m, n in SHAPES)


def point(bench: Bench) -> Verdict:
    results = bench.items("G", CASES, lambda name: bench.child("core_claim:measure", name, timeout=600))
    bad = [
        f"{name}: {r.get('error') or r['auto_over_best']}"
        for name, r in results.items()
        if "error" in r or r["auto_over_best"] > WITHIN
    ]
    estimates = corpus.sources(bench.kept("C"))
    total = sum(number for source, number in estimates.items() if source != "none")
    learned = estimates.get("learned", 0) / total if total else 0.0
    text = f"{len(results) - len(bad)} of {len(results)} within {WITHIN}; " + (
        f"{learned:.0%} of {total} fusion decisions of the corpus are learned"
        if total
        else "run point C first for the share of learned decisions"
    )
    if bad:
        text += "; slower than the best: " + "; ".join(bad)
    return Verdict(not bad and learned >= LEAST_LEARNED, text, {**results, "corpus": estimates})


def measure(name: str) -> dict:
    """Build with auto, always and never; time them alternated in one process."""
    import tvm

    import tvmpass
    from benchmarks import timing

    kind, _, size = name.partition("-")
    m, n = map(int, size.split("x"))
    mod = (broadcast if kind == "broadcast" else chain)(m, n)
    generator = np.random.default_rng(0)
    libraries, kernels = {}, {}
    for fusion in ("auto", "always", "never"):
        config = {"tvmpass.fusion": fusion, "tvmpass.threads": 1, "tvmpass.tuning_logs": "off"}
        with tvmpass.PassContext(config=config):
            libraries[fusion] = tvmpass.build(mod, target="llvm")
        kernels[fusion] = len(libraries[fusion].report.kernels)
    arrays = {
        entry.name: generator.uniform(-0.2, 0.2, entry.shape).astype("float32")
        for entry in libraries["auto"].input_info
    }
    outputs = {fusion: library.run(arrays)[0] for fusion, library in libraries.items()}
    spread = max(float(np.abs(out - outputs["never"]).max()) for out in outputs.values())
    tensors = [tvm.runtime.tensor(arrays[entry.name]) for entry in libraries["auto"].input_info]
    machines = {fusion: library.vm()["main"] for fusion, library in libraries.items()}
    samples = timing.alternate(
        {fusion: (lambda f=f: f(*tensors)) for fusion, f in machines.items()}, SECONDS, most=2000
    )
    times = timing.summary(samples)
    best = min(times["always"]["median_ms"], times["never"]["median_ms"])
    # Where auto built the same program as one of the others, the rest is noise.
    same = [f for f in ("always", "never") if _program(libraries[f]) == _program(libraries["auto"])]
    auto = min([times["auto"]["median_ms"], *(times[f]["median_ms"] for f in same)])
    return {
        "auto_over_best": round(auto / min(best, auto), 4),
        "measured_auto_over_best": round(times["auto"]["median_ms"] / best, 4),
        "same_program_as": same,
        "kernels": kernels,
        "times": times,
        "difference": spread,
        "estimates": dict(corpus.fusion_estimates(libraries["auto"].report.to_json())),
    }


def _program(library) -> list[tuple]:
    return [(k.name, k.schedule, tuple(k.origin)) for k in library.report.kernels]


def broadcast(m: int, n: int):
    """Return an expensive [1, n] producer that is added to every row of [m, n]."""
    return _module([("x", (1, n)), ("b", (m, n))], _costly)


def chain(m: int, n: int):
    """Return a chain of four elementwise operators on [m, n]."""
    return _module([("x", (m, n)), ("b", (m, n))], _four)


def _costly(emit, op, x, b):
    z = x
    for _ in range(4):
        z = emit(op.exp(emit(op.subtract(x, z))))
    return op.add(b, z)


def _four(emit, op, x, b):
    z = emit(op.add(x, b))
    z = emit(op.multiply(z, x))
    z = emit(op.abs(z))
    return op.subtract(z, b)


def _module(inputs, body):
    from tvm import relax

    builder = relax.BlockBuilder()
    variables = [relax.Var(name, relax.TensorType(list(shape), "float32")) for name, shape in inputs]
    with builder.function("main", variables):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, relax.op, *variables))
        builder.emit_func_output(out)
    return builder.get()
