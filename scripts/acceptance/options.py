"""I: disabled rules, levels, stock contexts and open dimensions."""

from __future__ import annotations

import numpy as np

from .bench import Bench, Verdict

SHAPE = (1, 3, 48, 192)
CHECKS = ("disabled", "level0", "stock_inside", "stock_outside", "open_batch")


def point(bench: Bench) -> Verdict:
    model = str(bench.root / "examples" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    results = bench.items("I", CHECKS, lambda name: bench.child(f"options:{name}", model, timeout=900))
    bad = [f"{n}: {r.get('error') or r.get('text')}" for n, r in results.items() if not r.get("ok")]
    return Verdict(not bad, "; ".join(bad) or "all hold", results)


def _build(model: str, shape=SHAPE, **context):
    import tvmpass

    with tvmpass.PassContext(**context):
        return tvmpass.build(tvmpass.load(model, shapes={"x": shape}), target="llvm")


def disabled(model: str) -> dict:
    """A disabled rule matches nothing, is listed, and its sites stay apart."""
    with_it, without = _build(model), _build(model, disabled_pass=["GrowEpilogue"])
    report = without.report.to_json()
    listed = "grow-epilogue" in report["disabled"]
    silent = not any(d["rule"] == "grow-epilogue" for d in report["decisions"])
    before, after = (sum(k.calls for k in lib.report.kernels) for lib in (with_it, without))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    difference = float(np.abs(with_it.run(x=x)[0] - without.run(x=x)[0]).max())
    return {
        "ok": listed and silent and after > before and difference < 1e-5,
        "text": f"listed {listed}, silent {silent}, launches {before} with it, {after} without",
    }


def level0(model: str) -> dict:
    """At opt_level 0 no fusion rule runs."""
    import tvmpass

    report = _build(model, opt_level=0).report.to_json()
    fusing = {r.name for r in tvmpass.rules() if type(r).__module__.startswith("relay_passes.fusion")}
    ran = [d["rule"] for d in report["decisions"] if d["rule"] in fusing]
    return {"ok": not ran and fusing <= set(report["disabled"]), "text": f"fusion decisions: {len(ran)}"}


def stock_inside(model: str) -> dict:
    """A stock context opened inside, and the worker threads, keep the options of entry."""
    import threading

    import tvm

    import tvmpass
    from tvmpass.core.rule import SimplifyRule

    seen: list[str] = []

    class Probe(SimplifyRule):
        """Open a stock context while the build runs."""

        def match(self, view):
            with tvm.transform.PassContext(opt_level=1):
                seen.append("inside")
            return ()

    with tvmpass.PassContext(config={"tvmpass.fusion": "never", "tvmpass.threads": 1}):
        mod = tvmpass.load(model, shapes={"x": SHAPE})
        library = tvmpass.build(mod, target="llvm", rules=(*tvmpass.rules(), Probe()))
    fused = sum(d.outcome == "applied" and d.rule == "grow-epilogue" for d in library.report.decisions)
    # Another thread has no context of its own: the options are passed on, not looked up.
    results: list[int] = []

    def work():
        with tvmpass.PassContext(config={"tvmpass.fusion": "never"}):
            inner = tvmpass.build(tvmpass.load(model, shapes={"x": SHAPE}), target="llvm")
            results.append(sum(d.outcome == "applied" and d.rule == "grow-epilogue"
                               for d in inner.report.decisions))  # fmt: skip

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return {
        "ok": bool(seen) and fused == 0 and results == [0],
        "text": f"probe ran {len(seen)} times; fused {fused} and {results} with fusion=never",
    }


def stock_outside(model: str) -> dict:
    """Under a user's stock context the defaults hold, and the report says so."""
    import tvm

    import tvmpass

    mod = tvmpass.load(model, shapes={"x": SHAPE})
    with tvm.transform.PassContext(opt_level=0):
        under = tvmpass.build(mod, target="llvm").report.to_json()
    plain = tvmpass.build(mod, target="llvm").report.to_json()
    noted = [note for note in under["notes"] if "stock" in note]
    return {
        "ok": bool(noted) and under["rules"] == plain["rules"] and not plain["notes"],
        "text": f"notes: {under['notes']}",
    }


def open_batch(model: str) -> dict:
    """One artifact with an open batch is right for 1, 2 and 7."""
    from benchmarks.rivals import onnxruntime_runner

    from .models import relative

    library = _build(model, ("n", *SHAPE[1:]))
    worst = {}
    for n in (1, 2, 7):
        x = np.random.default_rng(n).standard_normal((n, *SHAPE[1:])).astype("float32")
        wanted = onnxruntime_runner(model, {"x": x}).outputs()
        worst[n] = max(relative(a, b) for a, b in zip(library.run(x=x), wanted, strict=True))
    return {"ok": max(worst.values()) <= 1e-4, "text": f"differences {worst}"}
