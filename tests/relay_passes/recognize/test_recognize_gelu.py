"""GELU is found however an exporter wrote it, and nothing else is taken for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax

from relay_passes.recognize import RecognizeGelu
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import (
    assert_applies,
    assert_refuses,
    assert_same_results,
    assert_settled,
    special,
)

op = relax.op
X = ((4, 32),)
S = math.sqrt(2 / math.pi)


def c(value):
    return relax.const(value, "float32")


def erf_of(x):
    return op.erf(op.divide(x, c(math.sqrt(2))))


def cube(x):
    return op.multiply(op.multiply(x, x), x)


def tanh_of(x):
    return op.tanh(op.multiply(c(S), op.add(x, op.multiply(c(0.044715), op.power(x, c(3.0))))))


ERF = {
    "torch": lambda x: op.multiply(op.multiply(x, op.add(erf_of(x), c(1.0))), c(0.5)),
    "half-first": lambda x: op.multiply(op.multiply(c(0.5), x), op.add(c(1.0), erf_of(x))),
    "half-inside": lambda x: op.multiply(x, op.multiply(c(0.5), op.add(erf_of(x), c(1.0)))),
    "halved": lambda x: op.multiply(op.divide(x, c(2.0)), op.add(erf_of(x), c(1.0))),
    "reciprocal": lambda x: op.multiply(
        op.multiply(x, c(0.5)), op.add(op.erf(op.multiply(x, c(math.sqrt(0.5)))), c(1.0))
    ),
    "distributed": lambda x: op.multiply(x, op.add(c(0.5), op.multiply(erf_of(x), c(0.5)))),
    "spread": lambda x: op.multiply(c(0.5), op.add(x, op.multiply(x, erf_of(x)))),
}
TANH = {
    "power": lambda x: op.multiply(op.multiply(c(0.5), x), op.add(c(1.0), tanh_of(x))),
    "products": lambda x: op.multiply(
        op.multiply(
            x, op.add(op.tanh(op.multiply(op.add(op.multiply(cube(x), c(0.044715)), x), c(S))), c(1.0))
        ),
        c(0.5),
    ),
    "factored": lambda x: op.multiply(
        c(0.5),
        op.multiply(
            x,
            op.add(
                c(1.0),
                op.tanh(
                    op.multiply(
                        op.multiply(c(S), x), op.add(c(1.0), op.multiply(op.multiply(c(0.044715), x), x))
                    )
                ),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", ERF)
def test_erf_form(name):
    before = graph(lambda x: op.abs(ERF[name](x)), X)
    assert_applies(RecognizeGelu(), before, graph(lambda x: op.abs(op.nn.gelu(x)), X))
    after, _ = run_rule(RecognizeGelu(), before)
    data = np.linspace(-6, 6, 128, dtype="float32").reshape(4, 32)
    # erf near -1 loses digits in both forms: absolute to the largest |x| there.
    assert_same_results(before, after, data, rtol=2e-6, atol=2e-6)
    assert_same_results(before, after, special((4, 32)), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", TANH)
def test_tanh_form(name):
    before = graph(lambda x: op.abs(TANH[name](x)), X)
    assert_applies(RecognizeGelu(), before, graph(lambda x: op.abs(op.nn.gelu_tanh(x)), X))
    after, _ = run_rule(RecognizeGelu(), before)
    data = np.linspace(-6, 6, 128, dtype="float32").reshape(4, 32)
    assert_same_results(before, after, data, rtol=5e-6, atol=5e-6)


def test_x_may_be_a_product_and_symbolic():
    def body(x, y):
        z = op.multiply(x, y)
        return ERF["torch"](z)

    spec = (("n", 32),)
    before = graph(body, spec, spec)
    assert_applies(RecognizeGelu(), before, graph(lambda x, y: op.nn.gelu(op.multiply(x, y)), spec, spec))


def test_half_precision_constants():
    def half(value):
        return relax.const(value, "float16")

    def body(x):
        return op.multiply(op.multiply(x, half(0.5)), op.add(op.erf(op.divide(x, half(1.4142))), half(1.0)))

    after, decisions = run_rule(RecognizeGelu(), graph(body, ((4, 32), "float16")))
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after) == ["nn.gelu"]


def test_refuses_other_constants():
    mod = graph(
        lambda x: op.multiply(op.multiply(x, c(0.5)), op.add(op.erf(op.multiply(x, c(0.8))), c(1.0))), X
    )
    assert_refuses(RecognizeGelu(), mod, "constants-differ", what="the inner polynomial")
    mod = graph(lambda x: op.multiply(op.multiply(x, c(0.7)), op.add(erf_of(x), c(1.0))), X)
    assert_refuses(RecognizeGelu(), mod, "constants-differ", what="the outer polynomial")


def test_refuses_erf_read_elsewhere():
    def body(x):
        e = erf_of(x)
        return op.multiply(op.multiply(x, c(0.5)), op.add(e, c(1.0))), op.exp(e)

    assert_refuses(RecognizeGelu(), graph(body, X), "escapes", readers=["relax.exp"])


def test_refuses_constants_that_grow_the_shape():
    def body(x):
        return op.multiply(
            op.multiply(x, relax.const(np.full((2, 4, 32), 0.5, "float32"))), op.add(erf_of(x), c(1.0))
        )

    assert_refuses(RecognizeGelu(), graph(body, X), "shape-mismatch", found=[4, 32], expected=[2, 4, 32])


def test_unrelated_tanh_does_not_match():
    assert_settled(RecognizeGelu(), graph(lambda x: op.multiply(x, op.tanh(x)), X))
    _, decisions = run_rule(RecognizeGelu(), graph(lambda x: op.multiply(x, op.tanh(x)), X))
    assert decisions == []
