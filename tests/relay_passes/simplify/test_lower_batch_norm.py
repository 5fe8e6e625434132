"""Batch norms that no convolution takes are spelled out."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.simplify import LowerBatchNorm
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, assert_settled, special

op = relax.op


def const(size, low=-1.0, seed=0):
    return relax.const(np.random.default_rng(seed).uniform(low, 1, size).astype("float32"))


def constant_norm(x, channels, axis, **attrs):
    parameters = [const(channels, seed=s, low=0.1 if s == 3 else -1.0) for s in range(4)]
    return op.nn.batch_norm(x, *parameters, axis, **{"training": False, **attrs})


@pytest.mark.parametrize("attrs", [{}, {"scale": False}, {"center": False}, {"epsilon": 0.1}], ids=str)
@pytest.mark.parametrize("axis", [1, -1])
def test_constants_become_scale_and_shift(axis, attrs):
    shape = (2, 5, 4, 5)
    before = graph(lambda x: constant_norm(x, 5, axis, **attrs)[0], (shape,))
    after, decisions = run_rule(LowerBatchNorm(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert "nn.batch_norm" not in operators(after)
    assert_settled(LowerBatchNorm(), after)
    data = np.random.default_rng(7).standard_normal(shape).astype("float32")
    assert_same_results(before, after, data, rtol=1e-5, atol=1e-6)
    assert_same_results(before, after, special(shape), rtol=1e-5, atol=1e-6)


def test_parameters_that_are_no_constants():
    vector = ((5,),)
    before = graph(
        lambda x, g, b, m, v: op.nn.batch_norm(x, g, b, m, v, 1, training=False)[0],
        ((2, 5, 3),),
        vector,
        vector,
        vector,
        vector,
    )
    after, _ = run_rule(LowerBatchNorm(), before)
    assert "nn.batch_norm" not in operators(after)
    data = [
        np.random.default_rng(s).uniform(0.1, 1, n).astype("float32")
        for s, n in enumerate([(2, 5, 3)] + [5] * 4)
    ]
    assert_same_results(before, after, *data, rtol=1e-5, atol=1e-6)


def test_statistics_are_passed_on():
    before = graph(lambda x: tuple(constant_norm(x, 5, 1)[i] for i in range(3)), ((2, 5, 3),))
    after, _ = run_rule(LowerBatchNorm(), before)
    assert_same_results(before, after, np.ones((2, 5, 3), "float32"), rtol=1e-5, atol=1e-6)


def test_refuses_training():
    mod = graph(lambda x: constant_norm(x, 5, 1, training=True)[0], ((2, 5, 3),))
    assert_refuses(LowerBatchNorm(), mod, "training")
