"""C: an fp16 matmul + bias + gelu uses tensor cores and cp.async, in one kernel without spills."""

from __future__ import annotations

import math

from .bench import Bench, Verdict

M, N, K = 128, 3072, 768
"""128 rows, 768 inputs and 3072 outputs each: the first product of a transformer's feed-forward part."""
ARCHES = ("sm_80", "sm_90")


def point(bench: Bench) -> Verdict:
    results = bench.items("C", ("erf", "tanh"), lambda form: bench.child("cuda_tensor:build", form))
    faults = [f"{form}: {r.get('error') or r['faults']}" for form, r in results.items() if bad(r)]
    shown = "; ".join(f"{form}: {r['summary']}" for form, r in results.items() if "summary" in r)
    return Verdict(not faults, "; ".join([*faults, shown]), results)


def bad(result: dict) -> bool:
    return "error" in result or bool(result["faults"])


def module(form: str):
    """Return gelu(x @ w + bias) in fp16; both spellings of gelu."""
    from tvm import relax

    from tvmpass.testing.graphs import graph

    gelu = {"erf": relax.op.nn.gelu, "tanh": relax.op.nn.gelu_tanh}[form]
    return graph(
        lambda x, w, bias: gelu(relax.op.add(relax.op.matmul(x, w), bias)),
        ((M, K), "float16"),
        ((K, N), "float16"),
        ((N,), "float16"),
    )


def build(form: str) -> dict:
    """Build with the defaults, through `tvmpass.build`, and read the emitted source of its kernels."""
    import tvmpass
    from tvmpass.compile.cuda_source import emit_cuda
    from tvmpass.compile.target import parse_target

    target = parse_target("cuda:sm_80,sm_90", 1)
    library = tvmpass.build(module(form), target=target)
    kernels = library.report.to_json()["kernels"]
    lowered, _ = tvmpass.optimize(module(form), target)
    functions = {
        v.name_hint: f for v, f in lowered.functions_items() if v.name_hint in {k["name"] for k in kernels}
    }
    sources = [emit_cuda(function, target, name) for name, function in functions.items()]
    text = "\n".join(source.source for source in sources)
    launches = sum(len(source.kernels) for source in sources)
    spills = {arch: sum(k["cuda"][arch]["spill_bytes"] for k in kernels) for arch in ARCHES}
    faults = []
    if len(kernels) != 1 or launches != 1:
        faults.append(f"{len(kernels)} kernels with {launches} launches, not one")
    if "mma_sync" not in text and "mma.sync" not in text:
        faults.append("no tensor core instruction in the emitted source")
    if "cp.async" not in text:
        faults.append("no cp.async in the emitted source")
    if "erf" not in text and "tanh" not in text:
        faults.append("no gelu in the kernel's source")
    if any(spills.values()):
        faults.append(f"spills {spills}")
    return {
        "faults": faults,
        "summary": f"{kernels[0]['schedule']}; {kernels[0]['cuda']['sm_80']['registers']} and "
        f"{kernels[0]['cuda']['sm_90']['registers']} registers, spills {spills}",
        "kernels": kernels,
        "values": values(form, sources[0]) if launches == 1 else None,
    }


def values(form: str, source) -> dict:
    """Run the emitted source in the emulator, on sampled blocks, against float64."""
    import numpy as np

    from tvmpass.testing.cuda_emulator import emulate

    generator = np.random.default_rng(0)
    x = generator.standard_normal((M, K)).astype("float16")
    w = (generator.standard_normal((K, N)) / math.sqrt(K)).astype("float16")
    bias = generator.standard_normal(N).astype("float16")
    output = np.full((M, N), np.nan, "float16")
    emulate(source, [x, w, bias, output], orders=1, sample_blocks=6)
    y = x.astype("float64") @ w.astype("float64") + bias
    erf = np.vectorize(math.erf)
    exact = {
        "erf": lambda v: 0.5 * v * (1 + erf(v / math.sqrt(2))),
        "tanh": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    }[form](y)
    written = np.isfinite(output)
    worst = float(np.abs(output[written].astype("float64") - exact[written]).max())
    return {"sampled_elements": int(written.sum()), "worst_error": worst, "scale": float(np.abs(exact).max())}
