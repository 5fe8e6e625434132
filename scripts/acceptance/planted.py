"""J: a rule with a planted fault is rolled back under numeric verification."""

from __future__ import annotations

import numpy as np

from .bench import Bench, Verdict

M, K, N = 6, 8, 5


def point(bench: Bench) -> Verdict:
    results = bench.items("J", ("drop-column-bias",), lambda name: bench.child("planted:check"))
    (result,) = results.values() or ({"error": "not run"},)
    return Verdict(bool(result.get("ok")), result.get("text") or result.get("error", ""), results)


def check() -> dict:
    """Build with a rule that drops the bias where it is [M, 1]."""
    from tvm import relax
    from tvm.relax.dpl import is_op, wildcard

    import tvmpass
    from tvmpass.core.decision import RefusalKind
    from tvmpass.core.rule import SimplifyRule

    other = RefusalKind("other-bias", "the bias has shape {shape}, not a column")

    class DropColumnBias(SimplifyRule):
        """Drop a bias of shape [M, 1] (this is wrong, on purpose)."""

        refusals = (other,)

        def pattern(self):
            x, w, bias = wildcard(), wildcard(), wildcard()
            matmul = is_op("relax.matmul")(x, w)
            return is_op("relax.add")(matmul, bias), dict(matmul=matmul, bias=bias)

        def check(self, site):
            if site.shape("bias") != (M, 1):
                return other(shape=str(site.shape("bias")))
            return None

        def rewrite(self, site):
            return site["matmul"]

    builder = relax.BlockBuilder()
    shapes = {"x": (M, K), "w": (K, N), "column": (M, 1), "row": (N,)}
    variables = {name: relax.Var(name, relax.TensorType(list(s), "float32")) for name, s in shapes.items()}
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(variables["x"], variables["w"]))
            shifted = builder.emit(relax.op.add(product, variables["column"]))
            other_product = builder.emit(relax.op.matmul(variables["x"], variables["w"]))
            out = builder.emit_output(
                relax.op.multiply(shifted, builder.emit(relax.op.add(other_product, variables["row"])))
            )
        builder.emit_func_output(out)
    with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
        library = tvmpass.build(builder.get(), target="llvm", rules=(DropColumnBias(), *tvmpass.rules()))
    generator = np.random.default_rng(0)
    arrays = {name: generator.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    product = arrays["x"] @ arrays["w"]
    wanted = (product + arrays["column"]) * (product + arrays["row"])
    (got,) = library.run(arrays)
    right = bool(np.allclose(got, wanted, rtol=1e-4, atol=1e-4))
    decisions = [d for d in library.report.to_json()["decisions"] if d["rule"] == "drop-column-bias"]
    # One place may be met twice: when its neighbours change, it is another site.
    applied = [d for d in decisions if d["outcome"] == "applied"]
    back = [d for d in decisions if d["outcome"] == "rolled_back"]
    return {
        "ok": right and bool(back) and all(d["site"] and d["refusal"] for d in back) and not applied,
        "text": f"right {right}; rolled back at {[d['site'] for d in back]}; "
        f"outcomes {[d['outcome'] for d in decisions]}; {back[0]['refusal'] if back else ''}",
    }
