"""The checks that every rule's tests make; see ``docs/write_a_rule.md``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm_ffi

from tvmpass.core.decision import Decision
from tvmpass.core.engine import run_rule
from tvmpass.core.rule import ProposalRule, SimplifyRule
from tvmpass.core.site import FunctionView, outputs_of

from .graphs import run

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 3.5, -2.25, 1e-30, -1e30, 6.0)
"""Values that a rewrite which is exact must carry through."""


def assert_applies(rule: SimplifyRule, before, expected) -> None:
    """Check that ``rule`` turns ``before`` into ``expected``, and does nothing more when run again."""
    after, decisions = run_rule(rule, before)
    assert "applied" in [d.outcome for d in decisions], explain(decisions)
    assert tvm_ffi.structural_equal(after, expected, map_free_vars=True), after.script(show_meta=False)
    assert_settled(rule, after)


def assert_settled(rule: SimplifyRule, mod) -> None:
    """Check that ``rule`` applies nowhere in ``mod``."""
    _, decisions = run_rule(rule, mod)
    assert "applied" not in [d.outcome for d in decisions], explain(decisions)


def assert_refuses(rule: SimplifyRule, mod, code: str, **evidence) -> None:
    """Check that ``rule`` refuses one site with ``code`` and ``evidence`` and leaves ``mod`` as it is."""
    if isinstance(rule, ProposalRule):
        refusals = [r for r in proposals(rule, mod).values() if not isinstance(r, list)]
    else:
        after, decisions = run_rule(rule, mod)
        assert tvm_ffi.structural_equal(after, mod, map_free_vars=True), after.script(show_meta=False)
        refusals = [d.refusal for d in decisions if d.outcome == "illegal"]
    assert code in [kind.code for kind in rule.refusals], f"{code} is not declared"
    coded = [refusal for refusal in refusals if refusal.code == code]
    assert coded, f"refused with {sorted(r.code for r in refusals)}"
    assert any({k: r.evidence.get(k) for k in evidence} == evidence for r in coded), [
        r.evidence for r in coded
    ]
    assert all(refusal.text() for refusal in coded)


def proposals(rule: ProposalRule, mod) -> dict:
    """Map the name of each site's root to its candidates' labels, or to the Refusal.

    Checks of each candidate that exactly one value, the last, is read outside.
    """
    view = FunctionView(mod, "main")
    found = {}
    for site in rule.match(view):
        refusal = rule.check(site)
        if refusal is not None:
            found[site.root.name] = refusal
            continue
        candidates = rule.propose(site)
        assert candidates
        for candidate in candidates:
            assert outputs_of(view, candidate.bindings) == [candidate.root], candidate.label
            assert list(candidate.bindings) == sorted(candidate.bindings, key=lambda v: view.order[v])
        found[site.root.name] = [candidate.label for candidate in candidates]
    return found


def assert_same_results(
    before, after, *arrays: np.ndarray, rtol: float, atol: float, execute: Callable = run
) -> None:
    """Check that two modules agree on ``arrays``: NaN where NaN, equal signs of zero at tolerance 0."""
    for old, new in zip(execute(before, *arrays), execute(after, *arrays)):
        assert old.dtype == new.dtype and old.shape == new.shape
        np.testing.assert_allclose(new, old, rtol=rtol, atol=atol, equal_nan=True)
        if rtol == atol == 0.0 and old.dtype.kind == "f":
            numbers = ~np.isnan(old)
            np.testing.assert_array_equal(np.signbit(new[numbers]), np.signbit(old[numbers]))


def special(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Return an array filled with the special values, repeated."""
    with np.errstate(over="ignore"):
        return np.resize(np.array(SPECIAL, "float64").astype(dtype), shape)


def explain(decisions: list[Decision]) -> str:
    """Return the decisions as text, for assertion messages."""
    return (
        "; ".join(f"{d.outcome} {d.refusal.text() if d.refusal else ''}" for d in decisions)
        or "no site matched"
    )
