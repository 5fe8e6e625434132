"""Builds end to end on tiny nets: options, rules, reports, TVM's own entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

import tvmpass
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.testing.graphs import graph, named

R = relax.op
FUSION = {"grow-epilogue", "fuse-conv-input", "fuse-elementwise-chain", "fuse-reduce-producer"}


def net():
    """A convolution net of two layers with a residual, in NCHW."""
    rng = np.random.default_rng(0)

    def constant(*shape):
        return relax.const(rng.standard_normal(shape).astype("float32"))

    w1, b1, w2 = constant(8, 3, 3, 3), constant(1, 8, 1, 1), constant(8, 8, 1, 1)

    def body(x):
        a = named("conv1", R.nn.conv2d(x, w1, padding=(1, 1)))
        a = named("relu1", R.nn.relu(named("bias1", R.add(a, b1))))
        b = named("conv2", R.nn.conv2d(a, w2))
        b = named("relu2", R.nn.relu(named("skip", R.add(b, a))))
        return named("pool", R.mean(b, [2, 3]))

    return graph(body, ((1, 3, 8, 8),))


X = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")


def stock(mod, *arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(a) for a in arrays]).numpy()


@pytest.fixture(scope="module")
def expected():
    return stock(net(), X)


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-5 * np.abs(want).max())


def fused(report) -> list[str]:
    return [d.rule for d in report.decisions if d.outcome == "applied" and d.rule in FUSION]


def losers(report) -> list:
    return [d for d in report.decisions if d.outcome == "unprofitable" and d.rule in FUSION]


@pytest.mark.parametrize("fusion", ["auto", "always", "never"])
def test_every_fusion_setting_computes_the_same(expected, fusion):
    with tvmpass.PassContext(config={"tvmpass.fusion": fusion}):
        lib = tvmpass.build(net())
    close(lib.run(x=X)[0], expected)
    lib.report.ledger.assert_sum()
    assert bool(fused(lib.report)) == (fusion != "never")
    if fusion == "never":
        assert {d.evidence["reason"] for d in losers(lib.report)} == {"never"}


def test_kernels_name_their_source_nodes():
    with tvmpass.PassContext(config={"tvmpass.fusion": "always"}):
        _, report = tvmpass.optimize(net())
    sources = {tuple(k.origin) for k in report.kernels}
    assert ("conv1", "bias1", "relu1") in sources
    assert ("conv2", "skip", "relu2") in sources


def test_source_nodes_survive_rewrites_that_make_values_of_one_name():
    @dataclass(frozen=True)
    class SplitTanh(tvmpass.SimplifyRule):
        """Write tanh as a negative of two others, to make unnamed values."""

        def pattern(self):
            x = wildcard()
            return is_op("relax.tanh")(x), {"x": x}

        def rewrite(self, site):
            return R.sin(R.nn.softmax(site["x"]))

    def body(x):
        a = named("first", R.tanh(named("cos", R.cos(x))))
        return named("last", R.add(named("second", R.tanh(a)), x))

    with tvmpass.PassContext(config={"tvmpass.fusion": "never"}):
        _, report = tvmpass.optimize(graph(body, ((4, 4),)), rules=(*tvmpass.rules(), SplitTanh()))
    assert [k.origin for k in report.kernels] == [["cos"], ["first", "second"], ["first", "second"], ["last"]]


def test_opt_level_0_runs_no_rule_and_no_fusion(expected):
    with tvmpass.PassContext(opt_level=0):
        lib = tvmpass.build(net())
    close(lib.run(x=X)[0], expected)
    assert lib.report.decisions == []
    assert set(lib.report.to_json()["disabled"]) >= FUSION | {"dead-code", "prefer-nhwc"}


def test_levels_switch_on_kind_by_kind():
    def disabled(level):
        """Return what an opt_level leaves out."""
        with tvmpass.PassContext(opt_level=level):
            return set(tvmpass.optimize(net())[1].to_json()["disabled"])

    assert disabled(1) >= FUSION and "dead-code" not in disabled(1)
    assert not disabled(2) & FUSION
    assert {"recognize-softmax", "recognize-gelu"} <= disabled(2)
    assert disabled(3) == set()


@pytest.mark.parametrize("name", ["GrowEpilogue", "grow-epilogue"])
def test_a_disabled_rule_leaves_its_sites_and_is_listed(expected, name):
    with tvmpass.PassContext(disabled_pass=[name], config={"tvmpass.fusion": "always"}):
        lib = tvmpass.build(net())
    close(lib.run(x=X)[0], expected)
    data = lib.report.to_json()
    assert data["disabled"] == ["grow-epilogue"]
    assert "grow-epilogue" not in data["rules"]
    assert not any("conv2d_add" in k.name for k in lib.report.kernels)


def test_a_disabled_planner_disables_its_rules():
    with tvmpass.PassContext(disabled_pass=["PlanFusion"]):
        _, report = tvmpass.optimize(net())
    assert set(report.to_json()["disabled"]) == FUSION
    with tvmpass.PassContext(disabled_pass=["PlanLayout"]):
        _, report = tvmpass.optimize(net())
    assert "prefer-nhwc" in report.to_json()["disabled"]


def test_a_required_rule_runs_below_its_level():
    config = {"tvmpass.fusion": "always"}
    with tvmpass.PassContext(opt_level=0, required_pass=["GrowEpilogue"], config=config):
        _, report = tvmpass.optimize(net())
    assert "grow-epilogue" in fused(report)
    assert "fuse-elementwise-chain" in report.to_json()["disabled"]


def test_without_and_rules():
    _, report = tvmpass.optimize(net(), without=("grow-epilogue", "PreferNHWC"))
    assert set(report.to_json()["disabled"]) == {"grow-epilogue", "prefer-nhwc"}
    _, report = tvmpass.optimize(net(), rules=())
    assert report.rules == {}
    with pytest.raises(UsageError, match="without: unknown rule 'grow-epilog'; did you mean 'grow-epilogue'"):
        tvmpass.optimize(net(), without=("grow-epilog",))
    with pytest.raises(UsageError, match="two rules are called"):
        tvmpass.optimize(net(), rules=tvmpass.rules() * 2)


def test_two_builds_give_one_report_byte_for_byte():
    first = tvmpass.build(net())
    assert tvmpass.build(net()).report.dumps() == first.report.dumps()


def test_two_processes_give_one_report(tmp_path):
    script = (
        "import numpy as np, sys, tvmpass\n"
        "from tvm import relax\n"
        "from tvmpass.testing.graphs import graph, named\n"
        "w = relax.const(np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype('float32'))\n"
        "R = relax.op\n"
        "mod = graph(lambda x: R.mean(R.nn.relu(named('c', R.nn.conv2d(x, w))), [2, 3]), (('n', 3, 8, 8),))\n"
        "sys.stdout.write(tvmpass.optimize(mod)[1].dumps())\n"
    )
    command = [sys.executable, "-c", script]
    runs = set()
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        runs.add(done.stdout)
    assert len(runs) == 1
    assert '"origin": [\n    "c"' in runs.pop()


def test_timings_only_on_demand():
    assert "timings" not in tvmpass.build(net()).report.to_json()
    assert "codegen" in tvmpass.build(net(), timings=True).report.to_json()["timings"]


def test_ir_is_dumped_before_and_after_each_stage(tmp_path):
    tvmpass.build(net(), dump_ir=tmp_path / "ir")
    names = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert names[:2] == ["01-canonical.after.py", "01-canonical.before.py"]
    assert any(n.endswith("-fusion.after.py") for n in names)
    assert all(p.read_text().strip() for p in (tmp_path / "ir").iterdir())


def test_progress_names_the_stages():
    seen = []
    tvmpass.build(net(), progress=seen.append)
    assert seen[0] == "canonical"
    assert seen[-1] == "generating code"


def test_a_stock_context_opened_inside_a_build_changes_nothing(expected):
    """A rule that opens a plain TVM context does not lose the options read at entry."""

    @dataclass(frozen=True)
    class Meddles(tvmpass.SimplifyRule):
        """Run a stock pass under a stock context while matching."""

        def match(self, view):
            with tvm.transform.PassContext(opt_level=0, disabled_pass=["FuseOps"]):
                relax.transform.CanonicalizeBindings()(view.mod)
            return ()

    with tvmpass.PassContext(config={"tvmpass.fusion": "never"}):
        lib = tvmpass.build(net(), rules=(Meddles(), *tvmpass.rules()))
    assert fused(lib.report) == []
    assert lib.report.ledger.notes == []


def test_a_build_under_a_stock_context_says_that_it_used_the_defaults():
    with tvm.transform.PassContext(opt_level=0):
        lib = tvmpass.build(net())
    assert fused(lib.report)
    assert "stock" in lib.report.to_json()["notes"][0]


def test_instruments_see_rules_by_class_name():
    seen = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, mod, info):
            seen.append(info.name)

    with tvmpass.PassContext(instruments=[Watch()]):
        tvmpass.optimize(net())
    assert {"DeadCode", "FoldConstants", "GrowEpilogue", "PlanFusion", "PlanLayout"} <= set(seen)


def test_tvm_options_of_our_context_reach_code_generation(monkeypatch):
    seen = []
    build = tvm.tirx.build

    def spy(mod, target):
        config = dict(tvm.transform.PassContext.current().config)
        seen.append(bool(config.get("tirx.disable_vectorize")))
        return build(mod, target)

    monkeypatch.setattr(tvm.tirx, "build", spy)
    monkeypatch.setenv("TVMPASS_CACHE_SIZE", "0")
    with tvmpass.PassContext(config={"tirx.disable_vectorize": True}):
        tvmpass.build(graph(lambda x: R.exp(x), ((4,),)))
    assert seen and all(seen)


def test_params_are_bound_by_name():
    mod = graph(lambda x, y: R.matmul(x, y), ((2, 3),), ((3, 4),))
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    x = np.ones((2, 3), "float32")
    lib = tvmpass.build(mod, params={"y": weight})
    assert [i.name for i in lib.input_info] == ["x"]
    close(lib.run(x=x)[0], x @ weight)
    with pytest.raises(UsageError, match="unknown parameter 'yy'; did you mean 'y'"):
        tvmpass.build(mod, params={"yy": weight})


NO_MODELS = [(None, "expected an IRModule"), (tvm.IRModule(), "no function 'main'")]


@pytest.mark.parametrize("mod, match", NO_MODELS)
def test_what_is_no_model(mod, match):
    with pytest.raises(UsageError, match=match):
        tvmpass.build(mod)


def test_an_output_that_is_an_input_and_a_constant():
    mod = graph(lambda x: (x, R.exp(x), relax.const(np.float32([1, 2]))), ((3,),))
    found = tvmpass.build(mod).run(x=np.float32([1, 2, 3]))
    assert [f.tolist() for f in (found[0], found[2])] == [[1, 2, 3], [1, 2]]


def test_the_users_module_is_not_changed():
    mod = net()
    before = mod.script()
    tvmpass.build(mod)
    assert mod.script() == before


def test_the_price_budget_is_kept_and_reported():
    with tvmpass.PassContext(config={"tvmpass.price_budget": 0}):
        _, report = tvmpass.optimize(net())
    assert fused(report) == []
    reasons = {d.evidence["reason"] for d in losers(report)}
    assert "budget" in reasons
    assert reasons <= {"budget", "pruned"}


def test_a_cost_model_that_is_not_there():
    context = tvmpass.PassContext(config={"tvmpass.cost_model": "nowhere.json"})
    with context, pytest.raises(TvmpassError, match="no such file: nowhere.json"):
        tvmpass.build(net())


def test_kernels_inside_branches_are_built():
    tensor = relax.TensorType((3,), "float32")
    x, cond = relax.Var("x", tensor), relax.Var("cond", relax.TensorType((), "bool"))

    def branch(operator):
        out = relax.Var("out", tensor)
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(out, operator(x))])], out)

    chosen = relax.Var("chosen", tensor)
    block = relax.BindingBlock([relax.VarBinding(chosen, relax.If(cond, branch(R.exp), branch(R.tanh)))])
    main = relax.Function([x, cond], relax.SeqExpr([block], chosen), tensor)
    mod = tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
    lib = tvmpass.build(relax.transform.Normalize()(mod))
    value = np.float32([-1, 0, 1])
    for flag, function in ((True, np.exp), (False, np.tanh)):
        found = lib.run(x=value, cond=np.array(flag))[0]
        np.testing.assert_allclose(found, function(value), rtol=1e-5, atol=1e-6)
