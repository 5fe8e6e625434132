"""The manager: computed once, kept where nothing changed, dropped where it did."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tvmpass import catalogue
from tvmpass.core.analysis import KINDS, Analyses
from tvmpass.core.engine import run_rule
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph

R = relax.op


def two_functions():
    one = graph(lambda x: R.exp(R.negative(x)), ((3,),))["main"]
    other = relax.utils.copy_with_new_vars(one).with_attr("global_symbol", "other")
    return tvm.IRModule({"main": one, "other": other})


def change(mod, name: str):
    """Return ``mod`` with another function in place of ``name``."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    made = graph(lambda x: R.tanh(x), ((3,),))["main"].with_attr("global_symbol", name)
    result.update_func(result.get_global_var(name), made)
    return result


@pytest.mark.parametrize("kind", ["uses", *KINDS])
def test_a_result_is_computed_once(kind):
    analyses = Analyses(two_functions())
    assert analyses.get(kind, "main") is analyses.get(kind, "main")
    assert analyses.get(kind, "main") is not analyses.get(kind, "other")


def test_an_unknown_kind_lists_the_known():
    with pytest.raises(KeyError, match="no analysis 'aliases'; there are: uses, liveness"):
        Analyses(two_functions()).get("aliases", "main")


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_function_loses_what_is_not_preserved(kind):
    analyses = Analyses(two_functions())
    old = {name: analyses.get(kind, name) for name in ("main", "other")}
    analyses.after(change(analyses.mod, "main"))
    assert analyses.get(kind, "main") is not old["main"]
    assert analyses.get(kind, "other") is old["other"]


def test_what_is_preserved_stays_until_a_change_that_does_not_preserve_it():
    analyses = Analyses(two_functions())
    old = analyses.get("types", "main")
    analyses.get("work", "main")
    analyses.after(change(analyses.mod, "main"), {"types", "uses"})
    assert analyses.get("types", "main") is old
    assert list(analyses.get("uses", "main").bindings) == list(analyses.get("work", "main"))
    analyses.after(change(analyses.mod, "main"), {"work"})
    assert analyses.get("types", "main") is not old


def test_the_view_of_an_unchanged_function_knows_the_new_module():
    analyses = Analyses(two_functions())
    old = analyses.get("uses", "other")
    mod = change(analyses.mod, "main")
    analyses.after(mod)
    new = analyses.get("uses", "other")
    assert new.mod.same_as(mod)
    assert not old.mod.same_as(mod)
    assert new.bindings is old.bindings


def test_a_function_that_is_gone_is_forgotten():
    analyses = Analyses(two_functions())
    analyses.get("uses", "other")
    analyses.after(graph(lambda x: R.exp(x), ((3,),)))
    with pytest.raises(Exception, match="other"):
        analyses.get("uses", "other")


DECLARING = [r for r in catalogue.of_kind(catalogue.rules(), "simplify") if r.preserves]


def test_rules_declare_only_what_exists():
    for rule in catalogue.rules():
        assert rule.preserves <= set(KINDS)
    assert DECLARING


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=10))
def test_a_preserved_result_says_the_same_about_what_remains(steps):
    """For each rule that preserves something: its old results equal fresh ones."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for kind, pick in steps:
                a = values[pick % len(values)]
                made = [R.exp(a), R.add(a, values[-1]), R.reshape(a, (4, 8)), R.negative(a)][kind]
                values.append(builder.emit(made))
            out = builder.emit_output(values[-1])
        builder.emit_func_output(out)
    mod = builder.get()
    for rule in DECLARING:
        old = {kind: KINDS[kind](FunctionView(mod, "main")) for kind in rule.preserves}
        after, _ = run_rule(rule, mod)
        view = FunctionView(after, "main")
        for kind, result in old.items():
            assert about(KINDS[kind](view), view) == about(result, view), (rule.name, kind)


def about(result, view):
    """Return what a result says about the variables of ``view``."""
    remaining = [*view.function.params, *view.bindings]
    if hasattr(result, "items"):
        return [result.get(var) for var in remaining]
    if hasattr(result, "dominates"):
        return [[result.dominates(a, b) for a in remaining] for b in remaining]
    if hasattr(result, "storages"):
        return [[result.may_alias(a, b) for a in remaining] for b in remaining]
    names = vars(result)
    return {name: [var in values for var in remaining] for name, values in names.items()}
