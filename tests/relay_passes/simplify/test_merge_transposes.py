"""Two transposes in a row become one or none."""

from __future__ import annotations

import numpy as np
from tvm import relax

from relay_passes.simplify import MergeTransposes
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_applies, assert_same_results

op = relax.op


def test_inverse_pair_vanishes():
    before = graph(
        lambda x: op.exp(op.permute_dims(op.permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2])), (("n", 2, 3, 4),)
    )
    assert_applies(MergeTransposes(), before, graph(lambda x: op.exp(x), (("n", 2, 3, 4),)))


def test_composition_is_the_right_way_round():
    before = graph(lambda x: op.permute_dims(op.permute_dims(x, [1, 2, 0]), [0, 2, 1]), ((2, 3, 4),))
    assert_applies(MergeTransposes(), before, graph(lambda x: op.permute_dims(x, [1, 0, 2]), ((2, 3, 4),)))
    after, _ = run_rule(MergeTransposes(), before)
    data = np.arange(24, dtype="float32").reshape(2, 3, 4)
    assert_same_results(before, after, data, rtol=0.0, atol=0.0)


def test_axes_left_out_reverse():
    before = graph(lambda x: op.exp(op.permute_dims(op.permute_dims(x))), ((2, 3, 4),))
    assert_applies(MergeTransposes(), before, graph(lambda x: op.exp(x), ((2, 3, 4),)))


def test_first_transpose_read_elsewhere_stays():
    def body(x):
        first = op.permute_dims(x, [1, 0])
        return op.exp(first), op.tanh(op.permute_dims(first, [1, 0]))

    after, decisions = run_rule(MergeTransposes(), graph(body, ((2, 3),)))
    assert [d.outcome for d in decisions] == ["applied"]
    assert sorted(operators(after)) == ["exp", "permute_dims", "tanh"]
