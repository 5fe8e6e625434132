"""Dominance: straight-line blocks and branches."""

from __future__ import annotations

from tvm import relax

from tvmpass.core.analysis import Analyses

R = relax.op
T = relax.TensorType((3,), "float32")


def branched():
    """Return a module with an If between two bindings, and its variables by name."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", T)
    cond = relax.Var("cond", relax.TensorType((), "bool"))

    def branch(operator, name):
        inner, result = relax.Var(name, T), relax.Var(name + "_out", T)
        bindings = [relax.VarBinding(inner, operator(x)), relax.VarBinding(result, operator(inner))]
        return relax.SeqExpr([relax.BindingBlock(bindings)], result), inner, result

    left, left_in, left_out = branch(R.exp, "left")
    right, right_in, _ = branch(R.tanh, "right")
    chosen, before, after = relax.Var("chosen", T), relax.Var("before", T), relax.Var("after", T)
    blocks = [
        relax.BindingBlock([relax.VarBinding(before, R.negative(x))]),
        relax.BindingBlock([relax.VarBinding(chosen, relax.If(cond, left, right))]),
        relax.BindingBlock([relax.VarBinding(after, R.add(chosen, before))]),
    ]
    function = relax.Function([x, cond], relax.SeqExpr(blocks, after), T, is_pure=True)
    builder.add_func(function.with_attr("global_symbol", "main"), "main")
    names = {"x": x, "before": before, "chosen": chosen, "after": after}
    names |= {"left": left_in, "left_out": left_out, "right": right_in}
    return relax.transform.Normalize()(builder.get()), names


def test_order_within_and_across_branches():
    mod, names = branched()
    view = Analyses(mod).get("uses", "main")
    found = Analyses(mod).get("dominance", "main")
    by_name = {var.name: var for var in found.path}
    v = {key: by_name[var.name] for key, var in names.items()}
    assert list(view.bindings) == [v["before"], v["chosen"], v["after"]]
    for first, second, expected in [
        ("x", "left", True),
        ("x", "x", False),
        ("before", "before", False),
        ("before", "after", True),
        ("after", "before", False),
        ("before", "left", True),
        ("left", "left_out", True),
        ("left_out", "left", False),
        ("left", "right", False),
        ("right", "left", False),
        ("left", "after", False),
        ("chosen", "left", False),
        ("left", "chosen", False),
        ("chosen", "after", True),
    ]:
        assert found.dominates(v[first], v[second]) is expected, (first, second)


def test_dataflow_variables_are_available_in_their_block_only():
    builder = relax.BlockBuilder()
    x = relax.Var("x", T)
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(R.exp(x))
            mid = builder.emit_output(R.tanh(inner))
        between = builder.emit(R.negative(mid))
        with builder.dataflow():
            out = builder.emit_output(R.sin(between))
        builder.emit_func_output(out)
    found = Analyses(builder.get()).get("dominance", "main")
    assert found.available(inner, mid)
    assert found.dominates(inner, out)
    assert not found.available(inner, out)
    assert found.available(mid, out) and found.available(between, out)
    assert found.available(x, out)
