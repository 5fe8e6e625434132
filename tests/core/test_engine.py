"""The engine: fixed point, overlap, roll-back, and one decision per site."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.engine import Sites, relax_functions, run_rule, simplify
from tvmpass.core.errors import TvmpassError
from tvmpass.core.report import Ledger
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import REMOVED, Site
from tvmpass.testing.graphs import graph, named, operators

R = relax.op
NO = RefusalKind("not-today", "{value} is not to be touched")


@dataclass(frozen=True)
class DoubleNegative(SimplifyRule):
    """Replace a negative of a negative by its operand."""

    def pattern(self):
        x = wildcard()
        inner = is_op("relax.negative")(x)
        return is_op("relax.negative")(inner), {"x": x, "inner": inner}

    def rewrite(self, site):
        return site["x"]


@dataclass(frozen=True)
class RefuseExp(SimplifyRule):
    """Match every exp and refuse it."""

    refusals: ClassVar = (NO,)

    def pattern(self):
        x = wildcard()
        return is_op("relax.exp")(x), {"x": x}

    def check(self, site):
        return NO(value=site.root.name)

    def rewrite(self, site):
        raise AssertionError("a refused site is never rewritten")


@dataclass(frozen=True)
class TanhBy(SimplifyRule):
    """Replace every tanh by what ``make`` gives."""

    make: object = None

    def match(self, view):
        for var, value in view.bindings.items():
            if view.op(value) == "relax.tanh":
                yield Site.make(self, view, var, {var}, {"x": value.args[0]})

    def rewrite(self, site):
        return self.make(site)


def outcomes(decisions) -> Counter:
    return Counter(d.outcome for d in decisions)


def test_chain_reaches_the_fixed_point():
    mod = graph(lambda x: R.negative(R.negative(R.negative(R.negative(R.negative(x))))), ((3,),))
    after, decisions = run_rule(DoubleNegative(), mod)
    assert operators(after) == ["negative"]
    # Two go; the sites in between overlapped them and left with them, or are decided once.
    assert outcomes(decisions)["applied"] == 2
    assert all(d.outcome in ("applied", "superseded") for d in decisions)
    winners = {d.site for d in decisions if d.outcome == "applied"}
    assert all(d.by in winners for d in decisions if d.outcome == "superseded")


def test_a_second_run_applies_nothing():
    mod = graph(lambda x: R.negative(R.negative(x)), ((3,),))
    after, _ = run_rule(DoubleNegative(), mod)
    again, decisions = run_rule(DoubleNegative(), after)
    assert decisions == []
    assert tvm_ffi.structural_equal(again, after)


def test_overlap_is_superseded_by_the_winner():
    mod = graph(lambda x: R.exp(R.negative(R.negative(R.negative(x)))), ((3,),))
    after, decisions = run_rule(DoubleNegative(), mod)
    assert operators(after) == ["negative", "exp"]
    assert [d.outcome for d in decisions] == ["applied", "superseded"]
    assert decisions[1].by == decisions[0].site


def test_an_escaping_inner_value_stays():
    def body(x):
        inner = R.negative(x)
        return R.negative(inner), inner

    mod = graph(body, ((3,),))
    after, decisions = run_rule(DoubleNegative(), mod)
    assert operators(after)[0] == "negative"
    assert len(after["main"].body.body.fields) == 2
    assert outcomes(decisions) == {"applied": 1}


def test_an_inner_value_nobody_reads_goes_with_its_match():
    mod = graph(lambda x: R.exp(R.negative(R.negative(x))), ((3,),))
    after, _ = run_rule(DoubleNegative(), mod)
    assert operators(after) == ["exp"]


def test_site_that_escapes_says_who_reads():
    def body(x):
        inner = R.negative(x)
        return R.exp(R.negative(inner)), R.tanh(inner)

    seen = []

    @dataclass(frozen=True)
    class Look(DoubleNegative):
        """Look at escapes."""

        def check(self, site):
            seen.append((site.escapes("inner"), site.readers("inner"), site.escapes("x")))
            return NO(value="x")

    run_rule(Look(), graph(body, ((3,),)))
    assert seen == [(True, ["relax.tanh"], False)]


def test_refusals_keep_the_first_decision_and_are_counted_once():
    mod = graph(lambda x: R.exp(R.negative(R.negative(R.negative(R.exp(x))))), ((3,),))
    sites = Sites(Ledger())
    after = simplify(mod, (RefuseExp(), DoubleNegative()), sites)
    simplify(after, (RefuseExp(),), sites)
    sites.ledger.assert_sum()
    row = sites.ledger.counts()["refuse-exp"]
    # Operands and readers are of the same kinds after the rewrite: still the same two sites.
    assert (row["matched"], row["illegal"]) == (2, 2)
    refused = [d for d in sites.ledger.decisions if d.outcome == "illegal"]
    assert {d.refusal.code for d in refused} == {"not-today"}
    assert all(d.refusal.text().endswith("is not to be touched") for d in refused)


def test_equal_sites_differ_by_their_ordinal():
    mod = graph(lambda x, y: (R.exp(x), R.exp(y)), ((3,),), ((3,),))
    _, decisions = run_rule(RefuseExp(), mod)
    digests = [d.site.split("#") for d in decisions]
    assert digests[0][0] == digests[1][0]
    assert [n for _, n in digests] == ["0", "1"]


def test_sites_differ_by_source_node_reader_and_constant():
    two, three = relax.const(np.float32(2)), relax.const(np.float32(3))

    @dataclass(frozen=True)
    class Adds(SimplifyRule):
        """Refuse every add."""

        def pattern(self):
            return is_op("relax.add")(wildcard(), wildcard()), {}

        def check(self, site):
            return NO(value=site.root.name)

    def digest(body):
        _, decisions = run_rule(Adds(), graph(body, ((3,),)))
        return decisions[0].site

    base = digest(lambda x: R.add(x, two))
    assert digest(lambda x: R.add(x, two)) == base
    assert digest(lambda x: R.add(x, three)) != base
    assert digest(lambda x: named("node", R.add(x, two))) != base
    assert digest(lambda x: R.exp(R.add(x, two))) != base


def test_site_ids_are_the_same_in_another_process():
    script = (
        "import numpy as np\n"
        "from tvm import relax\n"
        "from relay_passes.simplify import DeadCode\n"
        "from tvmpass.core.site import FunctionView\n"
        "from tvmpass.testing.graphs import graph, named\n"
        "w = relax.const(np.ones((4, 3, 3, 3), 'float32'))\n"
        "def body(x):\n"
        "    c = named('conv', relax.op.nn.conv2d(x, w, padding=(1, 1)))\n"
        "    s = relax.op.split(c, 2, axis=1)\n"
        "    return relax.op.concat([s[0], relax.op.exp(s[1])], axis=1), relax.op.reshape(c, (1, -1))\n"
        "view = FunctionView(graph(body, (('n', 3, 8, 8),)), 'main')\n"
        "from tvmpass.core.site import Site\n"
        "print(*[Site.make(DeadCode(), view, v, {v}).digest for v in view.bindings])\n"
    ).replace("(1, -1)", "(x.ty.shape[0], 256)")
    runs = {subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
            for _ in range(2)}
    assert len(runs) == 1
    assert len(runs.pop().split()) >= 6


def wrong_shape(site):
    return R.reshape(site["x"], (3, 1))


def wrong_dtype(site):
    return R.astype(site["x"], "float64")


@pytest.mark.parametrize("make", [wrong_shape, wrong_dtype])
def test_type_change_is_rolled_back(make):
    mod = graph(lambda x: R.exp(R.tanh(x)), ((3,),))
    after, decisions = run_rule(TanhBy(make), mod)
    assert [d.outcome for d in decisions] == ["rolled_back"]
    assert decisions[0].refusal.code == "type-changed"
    assert "3" in decisions[0].refusal.evidence["before"]
    assert tvm_ffi.structural_equal(after, mod)


def raises(site):
    raise ValueError("a mistake of the author")


def ill_typed(site):
    return R.add(site["x"], relax.const(np.ones((7,), "float32")))


def no_expression(site):
    return None


@pytest.mark.parametrize("make", [raises, ill_typed, no_expression])
def test_a_failing_rewrite_is_rolled_back(make):
    mod = graph(lambda x: R.exp(R.tanh(x)), ((3,),))
    after, decisions = run_rule(TanhBy(make), mod)
    assert [d.outcome for d in decisions] == ["rolled_back"]
    assert decisions[0].refusal.code == "rewrite-failed"
    assert decisions[0].refusal.text()
    assert tvm_ffi.structural_equal(after, mod)


def test_our_own_error_in_a_rewrite_keeps_its_class():
    def stop(site):
        raise TvmpassError("the model cannot be built")

    with pytest.raises(TvmpassError, match="cannot be built"):
        run_rule(TanhBy(stop), graph(lambda x: R.tanh(x), ((3,),)))


def test_an_exception_in_check_is_kept_as_the_cause():
    @dataclass(frozen=True)
    class Broken(DoubleNegative):
        """Raise in check."""

        def check(self, site):
            raise KeyError("missing")

    with pytest.raises(TvmpassError, match="rule broken: check raised KeyError: 'missing'") as caught:
        run_rule(Broken(), graph(lambda x: R.negative(R.negative(x)), ((3,),)))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("answer", [False, True, "no"])
def test_check_must_answer_with_none_or_a_refusal(answer):
    @dataclass(frozen=True)
    class Answers(DoubleNegative):
        """Answer with something else."""

        def check(self, site):
            return answer

    with pytest.raises(TvmpassError, match="answers.*Refusal"):
        run_rule(Answers(), graph(lambda x: R.negative(R.negative(x)), ((3,),)))


def stray(site):
    return R.exp(relax.Var("stray", site["x"].ty))


def test_ill_formed_result_is_rolled_back():
    mod = graph(lambda x: R.exp(R.tanh(x)), ((3,),))
    after, decisions = run_rule(TanhBy(stray), mod)
    assert [(d.outcome, d.refusal.code) for d in decisions] == [("rolled_back", "ill-formed")]
    assert tvm_ffi.structural_equal(after, mod)


def test_one_ill_formed_rewrite_does_not_lose_the_others():
    def make(site):
        return stray(site) if site.view.op(site["x"]) == "relax.exp" else R.sigmoid(site["x"])

    mod = graph(lambda x: R.add(R.tanh(R.exp(x)), R.tanh(R.sin(x))), ((3,),))
    after, decisions = run_rule(TanhBy(make), mod)
    assert sorted(d.outcome for d in decisions) == ["applied", "rolled_back"]
    assert sorted(operators(after)) == ["add", "exp", "sigmoid", "sin", "tanh"]


def test_a_site_that_waited_for_a_rolled_back_one_is_still_decided():
    @dataclass(frozen=True)
    class Pairs(DoubleNegative):
        """Spoil the first of two overlapping sites."""

        def rewrite(self, site):
            if isinstance(site["x"], relax.Var) and site["x"] in site.view.function.params:
                return R.exp(relax.Var("stray", site["x"].ty))
            return site["x"]

    mod = graph(lambda x: R.exp(R.negative(R.negative(R.negative(x)))), ((3,),))
    after, decisions = run_rule(Pairs(), mod)
    assert [d.outcome for d in decisions] == ["rolled_back", "applied"]
    assert operators(after) == ["negative", "exp"]


def test_removed_deletes_an_unread_root():
    @dataclass(frozen=True)
    class Unread(SimplifyRule):
        """Remove exp that nothing reads."""

        def match(self, view):
            for var in view.bindings:
                if view.op(var) == "relax.exp" and not view.users.get(var) and var not in view.outputs:
                    yield Site.make(self, view, var, {var})

        def rewrite(self, site):
            return REMOVED

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(R.exp(x))
            out = builder.emit_output(R.tanh(x))
        builder.emit_func_output(out)
    after, decisions = run_rule(Unread(), builder.get())
    assert operators(after) == ["tanh"]
    assert outcomes(decisions) == {"applied": 1}


def test_removing_what_is_read_is_rolled_back():
    mod = graph(lambda x: R.exp(R.tanh(x)), ((3,),))
    after, decisions = run_rule(TanhBy(lambda site: REMOVED), mod)
    assert [(d.outcome, d.refusal.code) for d in decisions] == [("rolled_back", "ill-formed")]
    assert operators(after) == ["tanh", "exp"]


def test_a_rules_own_verify_rolls_back():
    @dataclass(frozen=True)
    class Doubtful(DoubleNegative):
        """Refuse afterwards."""

        def verify(self, site, after):
            return NO(value=site.root.name)

    mod = graph(lambda x: R.negative(R.negative(x)), ((3,),))
    after, decisions = run_rule(Doubtful(), mod)
    assert [(d.outcome, d.refusal.code) for d in decisions] == [("rolled_back", "not-today")]
    assert tvm_ffi.structural_equal(after, mod)


def test_the_verifier_sees_each_rewrite_before_it_counts():
    calls = []

    class Verifier:
        def rewrite(self, site, after):
            calls.append((site.rule.name, after[1]))
            return None if len(calls) > 1 else NO(value="first")

    mod = graph(lambda x: (R.tanh(x), R.tanh(R.exp(x))), ((3,),))
    after, decisions = run_rule(TanhBy(lambda s: R.sigmoid(s["x"])), mod, Verifier())
    assert [d.outcome for d in decisions] in (["rolled_back", "applied"], ["applied", "rolled_back"])
    assert sorted(operators(after)) == ["exp", "sigmoid", "tanh"]
    assert len(calls) == 2


def test_every_function_is_swept_main_first():
    one = graph(lambda x: R.negative(R.negative(x)), ((3,),))
    other = relax.utils.copy_with_new_vars(one["main"]).with_attr("global_symbol", "other")
    mod = tvm.IRModule({"other": other, "main": one["main"]})
    assert relax_functions(mod) == ["main", "other"]
    after, decisions = run_rule(DoubleNegative(), mod)
    assert [d.function for d in decisions] == ["main", "other"]
    assert operators(after, "main") == operators(after, "other") == []


def test_rules_that_undo_each_other_are_an_error():
    @dataclass(frozen=True)
    class SigmoidByTanh(SimplifyRule):
        """Go back."""

        def pattern(self):
            x = wildcard()
            return is_op("relax.sigmoid")(x), {"x": x}

        def rewrite(self, site):
            return R.tanh(site["x"])

    rules = (TanhBy(lambda s: R.sigmoid(s["x"])), SigmoidByTanh())
    with pytest.raises(TvmpassError, match="tanh-by, sigmoid-by-tanh reach no fixed point"):
        simplify(graph(lambda x: R.tanh(x), ((3,),)), rules)


def test_new_operators_carry_the_source_nodes_of_their_site():
    from tvmpass.core.source import origin

    mod = graph(lambda x: named("a", R.tanh(x)), ((3,),))
    after, decisions = run_rule(TanhBy(lambda s: R.exp(R.negative(s["x"]))), mod)
    assert decisions[0].origin == ("a",)
    values = [b.value for b in after["main"].body.blocks[0].bindings]
    assert [origin(v) for v in values] == [("a",), ("a",)]


def test_instruments_see_one_entry_per_rule_and_may_skip_it():
    seen = []

    @tvm.instrument.pass_instrument
    class Watch:
        def should_run(self, mod, info):
            seen.append(info.name)
            return info.name != "DoubleNegative"

    mod = graph(lambda x: R.negative(R.negative(x)), ((3,),))
    with tvm.transform.PassContext(instruments=[Watch()]):
        after, decisions = run_rule(DoubleNegative(), mod)
    assert "DoubleNegative" in seen
    assert decisions == []
    assert tvm_ffi.structural_equal(after, mod)


def test_a_refusal_is_a_value():
    refusal = NO(value="a")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.text()) == ("not-today", "a is not to be touched")
    assert refusal.evidence == {"value": "a"}
    with pytest.raises(ValueError, match="kebab-case"):
        RefusalKind("Not_Kebab", "")


@dataclass(frozen=True)
class Faulty(SimplifyRule):
    """Match every exp, and fail in ``method`` with ``answer``."""

    method: str = "check"
    answer: object = None

    def match(self, view):
        if self.method == "match":
            self._fail()
        exps = [var for var, value in view.bindings.items() if view.op(value) == "relax.exp"]
        return [Site.make(self, view, var, {var}, {}) for var in exps]

    def check(self, site):
        return self._fail() if self.method == "check" else None

    def rewrite(self, site):
        return self._fail()

    def _fail(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("method", ["match", "check"])
@pytest.mark.parametrize("fault", [RuntimeError("boom"), KeyError("z"), SystemExit(0)])
def test_a_faulty_rule_is_one_error_that_names_it(method, fault):
    with pytest.raises(TvmpassError, match=f"rule faulty: {method} raised {type(fault).__name__}"):
        run_rule(Faulty(method, fault), graph(R.exp, ((2, 3),)))


def test_an_answer_of_the_wrong_type_names_the_rule():
    with pytest.raises(TvmpassError, match="rule faulty: check returned 'no'"):
        run_rule(Faulty("check", "no"), graph(R.exp, ((2, 3),)))


@pytest.mark.parametrize("method", ["match", "check", "rewrite"])
def test_an_interrupt_inside_a_rule_stays_one(method):
    with pytest.raises(KeyboardInterrupt):
        run_rule(Faulty(method, KeyboardInterrupt()), graph(R.exp, ((2, 3),)))
