"""The laws of rules and decisions, on graphs that hypothesis grows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmpass
from tvmpass import catalogue
from tvmpass.core.decision import OUTCOMES, Estimate, Refusal
from tvmpass.core.engine import Sites, checked, simplify
from tvmpass.core.options import Options
from tvmpass.core.plan import Price, plan_function, settle
from tvmpass.core.report import Ledger
from tvmpass.core.site import FunctionView, static_shape
from tvmpass.testing.graphs import graph, named, operators

R = relax.op
RULES = tvmpass.rules()
SIMPLIFY = catalogue.of_kind(RULES, "simplify")
FUSION = [r for r in catalogue.of_kind(RULES, "proposal") if r.plans == "fusion"]
BY_NAME = {rule.name: rule for rule in RULES}

UNARY = [R.exp, R.negative, R.nn.relu, R.tanh, R.abs, R.sigmoid, R.square]
BINARY = [R.add, R.subtract, R.multiply, R.maximum, R.minimum, R.divide]
SCALARS = [relax.const(np.float32(v)) for v in (0.0, -0.0, 1.0, 2.0, 0.5)]
RNG = np.random.default_rng(0)
ROW = relax.const(RNG.standard_normal(8).astype("float32"))
COLUMN = relax.const(RNG.standard_normal((4, 1)).astype("float32"))
SQUARE = relax.const(RNG.standard_normal((8, 8)).astype("float32"))

steps = st.tuples(st.integers(0, 11), st.integers(0, 99), st.integers(0, 99))
recipes = st.tuples(st.lists(steps, min_size=1, max_size=14), st.lists(st.integers(0, 99), max_size=2))


def grow(recipe):
    """Make a module from numbers: each step picks an operator and earlier values."""
    kinds, extra = recipe

    def body(x, y):
        values = [x, y]
        for number, (kind, a, b) in enumerate(kinds):
            one, other = values[-1 - a % min(len(values), 4)], values[-1 - b % min(len(values), 4)]
            values.append(named(f"n{number}", step(kind, a, b, one, other)))
        chosen = [values[-1], *(values[e % len(values)] for e in extra)]
        return tuple(chosen) if len(chosen) > 1 else chosen[0]

    return graph(body, ((4, 8),), ((4, 8),))


def step(kind: int, a: int, b: int, one, other):
    """Return one operator on (4, 8) tensors that gives a (4, 8) tensor."""
    operands = [other, SCALARS[b % len(SCALARS)], ROW, COLUMN]
    right = operands[(a + b) % len(operands)]
    if kind < 3:
        return UNARY[a % len(UNARY)](one)
    if kind < 6:
        return BINARY[b % len(BINARY)](one, right)
    if kind == 6:
        return R.matmul(one, SQUARE)
    if kind == 7:
        return R.reshape(R.reshape(one, (2, 16)), (4, 8))
    if kind == 8:
        return R.permute_dims(R.permute_dims(one, [1, 0]), [1, 0])
    if kind == 9:
        return R.add(one, R.sum(one, axis=[a % 2], keepdims=True))
    if kind == 10:
        return R.concat([R.strided_slice(one, [0], [2], [4]), R.strided_slice(other, [0], [0], [2])], axis=0)
    return R.nn.softmax(one)


class Coin:
    """A pricer that decides by the candidate's name, the same way each time."""

    def prepare(self, view, candidates):
        pass

    def estimate(self, view, candidate):
        number = sum(map(ord, candidate.label)) % 7
        if number == 0:
            return "budget"
        return Price(Estimate.exact("analytic", 10.0), Estimate("learned:x", 4.0, 4.0 + number, 5.0 + number))


class Seen:
    """A verifier that notes which sites it was asked about."""

    def __init__(self):
        self.sites: list = []

    def rewrite(self, site, after):
        self.sites.append((site.rule.name, site.root))
        return None


def account(mod, fusion: str = "auto"):
    """Simplify, plan and settle; return the new module, the ledger and the verifier."""
    sites, verifier, options = Sites(Ledger()), Seen(), Options(fusion=fusion)
    mod = simplify(mod, SIMPLIFY, sites, verifier)
    view = FunctionView(mod, "main")
    plan = plan_function(view, FUSION, Coin(), options, sites)
    settle(plan, sites, options)
    return mod, sites.ledger, verifier, plan


GROWN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@GROWN
@given(recipes, st.sampled_from(["auto", "always", "never"]))
def test_each_matched_site_gets_exactly_one_decision(recipe, fusion):
    _, ledger, _, _ = account(grow(recipe), fusion)
    ledger.assert_sum()
    keys = [(d.rule, d.function, d.site) for d in ledger.decisions]
    assert len(keys) == len(set(keys))
    ids = {d.site: d for d in ledger.decisions}
    for decision in ledger.decisions:
        assert decision.outcome in OUTCOMES
        assert (decision.by is not None) == (decision.outcome == "superseded")
        assert decision.by is None or ids[decision.by].outcome in ("applied", "rolled_back")
        if decision.outcome == "unprofitable":
            assert decision.evidence["reason"] in ("price", "pruned", "budget", "never")


