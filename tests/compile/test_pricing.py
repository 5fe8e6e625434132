"""Prices: once per distinct kernel, within the budget, failures said."""

from __future__ import annotations

import pytest
from tvm import relax

from tvmpass.compile.pipeline import Job
from tvmpass.compile.pricing import MAX_PREFIXES
from tvmpass.compile.target import parse_target
from tvmpass.core.decision import Estimate
from tvmpass.core.options import Options
from tvmpass.core.plan import Price
from tvmpass.core.report import Ledger
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import Candidate, FunctionView, Site
from tvmpass.testing.graphs import graph

R = relax.op


class Any(ProposalRule):
    """Stands behind candidates made by hand."""


def pricer(**options):
    given = Options(threads=1, cost_model="analytic", **options)
    return Job(parse_target("llvm", 1), given, (), Ledger()).pricer


def candidates(view: FunctionView, *ranges) -> list[Candidate]:
    """Make one site with a candidate per ``(first, last)``."""
    order = list(view.bindings)
    site = Site.make(Any(), view, order[ranges[0][0]], order)
    return [
        Candidate(site, tuple(order[a : b + 1]), f"{a}-{b}", "k", {"rule": "any", "span": [a, b]})
        for a, b in ranges
    ]


@pytest.fixture(scope="module")
def view():
    def body(x):
        for operator in (R.exp, R.negative, R.abs, R.sqrt, R.floor, R.ceil):
            x = operator(x)
        return x

    return FunctionView(graph(body, ((64, 64),)), "main")


def prices(made, view, asked):
    made.prepare(view, asked)
    return [made.estimate(view, c) for c in asked]


def test_a_fused_pass_over_memory_is_cheaper_than_its_parts(view):
    (price,) = prices(pricer(), view, candidates(view, (1, 3)))
    assert isinstance(price, Price)
    assert price.group.source == "analytic"
    assert 0 < price.group.mean < price.parts.mean


def test_between_the_longest_and_the_shortest_candidates_are_pruned(view):
    ranges = [(0, last) for last in (5, 4, 3, 2, 1)]
    found = prices(pricer(), view, candidates(view, *ranges))
    kept = [not isinstance(p, str) for p in found]
    assert sum(kept) == MAX_PREFIXES
    assert kept[0] and kept[-1]
    assert {p for p in found if isinstance(p, str)} == {"pruned"}


def test_what_was_not_prepared_is_pruned(view):
    assert pricer().estimate(view, candidates(view, (0, 1))[0]) == "pruned"


def test_the_budget_counts_distinct_candidates(view):
    made = pricer(price_budget=2)
    separate = [candidates(view, span)[0] for span in ((0, 1), (1, 2), (2, 3))]
    found = prices(made, view, separate)
    assert [isinstance(p, Price) for p in found] == [True, True, False]
    assert found[2] == "budget"
    again = candidates(view, (0, 1))
    assert isinstance(prices(made, view, again)[0], Price)


def test_equal_candidates_have_one_price(view):
    def body(x, y):
        return R.exp(R.negative(x)), R.exp(R.negative(y))

    twice = FunctionView(graph(body, ((8, 8),), ((8, 8),)), "main")
    made = pricer(price_budget=1)
    first, second = candidates(twice, (0, 1))[0], candidates(twice, (2, 3))[0]
    first.identity = second.identity = {"rule": "any"}
    one, two = prices(made, twice, [first, second])
    assert isinstance(one, Price)
    assert one == two


def test_views_cost_nothing_apart():
    with_view = FunctionView(graph(lambda x: R.exp(R.reshape(R.negative(x), (32,))), ((4, 8),)), "main")
    (price,) = prices(pricer(), with_view, candidates(with_view, (0, 2)))
    without = FunctionView(graph(lambda x: R.exp(R.negative(x)), ((32,),)), "main")
    (plain,) = prices(pricer(), without, candidates(without, (0, 1)))
    assert price.parts.mean == pytest.approx(plain.parts.mean, rel=0.2)


def test_a_candidate_that_cannot_be_lowered_is_pruned_and_said(view, monkeypatch):
    made = pricer()
    schedule = made.scheduler.schedule

    def fails(function):
        if "T.sqrt" in function.script():
            raise ValueError("no schedule for sqrt")
        return schedule(function)

    monkeypatch.setattr(made.scheduler, "schedule", fails)
    good, bad = candidates(view, (0, 1))[0], candidates(view, (2, 3))[0]
    found = prices(made, view, [good, bad])
    assert isinstance(found[0], Price)
    assert found[1] == "pruned"
    assert any("no schedule for sqrt" in failure for failure in made.failures)


def test_a_variable_with_a_new_value_gets_a_new_price():
    """Rewriting keeps variables: the price of a part belongs to its value."""
    mod = graph(lambda x: R.negative(R.exp(x)), ((64, 64),))
    view = FunctionView(mod, "main")
    made = pricer()
    (before,) = prices(made, view, candidates(view, (0, 1)))
    first = next(iter(view.bindings))
    view.bindings[first] = R.abs(view.function.params[0])
    (after,) = prices(made, view, candidates(view, (0, 1)))
    assert after.parts.mean < before.parts.mean


def test_where_the_model_cannot_tell_the_formula_answers(view, monkeypatch):
    (asked,) = candidates(view, (1, 3))
    made = pricer()
    made.prepare(view, [asked])
    formula = made.estimate(view, asked)

    def unsure(fused, parts, mean, kinds):
        return Estimate("learned:test", mean * 0.5, mean * 0.99, mean * 2)

    monkeypatch.setattr(made.latency, "group", unsure)
    assert made.estimate(view, asked) == formula

    def sure(fused, parts, mean, kinds):
        return Estimate("learned:test", mean * 1.01, mean * 1.02, mean * 1.03)

    monkeypatch.setattr(made.latency, "group", sure)
    assert made.estimate(view, asked).group.source == "learned:test"
