"""Numeric verification: planted faults are found, right rewrites pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard

import tvmpass
from tvmpass.compile import verify_numeric
from tvmpass.compile.schedule import Scheduler
from tvmpass.compile.target import parse_target
from tvmpass.compile.verify_inputs import difference, input_sets
from tvmpass.compile.verify_numeric import NumericVerifier
from tvmpass.core.engine import run_rule
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.testing.graphs import graph, named, operators

R = relax.op
OPTIONS = Options(threads=1, verify="numeric")


@pytest.fixture
def verifier():
    return NumericVerifier(parse_target("llvm", 1), OPTIONS)


@dataclass(frozen=True)
class ReplaceBy(tvmpass.SimplifyRule):
    """Replace every call of ``operator`` by what ``make`` gives."""

    operator: str = "relax.tanh"
    make: object = None

    def pattern(self):
        return is_op(self.operator)(wildcard()), {}

    def rewrite(self, site):
        return self.make(site.view.bindings[site.root].args[0])


@dataclass(frozen=True)
class DropColumnBias(tvmpass.SimplifyRule):
    """Drop the bias of a matmul where it is a column: the planted fault."""

    def pattern(self):
        x, w, bias = wildcard(), wildcard(), wildcard()
        matmul = is_op("relax.matmul")(x, w)
        return is_op("relax.add")(matmul, bias), {"matmul": matmul, "bias": bias}

    def rewrite(self, site):
        return site["matmul"] if site.shape("bias")[-1] == 1 else site.view.bindings[site.root]


def test_a_dropped_column_bias_is_rolled_back_and_its_site_named():
    w = relax.const(np.random.default_rng(0).standard_normal((8, 6)).astype("float32"))

    def body(x, bias):
        return named("act", R.nn.relu(named("bias", R.add(named("dense", R.matmul(x, w)), bias))))

    mod = graph(body, ((4, 8),), ((4, 1),))
    rules = (DropColumnBias(), *tvmpass.rules())
    with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
        lib = tvmpass.build(mod, rules=rules)
    (decision,) = [d for d in lib.report.decisions if d.rule == "drop-column-bias"]
    assert decision.outcome == "rolled_back"
    assert decision.refusal.code == "wrong-result"
    assert decision.refusal.evidence["inputs"] == "normal"
    assert decision.origin == ("dense", "bias")
    x, bias = np.ones((4, 8), "float32"), np.ones((4, 1), "float32")
    np.testing.assert_allclose(lib.run(x=x, y=bias)[0], np.maximum(x @ w.value.numpy() + 1, 0), atol=1e-4)
    verify = lib.report.to_json()["verify"]
    assert (verify["level"], verify["not_checked"]) == ("numeric", 0)
    assert verify["checked"] >= 2
    with tvmpass.PassContext(config={"tvmpass.verify": "structure"}):  # what the check is for
        wrong = tvmpass.build(mod, rules=rules)
    assert not np.allclose(wrong.run(x=x, y=bias)[0], lib.run(x=x, y=bias)[0])


def two(x):
    return R.multiply(x, relax.const(np.float32(2)))


def call_of(operator: str):
    """Return the Python function that makes a call of ``relax.nn.relu`` and the like."""
    return R.nn.relu if operator == "relax.nn.relu" else getattr(R, operator.removeprefix("relax."))


FAULTS = {
    "normal": ("relax.tanh", lambda x: R.multiply(R.tanh(x), relax.const(np.float32(1.0001)))),
    "nan": ("relax.nn.relu", lambda x: R.where(R.greater(x, ZERO), x, ZERO)),
    "infinity": ("relax.negative", lambda x: R.subtract(x, two(x))),
    "dtype-edge": ("relax.square", lambda x: R.multiply(R.abs(x), x)),
}
ZERO = relax.const(np.float32(0))


@pytest.mark.parametrize("name", FAULTS)
def test_each_set_of_inputs_finds_its_fault(name, verifier):
    operator, make = FAULTS[name]
    mod = graph(call_of(operator), ((4, 40),))
    after, decisions = run_rule(ReplaceBy(operator, make), mod, verifier)
    assert [(d.outcome, d.refusal.code) for d in decisions] == [("rolled_back", "wrong-result")]
    assert operators(after) == operators(mod)


RIGHT = {
    "negative": ("relax.negative", lambda x: R.subtract(relax.const(np.float32(-0.0)), x)),
    "relu": ("relax.nn.relu", lambda x: R.maximum(x, ZERO)),
    "square": ("relax.square", lambda x: R.multiply(x, x)),
    "abs": ("relax.abs", lambda x: R.maximum(x, R.negative(x))),
}


@pytest.mark.parametrize("shape", [(4, 40), ("n", 5), (0, 3), ()])
@pytest.mark.parametrize("name", RIGHT)
def test_right_rewrites_pass_on_nan_infinities_and_extremes(name, shape, verifier):
    operator, make = RIGHT[name]

    @dataclass(frozen=True)
    class Once(ReplaceBy):
        """Rewrite only where the operator stands alone."""

        def check(self, site):
            return None if len(site.view.bindings) == 1 else STOP()

    _, decisions = run_rule(Once(operator, make), graph(call_of(operator), (shape,)), verifier)
    assert decisions[0].outcome == "applied", decisions[0].refusal.text()
    assert (verifier.checked, verifier.not_checked) == (1, 0)


STOP = tvmpass.RefusalKind("done", "rewritten already")


def test_equal_rewrites_are_run_once(verifier):
    mod = graph(lambda x, y: (R.tanh(x), R.tanh(y)), ((4,),), ((4,),))
    rule = ReplaceBy("relax.tanh", lambda x: R.divide(R.sinh(x), R.cosh(x)))
    _, decisions = run_rule(rule, mod, verifier)
    assert len(decisions) == 2
    assert verifier.checked + verifier.not_checked <= 1


def test_what_is_too_large_is_reported_not_passed(verifier, monkeypatch):
    monkeypatch.setattr(verify_numeric, "MAX_SCALAR_OPS", 10)
    _, decisions = run_rule(
        ReplaceBy("relax.square", lambda x: R.multiply(x, x)),
        graph(lambda x: R.square(x), ((4, 40),)),
        verifier,
    )
    assert decisions[0].outcome == "applied"
    assert (verifier.checked, verifier.not_checked) == (0, 1)
    assert "bound" in verifier.notes[0]


def test_a_rule_that_reorders_sums_says_so(verifier):
    """A reassociating rewrite may overflow elsewhere, but not change finite results."""

    @dataclass(frozen=True)
    class Loose(ReplaceBy):
        """Reorder."""

        reassociates: ClassVar[bool] = True

        def check(self, site):
            return None if len(site.view.bindings) == 1 else STOP()

    big = relax.const(np.float32(1e30))

    def reordered(x):
        return R.divide(R.multiply(x, big), big)

    mod = graph(lambda x: R.abs(x), ((40,),))
    _, decisions = run_rule(Loose("relax.abs", lambda x: R.abs(reordered(x))), mod, verifier)
    assert decisions[0].outcome == "applied"
    strict = NumericVerifier(verifier.target, OPTIONS)

    @dataclass(frozen=True)
    class Strict(Loose):
        """Do not admit it."""

        reassociates: ClassVar[bool] = False

    _, decisions = run_rule(Strict("relax.abs", lambda x: R.abs(reordered(x))), mod, strict)
    assert decisions[0].outcome == "rolled_back"
    assert decisions[0].refusal.evidence["inputs"] == "extreme"


def test_a_fusion_whose_kernel_is_wrong_is_rolled_back(monkeypatch):
    """No kernel that is wrong alone is kept either: the build is right in the end."""
    spoil_kernels(monkeypatch)
    mod = graph(lambda x: named("b", R.exp(named("a", R.negative(x)))), ((16, 16),))
    with tvmpass.PassContext(config={"tvmpass.verify": "numeric", "tvmpass.fusion": "always"}):
        lib = tvmpass.build(mod)
    (decision,) = [d for d in lib.report.decisions if d.rule == "fuse-elementwise-chain"]
    assert (decision.outcome, decision.refusal.code) == ("rolled_back", "wrong-result")
    assert decision.origin == ("a", "b")
    x = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
    np.testing.assert_allclose(lib.run(x=x)[0], np.exp(-x), rtol=2e-5)


def spoil_kernels(monkeypatch) -> None:
    """Make the scheduler negate what every kernel stores."""
    schedule = Scheduler._schedule

    def spoiled(self, function, key):
        def negate(store):
            return tirx.BufferStore(store.buffer, -store.value, store.indices)

        made = schedule(self, function, key)
        body = tvm_ffi.structural_map(made.function.body, [(tirx.BufferStore, negate)], order="post")
        made.function = made.function.with_body(body)
        return made

    monkeypatch.setattr(Scheduler, "_schedule", spoiled)


def test_a_wrong_model_is_an_error_that_lists_the_applied_rules(monkeypatch):
    """The kernels pass alone, the whole does not: a fault of the pipeline itself."""
    monkeypatch.setattr(NumericVerifier, "candidate", lambda *_: None)
    monkeypatch.setattr(NumericVerifier, "kernel", lambda *_: None)
    spoil_kernels(monkeypatch)
    mod = graph(lambda x: R.exp(R.add(x, x)), ((16, 16),))
    context = tvmpass.PassContext(config={"tvmpass.verify": "numeric", "tvmpass.fusion": "always"})
    with context, pytest.raises(TvmpassError, match=r"rules applied: .*fuse-elementwise-chain.*without"):
        tvmpass.build(mod)


def test_a_small_net_passes_numerically_whole(verifier):
    rng = np.random.default_rng(0)
    w = relax.const(rng.standard_normal((8, 3, 3, 3)).astype("float32"))
    b = relax.const(rng.standard_normal((1, 8, 1, 1)).astype("float32"))

    def body(x):
        y = R.nn.relu(R.add(R.nn.conv2d(x, w, padding=(1, 1)), b))
        return R.nn.softmax(R.mean(y, [2, 3]))

    with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
        lib = tvmpass.build(graph(body, ((2, 3, 8, 8),)))
    assert not [d for d in lib.report.decisions if d.outcome == "rolled_back"]
    verify = lib.report.to_json()["verify"]
    assert verify["checked"] >= 3
    assert verify["not_checked"] == 0


def test_inputs_cover_the_special_values():
    x = relax.Var("x", relax.TensorType((8, 40), "float32"))
    i = relax.Var("i", relax.TensorType((8, 40), "int8"))
    sets = dict(input_sets([x, i], 0, True))
    assert list(sets) == ["normal", "special", "extreme"]
    assert np.isfinite(sets["normal"][0]).all()
    special = sets["special"][0]
    assert np.isnan(special).any() and (special == np.inf).any() and (special == -np.inf).any()
    assert (np.signbit(special) & (special == 0)).any()
    assert {-128, 127, 0} <= set(sets["extreme"][1].ravel().tolist())
    again = dict(input_sets([x, i], 0, True))
    np.testing.assert_array_equal(again["special"][0], special)
    assert list(dict(input_sets([x], 0, False))) == ["normal", "special"]


@pytest.mark.parametrize(
    "want, have, gap",
    [
        (np.float32([1, 2]), np.float32([1, 2.00001]), None),
        (np.float32([1, 2]), np.float32([1, 2.001]), "largest difference"),
        (np.float32([1e-5, 2e-5]), np.float32([1e-5, 2.1e-5]), "largest difference"),
        (np.float32([np.nan, 1]), np.float32([np.nan, 1]), None),
        (np.float32([np.nan, 1]), np.float32([0, 1]), "non-finite"),
        (np.float32([np.inf, 1]), np.float32([-np.inf, 1]), "non-finite"),
        (np.int32([1, 2]), np.int32([1, 3]), "1 of 2 values differ"),
        (np.float32([1]), np.float64([1]), "float64"),
        (np.float32([1]), np.float32([[1]]), "instead of"),
        (np.float32([]), np.float32([]), None),
        (np.float16([1]), np.float16([1.001]), None),
    ],
)
def test_differences_are_relative_to_the_scale(want, have, gap):
    found = difference([want], [have], loose=False)
    assert found is None if gap is None else gap in found
    assert difference([want], [], loose=False) == "0 outputs instead of 1"


def test_loose_lets_one_non_finite_value_stand_for_another():
    want, have = [np.float32([np.inf, 1])], [np.float32([np.nan, 1])]
    assert difference(want, have, loose=True) is None
    assert difference(want, [np.float32([2, 1])], loose=True) is not None
