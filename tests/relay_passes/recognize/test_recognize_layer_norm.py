"""Layer norm is found in both exporters' forms; RMS norm is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.recognize import RecognizeLayerNorm
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, assert_settled

op = relax.op
X = ((2, 3, 8),)


def c(value):
    return relax.const(value, "float32")


def vector(*shape, seed=1):
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32"))


def norm(x, axis=-1, square=lambda d: op.power(d, c(2.0)), divide=None, axis2=None):
    d = op.subtract(x, op.mean(x, axis, keepdims=True))
    spread = op.add(op.mean(square(d), axis if axis2 is None else axis2, keepdims=True), c(1e-5))
    return divide(d, spread) if divide else op.divide(d, op.sqrt(spread))


def affine(y, *shape):
    shape = shape or (8,)
    return op.add(op.multiply(y, vector(*shape)), vector(*shape, seed=2))


FORMS = {
    "power": lambda x: affine(norm(x)),
    "product": lambda x: affine(norm(x, square=lambda d: op.multiply(d, d))),
    "square": lambda x: affine(norm(x, square=op.square)),
    "rsqrt": lambda x: affine(norm(x, divide=lambda d, s: op.multiply(op.rsqrt(s), d))),
    "one-over-sqrt": lambda x: affine(
        norm(x, divide=lambda d, s: op.multiply(d, op.divide(c(1.0), op.sqrt(s))))
    ),
    "plain": lambda x: norm(x),
    "scale-only": lambda x: op.multiply(vector(8), norm(x)),
    "shift-only": lambda x: op.add(norm(x), vector(8)),
    "two-axes": lambda x: affine(norm(x, axis=[1, 2]), 3, 8),
    "broadcast-scale": lambda x: affine(norm(x, axis=[-2, -1]), 3, 1),
    "leading-ones": lambda x: affine(norm(x), 1, 1, 8),
}


@pytest.mark.parametrize("name", FORMS)
def test_applies(name):
    before = graph(lambda x: op.abs(FORMS[name](x)), X)
    after, decisions = run_rule(RecognizeLayerNorm(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after) == ["nn.layer_norm", "abs"]
    assert_settled(RecognizeLayerNorm(), after)
    data = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32") * 5 + 3
    assert_same_results(before, after, data, rtol=2e-5, atol=2e-6)
    assert_same_results(before, after, np.full((2, 3, 8), np.nan, "float32"), rtol=2e-5, atol=0.0)


def test_scale_and_shift_as_inputs_and_symbolic_batch():
    before = graph(lambda x, g, b: op.add(op.multiply(norm(x), g), b), (("n", 8),), ((8,),), ((8,),))
    after, _ = run_rule(RecognizeLayerNorm(), before)
    assert operators(after) == ["nn.layer_norm"]


def test_stops_before_a_scale_that_varies_by_row():
    after, _ = run_rule(RecognizeLayerNorm(), graph(lambda x: op.multiply(norm(x), vector(3, 1)), X))
    assert operators(after) == ["nn.layer_norm", "multiply"]


def test_stops_where_the_normalised_value_is_read_twice():
    def body(x):
        y = norm(x)
        return op.multiply(y, vector(8)), op.exp(y)

    after, _ = run_rule(RecognizeLayerNorm(), graph(body, X))
    assert sorted(operators(after)) == ["exp", "multiply", "nn.layer_norm"]


def test_refuses_different_axes():
    mod = graph(lambda x: norm(x, axis=-1, axis2=1), ((3, 8, 8),))
    assert_refuses(RecognizeLayerNorm(), mod, "axes-differ", mean=[2], variance=[1])


def test_refuses_leading_axes():
    assert_refuses(
        RecognizeLayerNorm(), graph(lambda x: norm(x, axis=1), X), "axes-not-last", found=[1], rank=3
    )


def test_refuses_mean_read_elsewhere():
    def body(x):
        mean = op.mean(x, -1, keepdims=True)
        d = op.subtract(x, mean)
        y = op.divide(d, op.sqrt(op.add(op.mean(op.multiply(d, d), -1, keepdims=True), c(1e-5))))
        return y, op.exp(mean)

    assert_refuses(RecognizeLayerNorm(), graph(body, X), "escapes", readers=["relax.exp"])


def test_refuses_symbolic_row():
    assert_refuses(RecognizeLayerNorm(), graph(norm, ((3, "n"),)), "symbolic-shape", found=["n"])


def test_rms_norm_does_not_match():
    def body(x):
        return op.divide(x, op.sqrt(op.add(op.mean(op.multiply(x, x), -1, keepdims=True), c(1e-5))))

    _, decisions = run_rule(RecognizeLayerNorm(), graph(body, X))
    assert decisions == []