@GROWN
@given(recipes)
def test_a_refusal_is_a_declared_value_with_a_message(recipe):
    _, ledger, _, _ = account(grow(recipe))
    for decision in ledger.decisions:
        if decision.outcome != "illegal":
            assert decision.refusal is None
            continue
        refusal = decision.refusal
        assert isinstance(refusal, Refusal)
        declared = {kind.code for kind in BY_NAME[decision.rule].refusals}
        assert refusal.code in declared | {"no-legal-candidate"}
        assert refusal.text()
        json.dumps(dict(refusal.evidence))


@GROWN
@given(recipes)
def test_applied_comes_after_verify_and_nothing_is_edited_before_its_match_is_decided(recipe):
    mod = grow(recipe)
    before = mod.script()
    after, ledger, verifier, _ = account(mod)
    assert mod.script() == before
    relax.analysis.well_formed(after)
    applied = [d for d in ledger.decisions if d.outcome == "applied" and d.rule in {r.name for r in SIMPLIFY}]
    # Removals are shown to no verifier: there is no value left to compare.
    shown = [d for d in applied if d.rule != "dead-code"]
    assert len(verifier.sites) >= len(shown)


@GROWN
@given(recipes)
def test_a_second_run_applies_nothing(recipe):
    after, _, _, _ = account(grow(recipe))
    again, ledger, _, _ = account(after)
    assert operators(again) == operators(after)
    rewrites = {r.name for r in SIMPLIFY}
    assert not [d for d in ledger.decisions if d.outcome == "applied" and d.rule in rewrites]


@GROWN
@given(recipes, st.sampled_from(["auto", "always"]))
def test_chosen_groups_do_not_overlap_and_let_one_value_out(recipe, fusion):
    _, _, _, plan = account(grow(recipe), fusion)
    taken = [var for candidate in plan.chosen for var in candidate.bindings]
    assert len(taken) == len(set(taken))
    for candidate in plan.chosen:
        inside = set(candidate.bindings)
        escaping = [v for v in candidate.bindings if plan.view.escapes(v, inside)]
        assert escaping in ([candidate.root], [])
        assert list(candidate.bindings) == sorted(candidate.bindings, key=plan.view.order.get)
        text = json.dumps(candidate.identity)
        assert not any(name in text for name in candidate.site.origin), "an identity names no site"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recipes)
def test_whole_builds_are_right_and_repeat(recipe):
    mod = grow(recipe)
    with tvmpass.PassContext(config={"tvmpass.fusion": "always"}):
        lib = tvmpass.build(mod)
    with tvmpass.PassContext(opt_level=0, config={"tvmpass.fusion": "never"}):
        plain = tvmpass.build(mod)
    arrays = {n: RNG.standard_normal((4, 8)).astype("float32") for n in ("x", "y")}
    for want, have in zip(plain.run(arrays), lib.run(arrays), strict=True):
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1e-30)
        np.testing.assert_array_equal(np.isnan(want), np.isnan(have))
        finite = np.isfinite(want) & np.isfinite(have)
        np.testing.assert_allclose(have[finite], want[finite], rtol=0, atol=1e-4 * scale)
    lib.report.ledger.assert_sum()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_every_rule_declares_itself(rule):
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.name)
    summary = rule.summary()
    assert summary and len(summary) <= 80 and summary.endswith(".")
    codes = [kind.code for kind in rule.refusals]
    assert len(codes) == len(set(codes))
    assert rule.level in (0, 1, 2, 3)
    assert type(rule).parse_options(str(rule).partition("{")[2].rstrip("}")) == rule


def test_a_code_has_one_message_everywhere():
    messages: dict[str, set[str]] = {}
    for rule in RULES:
        for kind in rule.refusals:
            messages.setdefault(kind.code, set()).add(kind.message)
    assert {code: found for code, found in messages.items() if len(found) > 1} == {}


def test_check_never_answers_with_a_bool_or_an_exception():
    view = FunctionView(grow(([(k, k, k + 1) for k in range(12)], [3])), "main")
    for rule in (*SIMPLIFY, *FUSION):
        for site in rule.match(view):
            assert checked(rule, site) is None or isinstance(checked(rule, site), Refusal)


def test_shapes_of_the_grown_graphs_are_what_the_steps_promise():
    mod = grow(([(k, 1, 2) for k in range(12)], []))
    for var in FunctionView(mod, "main").outputs:
        assert static_shape(var) == (4, 8)
