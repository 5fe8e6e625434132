"""C: an fp16 matmul + bias + gelu uses tensor cores and cp.async, in one kernel without spills."""

from __future__ import annotations

import math
import re

from .bench import Bench, Verdict

M = 128
SIZES = {"erf": (3072, 768), "tanh": (3072, 768), "erf-deep": (768, 3072)}
"""Columns and depth: the first product of a transformer's feed-forward part, and the other way round."""
ARCHES = ("sm_80", "sm_90")
INSTRUCTIONS = {
    "tensor core product": r"\bmma_sync\(|mma\.sync\.",
    "cp.async": r"cp\.async\.c[ag]\.shared\.global",
    "wait for a group of copies": r"cp\.async\.wait_group|__pipeline_wait_prior",
}
"""As statements of the kernel, not as names in a header."""
TOLERANCE = 2e-3
"""Of the largest value: two roundings to fp16, of the product's sum and of the result."""


def point(bench: Bench) -> Verdict:
    results = bench.items("C", SIZES, lambda form: bench.child("cuda_tensor:build", form))
    faults = [f"{form}: {r.get('error') or r['faults']}" for form, r in results.items() if bad(r)]
    shown = "; ".join(f"{form}: {r['summary']}" for form, r in results.items() if "summary" in r)
    return Verdict(not faults, "; ".join([*faults, shown]), results)


def bad(result: dict) -> bool:
    return "error" in result or bool(result["faults"])


def module(form: str):
    """Return gelu(x @ w + bias) in fp16; both spellings of gelu."""
    from tvm import relax

    from tvmpass.testing.graphs import graph

    gelu, n, k = (relax.op.nn.gelu_tanh if form == "tanh" else relax.op.nn.gelu), *SIZES[form]
    return graph(
        lambda x, w, bias: gelu(relax.op.add(relax.op.matmul(x, w), bias)),
        ((M, k), "float16"),
        ((k, n), "float16"),
        ((n,), "float16"),
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
    for what, form_of_it in INSTRUCTIONS.items():
        if not re.search(form_of_it, text):
            faults.append(f"no {what} in the emitted source")
    if "erf" not in text and "tanh" not in text:
        faults.append("no gelu in the kernel's source")
    if any(spills.values()):
        faults.append(f"spills {spills}")
    found = values(form, sources[0]) if launches == 1 else None
    if found is not None and found["worst_error"] > TOLERANCE * found["scale"]:
        faults.append(f"wrong by {found['worst_error']:.3g} of {found['scale']:.3g}")
    return {
        "faults": faults,
        "summary": f"{kernels[0]['schedule']}; {kernels[0]['cuda']['sm_80']['registers']} and "
        f"{kernels[0]['cuda']['sm_90']['registers']} registers, spills {spills}",
        "kernels": kernels,
        "values": found,
    }


def values(form: str, source) -> dict:
    """Run the emitted source in the emulator, on sampled blocks, against float64."""
    import numpy as np

    from tvmpass.testing.cuda_emulator import emulate

    (n, k), generator = SIZES[form], np.random.default_rng(0)
    x = generator.standard_normal((M, k)).astype("float16")
    w = (generator.standard_normal((k, n)) / math.sqrt(k)).astype("float16")
    bias = generator.standard_normal(n).astype("float16")
    found = emulate(source, [x, w, bias, np.zeros((M, n), "float16")], orders=3, sample_blocks=6)
    y = x.astype("float64") @ w.astype("float64") + bias
    if form == "tanh":
        exact = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    else:
        exact = 0.5 * y * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
    mask, _, output = found.written([x, w, bias, exact])[-1]
    worst = float(np.abs(output[mask].astype("float64") - exact[mask]).max())
    scale = float(np.abs(exact).max())
    return {"elements": int(mask.sum()), "blocks": found.blocks, "worst_error": worst, "scale": scale}
