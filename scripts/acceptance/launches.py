"""H: kernel launches per inference, counted by the virtual machine itself."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from . import models
from .bench import Bench, Verdict

MOST = 1.2
RUNTIME = ("vm.", "runtime.")


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)
    results = bench.items("H", models.MODELS, lambda name: bench.child("launches:count", name, paths[name]))
    bad = [
        f"{name}: {r.get('error') or str(r['launches']) + ' launches for ' + str(r['nodes']) + ' nodes'}"
        for name, r in results.items()
        if "error" in r or r["ratio"] > MOST or r["batch_norms"]
    ]
    text = ", ".join(
        f"{n} {r['launches']}/{r['nodes']} = {r['ratio']}" for n, r in results.items() if "ratio" in r
    )
    return Verdict(not bad, "; ".join(bad) or text, results)


def count(name: str, path: str) -> dict:
    """Count the kernels that one inference launches, and ONNX Runtime's nodes."""
    import tvm

    import tvmpass

    shape = models.MODELS[name][1]
    mod = tvmpass.load(path, shapes={"x": shape})
    library = tvmpass.build(mod, target="llvm")
    vm = library.vm()
    seen: Counter[str] = Counter()

    def instrument(function, symbol, before_run, ret_value, *arguments):
        if before_run and not symbol.startswith(RUNTIME):
            seen[symbol] += 1

    vm.set_instrument(instrument)
    vm["main"](tvm.runtime.tensor(models.noise(shape)))
    launches, graphs = sum(seen.values()), optimized_nodes(path, shape)
    # With open dims some shape arithmetic stays: the smaller graph is the stricter measure.
    nodes = min(graphs.values())
    optimized, _ = tvmpass.optimize(mod, target="llvm")
    text = optimized["main"].script(show_meta=False)
    return {
        "launches": launches,
        "nodes": nodes,
        "graphs": graphs,
        "ratio": round(launches / nodes, 4),
        "batch_norms": sum("batch_norm" in symbol for symbol in seen) + text.count("batch_norm"),
        "by_kernel": dict(seen.most_common()),
    }


def optimized_nodes(path: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Count the nodes of ONNX Runtime's graph at its extended level, Constants left out.

    Once for the model as it is, once with its input's dims fixed.
    """
    import onnx
    import onnxruntime

    from benchmarks.rivals import fixed_model

    with tempfile.TemporaryDirectory() as folder:
        fixed, optimized = Path(folder) / "fixed.onnx", Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimized)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        as_given = onnx.load(str(optimized))
        onnx.save(fixed_model(path, {"x": shape}), str(fixed))
        onnxruntime.InferenceSession(str(fixed), options, providers=["CPUExecutionProvider"])
        with_dims = onnx.load(str(optimized))
    return {
        name: sum(node.op_type != "Constant" for node in model.graph.node)
        for name, model in (("as_given", as_given), ("fixed_dims", with_dims))
    }
