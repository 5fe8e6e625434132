"""Softmax is found in its five pieces."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.recognize import RecognizeSoftmax
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators, run
from tvmpass.testing.rule_checks import assert_applies, assert_refuses, assert_same_results

op = relax.op
X = ((3, 5, 7),)


def pieces(x, axis=-1, max_axis=None, keepdims=True, max_keepdims=True, take=lambda e, s: op.divide(e, s)):
    top = op.max(x, axis if max_axis is None else max_axis, keepdims=max_keepdims)
    e = op.exp(op.subtract(x, top))
    return take(e, op.sum(e, axis, keepdims=keepdims))


def reciprocal(e, s):
    return op.multiply(op.divide(relax.const(1.0, "float32"), s), e)


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_applies(axis):
    before = graph(lambda x: pieces(x, axis), X)
    assert_applies(RecognizeSoftmax(), before, graph(lambda x: op.nn.softmax(x, axis), X))
    after, _ = run_rule(RecognizeSoftmax(), before)
    data = np.random.default_rng(0).standard_normal((3, 5, 7)).astype("float32") * 30
    assert_same_results(before, after, data, rtol=2e-6, atol=1e-7)


def test_reciprocal_on_either_side_and_symbolic():
    before = graph(lambda x: pieces(x, take=reciprocal), (("n", 7),))
    assert_applies(RecognizeSoftmax(), before, graph(lambda x: op.nn.softmax(x, -1), (("n", 7),)))


def test_rows_of_minus_infinity_and_nan_stay_nan():
    before = graph(pieces, ((2, 4),))
    after, _ = run_rule(RecognizeSoftmax(), before)
    data = np.array([[-np.inf] * 4, [np.inf, 1, 2, 3]], "float32")
    for mod in (before, after):
        result = run(mod, data)[0]
        assert np.isnan(result[0]).all() and np.isnan(result[1, 0])


def test_pieces_remain_where_the_input_is_read_elsewhere():
    after, decisions = run_rule(RecognizeSoftmax(), graph(lambda x: (pieces(x), op.exp(x)), X))
    assert [d.outcome for d in decisions] == ["applied"]
    assert sorted(operators(after)) == ["exp", "nn.softmax"]


def test_refuses_several_axes():
    mod = graph(lambda x: pieces(x, axis=[1, 2]), X)
    assert_refuses(RecognizeSoftmax(), mod, "several-axes", found=[1, 2])


def test_refuses_dropped_axis():
    mod = graph(lambda x: pieces(x, axis=-1, keepdims=False), ((4, 4),))
    assert_refuses(RecognizeSoftmax(), mod, "dropped-axis", operator="sum")
    mod = graph(lambda x: pieces(x, axis=-1, max_keepdims=False), ((4, 4),))
    assert_refuses(RecognizeSoftmax(), mod, "dropped-axis", operator="max")


def test_refuses_without_maximum():
    def body(x):
        e = op.exp(x)
        return op.divide(e, op.sum(e, -1, keepdims=True))

    assert_refuses(RecognizeSoftmax(), graph(body, X), "no-maximum", axis=2)
    assert_refuses(RecognizeSoftmax(), graph(lambda x: pieces(x, 1, max_axis=2), X), "no-maximum", axis=1)


def test_refuses_exponentials_read_elsewhere():
    def body(x):
        e = op.exp(op.subtract(x, op.max(x, -1, keepdims=True)))
        return op.divide(e, op.sum(e, -1, keepdims=True)), op.tanh(e)

    assert_refuses(RecognizeSoftmax(), graph(body, X), "escapes", readers=["relax.tanh"])
