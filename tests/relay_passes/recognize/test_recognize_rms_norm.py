"""RMS norm is found; a layer norm is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.recognize import RecognizeRmsNorm
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, assert_settled

op = relax.op
X = ((2, 3, 8),)


def c(value):
    return relax.const(value, "float32")


def spread(x, axis=-1):
    return op.add(op.mean(op.multiply(x, x), axis, keepdims=True), c(1e-6))


def scale():
    return relax.const(np.linspace(0.5, 2, 8).astype("float32"))


FORMS = {
    "divide": lambda x: op.multiply(op.divide(x, op.sqrt(spread(x))), scale()),
    "rsqrt": lambda x: op.multiply(scale(), op.multiply(x, op.rsqrt(spread(x)))),
    "plain": lambda x: op.multiply(x, op.rsqrt(spread(x))),
}


@pytest.mark.parametrize("name", FORMS)
def test_applies(name):
    before = graph(lambda x: op.abs(FORMS[name](op.sin(x))), X)
    after, decisions = run_rule(RecognizeRmsNorm(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after) == ["sin", "nn.rms_norm", "abs"]
    assert_settled(RecognizeRmsNorm(), after)
    data = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")
    assert_same_results(before, after, data, rtol=2e-5, atol=1e-6)


def test_layer_norm_does_not_match():
    def body(x):
        d = op.subtract(x, op.mean(x, -1, keepdims=True))
        return op.divide(d, op.sqrt(spread(d)))

    _, decisions = run_rule(RecognizeRmsNorm(), graph(body, X))
    assert decisions == []


def test_refuses_leading_axes():
    mod = graph(lambda x: op.divide(x, op.sqrt(spread(x, 1))), X)
    assert_refuses(RecognizeRmsNorm(), mod, "axes-not-last", found=[1], rank=3)


def test_refuses_mean_square_read_elsewhere():
    def body(x):
        mean = op.mean(op.multiply(x, x), -1, keepdims=True)
        return op.divide(x, op.sqrt(op.add(mean, c(1e-6)))), op.exp(mean)

    assert_refuses(RecognizeRmsNorm(), graph(body, X), "escapes", readers=["relax.exp"])


def test_refuses_symbolic_row():
    mod = graph(lambda x: op.divide(x, op.sqrt(spread(x))), ((3, "n"),))
    assert_refuses(RecognizeRmsNorm(), mod, "symbolic-shape", found=["n"])
