"""Transposes move behind elementwise operators, never where that costs a copy."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.layout import SinkTransposes
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, interpret
from tvmpass.testing.rule_checks import assert_applies, assert_refuses, assert_same_results, special

op = relax.op
X = ((2, 3, 4),)
AXES = [0, 2, 1]


def moved(x):
    return op.permute_dims(x, AXES)


def test_unary_and_scalar():
    before = graph(lambda x: op.multiply(op.nn.relu(moved(x)), relax.const(2.0)), X)
    assert_applies(
        SinkTransposes(), before, graph(lambda x: moved(op.multiply(op.nn.relu(x), relax.const(2.0))), X)
    )


def test_two_transposes_become_one():
    before = graph(lambda x, y: op.add(moved(x), moved(y)), X, X)
    assert_applies(SinkTransposes(), before, graph(lambda x, y: moved(op.add(x, y)), X, X))


def test_one_value_read_twice_and_symbolic():
    def body(x):
        y = moved(x)
        return op.multiply(y, y)

    spec = (("n", 3, 4),)
    assert_applies(SinkTransposes(), graph(body, spec), graph(lambda x: moved(op.multiply(x, x)), spec))


@pytest.mark.parametrize("axes", [[0, 2, 1], [1, 2, 0], [2, 0, 1]])
def test_constants_are_permuted_back(axes):
    shape = [(2, 3, 4)[a] for a in axes]
    c = relax.const(np.random.default_rng(0).uniform(-1, 1, (1, *shape[1:])).astype("float32"))
    before = graph(lambda x: op.maximum(c, op.permute_dims(x, axes)), X)
    after, decisions = run_rule(SinkTransposes(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert_same_results(before, after, special((2, 3, 4)), rtol=0.0, atol=0.0, execute=interpret)


def test_refuses_another_operand():
    mod = graph(lambda x, y: op.add(moved(x), y), X, ((2, 4, 3),))
    assert_refuses(SinkTransposes(), mod, "transposes-differ", value="y", expected=AXES)


def test_refuses_transpose_read_elsewhere():
    def body(x):
        y = moved(x)
        return op.exp(y), op.sum(y, 1)

    assert_refuses(SinkTransposes(), graph(body, X), "escapes", readers=["relax.exp", "relax.sum"])


def test_refuses_broadcast():
    mod = graph(lambda x, y: op.add(moved(x), moved(y)), X, ((2, 1, 4),))
    assert_refuses(SinkTransposes(), mod, "shape-mismatch", found=[2, 4, 1], expected=[2, 4, 3])
    mod = graph(lambda x: op.add(moved(x), relax.const(np.ones(3, "float32"))), X)
    assert_refuses(SinkTransposes(), mod, "shape-mismatch", found=[3])


def test_refuses_change_of_dtype():
    mod = graph(lambda x: op.astype(moved(x), "float64"), X)
    assert_refuses(SinkTransposes(), mod, "dtype-mismatch", found="float64", expected="float32")


def test_refuses_transpose_of_another_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit_output(moved(x))
        between = builder.emit(op.abs(x))
        with builder.dataflow():
            z = builder.emit_output(op.add(op.exp(a), op.sum(between)))
        builder.emit_func_output(z)
    assert_refuses(SinkTransposes(), builder.finalize(), "escapes")
