"""The stages: what they check, and that groups become what was planned."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import relax

import tvmpass
from tvmpass.compile import pipeline
from tvmpass.compile.grouping import GROUP_ATTR, emit_groups, not_emitted
from tvmpass.compile.pipeline import Job
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger
from tvmpass.core.site import Candidate, FunctionView, Site
from tvmpass.testing.graphs import graph, named

R = relax.op
X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")


def job(**options) -> Job:
    return Job(parse_target("llvm", 1), Options(threads=1, **options), (), Ledger())


def chain():
    return graph(lambda x: named("b", R.exp(named("a", R.negative(x)))), ((4, 8),))


def candidate(view: FunctionView) -> Candidate:
    rule = next(r for r in tvmpass.rules() if r.name == "fuse-elementwise-chain")
    order = tuple(view.bindings)
    site = Site.make(rule, view, order[-1], order)
    identity = {"rule": rule.name, "epilogue": ["negative", "exp"]}
    return Candidate(site, order, "negative + exp", "fused", identity)


def test_a_stage_that_leaves_an_ill_formed_module_is_named():
    def breaks(mod):
        function = mod["main"]
        stray = relax.Var("stray", function.body.body.ty)
        body = relax.SeqExpr(function.body.blocks, stray)
        broken = relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
        return tvm.IRModule({"main": broken})

    with pytest.raises(TvmpassError, match="not well-formed after my-stage"):
        job().stage("my-stage", chain(), breaks)


def test_stages_are_timed_and_reported():
    made, seen = job(), []
    made.progress = seen.append
    made.stage("nothing", chain(), lambda mod: mod)
    assert seen == ["nothing"]
    assert made.stage_ms["nothing"] >= 0


def test_an_emitted_group_stands():
    mod = chain()
    view = FunctionView(mod, "main")
    chosen = candidate(view)
    emitted = emit_groups(mod, "main", [chosen])
    assert not_emitted(emitted, "main", view, [chosen]) == []
    assert not_emitted(mod, "main", view, [chosen]) == [chosen]


def attribute(function):
    return function.with_attr(GROUP_ATTR, json.dumps({"rule": "other"}))


def not_primitive(function):
    return function.without_attr("Primitive")


def another_body(function):
    made = graph(lambda x: R.exp(R.exp(x)), ((4, 8),))["main"].without_attr("global_symbol")
    return made.with_attrs(function.attrs)


@pytest.mark.parametrize("spoil", [attribute, not_primitive, another_body])
def test_a_label_proves_nothing(spoil):
    mod = chain()
    view = FunctionView(mod, "main")
    chosen = candidate(view)
    emitted = emit_groups(mod, "main", [chosen])
    emitted.update_func(emitted.get_global_var("fused"), spoil(emitted["fused"]))
    assert not_emitted(emitted, "main", view, [chosen]) == [chosen]


def test_a_group_that_was_not_emitted_is_rolled_back(monkeypatch):
    """Emission loses a group: the report does not call it applied, the build is right."""
    monkeypatch.setattr(pipeline, "emit_groups", lambda mod, name, groups: mod)
    with tvmpass.PassContext(config={"tvmpass.fusion": "always"}):
        lib = tvmpass.build(chain())
    (decision,) = [d for d in lib.report.decisions if d.rule == "fuse-elementwise-chain"]
    assert (decision.outcome, decision.refusal.code) == ("rolled_back", "not-emitted")
    np.testing.assert_allclose(lib.run(x=X)[0], np.exp(-X), rtol=2e-5)
    lib.report.ledger.assert_sum()


def test_kernels_that_are_called_twice_say_so():
    with tvmpass.PassContext(config={"tvmpass.fusion": "never"}):
        _, report = tvmpass.optimize(graph(lambda x: R.nn.softmax(R.nn.softmax(x)), ((4, 8),)))
    assert [k.calls for k in report.kernels] == [2]
    assert report.kernels[0].predicted.mean > 0
    assert report.kernels[0].schedule.startswith("library:") or report.kernels[0].schedule == "fallback"
