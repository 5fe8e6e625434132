"""Elementwise operators broadcast for themselves."""

from __future__ import annotations

import pytest
from tvm import relax

from relay_passes.simplify import AbsorbBroadcasts
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, interpret, operators
from tvmpass.testing.rule_checks import assert_applies, assert_refuses, assert_same_results, special

op = relax.op


@pytest.mark.parametrize("shape", [(1, 4), (4,), (3, 1), (1, 1)])
def test_applies(shape):
    before = graph(lambda x, y: op.subtract(op.broadcast_to(x, (3, 4)), y), (shape,), ((3, 4),))
    assert_applies(AbsorbBroadcasts(), before, graph(lambda x, y: op.subtract(x, y), (shape,), ((3, 4),)))
    after, _ = run_rule(AbsorbBroadcasts(), before)
    assert_same_results(before, after, special(shape), special((3, 4)), rtol=0.0, atol=0.0, execute=interpret)


def test_two_broadcasts_that_make_the_shape_together():
    def body(x, y):
        return op.multiply(op.broadcast_to(x, (3, 4)), op.broadcast_to(y, (3, 4)))

    after, _ = run_rule(AbsorbBroadcasts(), graph(body, ((3, 1),), ((1, 4),)))
    assert operators(after) == ["multiply"]


def test_symbolic_and_condition():
    def body(x, y):
        wide = op.broadcast_to(x, y.ty.shape)
        return op.where(op.less(wide, y), wide, y)

    after, decisions = run_rule(AbsorbBroadcasts(), graph(body, ((1, 4),), (("n", 4),)))
    assert "applied" in [d.outcome for d in decisions]
    assert operators(after) == ["less", "where"]


def test_broadcast_read_elsewhere_stays():
    def body(x, y):
        wide = op.broadcast_to(x, (3, 4))
        return op.add(wide, y), op.sum(wide, 0)

    after, _ = run_rule(AbsorbBroadcasts(), graph(body, ((1, 4),), ((3, 4),)))
    assert sorted(operators(after)) == ["add", "broadcast_to", "sum"]


def test_refuses_where_the_broadcast_makes_the_shape():
    mod = graph(lambda x: op.add(op.broadcast_to(x, (3, 4)), relax.const(1.0)), ((1, 4),))
    assert_refuses(AbsorbBroadcasts(), mod, "shape-mismatch", found=[1, 4], expected=[3, 4])


def test_refuses_unknown_shape():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType(dtype="float32", ndim=2))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            z = builder.emit_output(op.add(op.broadcast_to(x, (3, 4)), y))
        builder.emit_func_output(z)
    assert_refuses(AbsorbBroadcasts(), builder.finalize(), "unknown-shape")
