"""Transposes that move nothing are reshapes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.simplify import ReshapeTrivialTranspose
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_same_results, assert_settled

op = relax.op
CASES = {
    "channels": ((1, 6, 1, 1), [0, 2, 3, 1]),
    "one-pixel-batch": ((2, 6, 1, 1), [0, 2, 3, 1]),
    "all-ones": ((1, 1), [1, 0]),
    "symbolic": (("n", 6, 1), [0, 2, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_applies(name):
    shape, axes = CASES[name]
    before = graph(lambda x: op.exp(op.permute_dims(x, axes)), (shape,))
    after, decisions = run_rule(ReshapeTrivialTranspose(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after) == ["reshape", "exp"]
    assert_settled(ReshapeTrivialTranspose(), after)
    data = np.arange(12, dtype="float32")
    shape = [2 if isinstance(d, str) else d for d in shape]
    assert_same_results(before, after, np.resize(data, shape), rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    "shape,axes", [((1, 6, 2, 1), [0, 2, 3, 1]), (("n", 6), [1, 0]), ((2, 1, 3), [0, 1, 2])]
)
def test_real_moves_and_identities_do_not_match(shape, axes):
    _, decisions = run_rule(
        ReshapeTrivialTranspose(), graph(lambda x: op.exp(op.permute_dims(x, axes)), (shape,))
    )
    assert decisions == []
