"""Graphs grown at random mean the same before and after the rules, special values included."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relay_passes import fusion, recognize, simplify
from relay_passes.layout import SinkTransposes
from tvmpass.core.engine import Sites
from tvmpass.core.engine import simplify as run_rules
from tvmpass.core.report import Ledger
from tvmpass.testing.graphs import graph, interpret
from tvmpass.testing.rule_checks import assert_same_results, proposals, special

op = relax.op
SHAPES = ((3, 4), (3, 1), (4,), (1, 1))
UNARY = {
    "negative": op.negative,
    "abs": op.abs,
    "relu": op.nn.relu,
    "floor": op.floor,
    "sqrt": op.sqrt,
    "there and back": lambda x: op.astype(op.astype(x, "float64"), "float32"),
    "lossy": lambda x: op.astype(op.astype(x, "float16"), "float32"),
    "flipped twice": lambda x: op.permute_dims(op.permute_dims(x)),
    "reshaped": lambda x: op.squeeze(op.expand_dims(x, [0]), [0]),
}
BINARY = {
    "add": op.add,
    "subtract": op.subtract,
    "multiply": op.multiply,
    "divide": op.divide,
    "maximum": op.maximum,
    "minimum": op.minimum,
}
CONSTANTS = (0.0, -0.0, 1.0, -1.0, 3.0, 6.0, np.inf, -np.inf, np.nan)


@st.composite
def recipes(draw):
    """Draw a list of steps: an operator and the earlier values it reads, or a constant."""
    steps = []
    for _ in range(draw(st.integers(1, 12))):
        count = 2 + len(steps)
        kind = draw(st.sampled_from(("unary", "binary", "binary", "scalar")))
        first = draw(st.integers(0, count - 1))
        if kind == "unary":
            steps.append((draw(st.sampled_from(sorted(UNARY))), first, None))
        elif kind == "binary":
            steps.append((draw(st.sampled_from(sorted(BINARY))), first, draw(st.integers(0, count - 1))))
        else:
            swap = draw(st.booleans())
            steps.append(
                (draw(st.sampled_from(sorted(BINARY))), first, (draw(st.sampled_from(CONSTANTS)), swap))
            )
    outputs = draw(st.lists(st.integers(2, 1 + len(steps)), min_size=1, max_size=3, unique=True))
    return steps, outputs


def grow(recipe):
    steps, outputs = recipe

    def body(x, y):
        values = [x, y]
        for name, first, second in steps:
            if second is None:
                values.append(UNARY[name](values[first]))
            elif isinstance(second, tuple):
                pair = [values[first], relax.const(second[0], "float32")]
                values.append(BINARY[name](*(pair[::-1] if second[1] else pair)))
            else:
                values.append(BINARY[name](values[first], values[second]))
        return tuple(values[i] for i in outputs)

    return body


QUIET = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@QUIET
@given(recipes(), st.sampled_from(SHAPES))
def test_simplifying_is_exact(recipe, shape):
    before = graph(grow(recipe), ((3, 4),), (shape,))
    ledger = Ledger()
    rules = [rule() for rule in simplify.RULES] + [SinkTransposes()]
    after = run_rules(before, rules, Sites(ledger))
    ledger.assert_sum()
    data = special((3, 4)), special(shape)[::-1]
    assert_same_results(before, after, *data, rtol=0.0, atol=0.0, execute=interpret)
    again = Ledger()
    run_rules(after, rules, Sites(again))
    assert "applied" not in [d.outcome for d in again.decisions]


@QUIET
@given(recipes())
def test_recognising_keeps_values(recipe):
    before = graph(grow(recipe), ((3, 4),), ((3, 4),))
    after = run_rules(before, [rule() for rule in (*simplify.RULES, *recognize.RULES)])
    data = special((3, 4)), special((3, 4))[::-1]
    # A division by six becomes a product; later subtractions may magnify the rounding.
    assert_same_results(before, after, *data, rtol=1e-4, atol=1e-5, execute=interpret)


@QUIET
@given(recipes(), st.sampled_from(SHAPES))
def test_every_proposal_has_one_result(recipe, shape):
    mod = graph(grow(recipe), ((3, 4),), (shape,))
    for rule in fusion.RULES:
        proposals(rule(), mod)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=recipes(), shape=st.sampled_from(SHAPES))
def test_fused_kernels_compute_the_same(emitter, recipe, shape):
    mod = graph(grow(recipe), ((3, 4),), (shape,))
    found = emitter.candidates(fusion.FuseElementwiseChain(), mod)
    data = special((3, 4)), special(shape)[::-1]
    apart = emitter.fused(mod)
    for candidate in found[:2]:
        assert_same_results(apart, emitter.fused(mod, candidate), *data, rtol=1e-6, atol=0.0)
