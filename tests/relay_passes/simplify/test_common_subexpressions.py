"""Equal values are computed once; values that only look equal are not merged."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.simplify import CommonSubexpressions
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators, run
from tvmpass.testing.rule_checks import (
    assert_applies,
    assert_refuses,
    assert_same_results,
    assert_settled,
    special,
)

op = relax.op
X, Y = ((3, 4),), ((3, 4),)


def test_commuted_operands():
    before = graph(lambda x, y: op.subtract(op.add(x, y), op.add(y, x)), X, Y)

    def expected(x, y):
        total = op.add(x, y)
        return op.subtract(total, total)

    assert_applies(CommonSubexpressions(), before, graph(expected, X, Y))


def test_repeats_of_repeats_go_in_one_run():
    before = graph(lambda x, y: op.multiply(op.exp(op.add(x, y)), op.exp(op.add(y, x))), X, Y)
    after, decisions = run_rule(CommonSubexpressions(), before)
    assert [d.outcome for d in decisions] == ["applied", "applied"]
    assert operators(after) == ["add", "exp", "multiply"]
    assert_same_results(before, after, special((3, 4)), special((3, 4))[::-1], rtol=1e-6, atol=0.0)


def test_subtraction_does_not_commute():
    assert_settled(
        CommonSubexpressions(), graph(lambda x, y: op.add(op.subtract(x, y), op.subtract(y, x)), X, Y)
    )


def test_attributes_must_agree():
    mod = graph(lambda x: op.add(op.sum(x, 0, keepdims=True), op.sum(x, 0, keepdims=False)), ((3, 3),))
    assert_settled(CommonSubexpressions(), mod)


def test_zeros_of_different_sign_differ():
    def divide(x, zero):
        return op.divide(x, relax.const(zero, "float32"))

    mod = graph(lambda x: (divide(x, 0.0), divide(x, -0.0)), X)
    assert_settled(CommonSubexpressions(), mod)


def test_constants_of_different_dtype_differ():
    zeros = [relax.const(np.zeros(4, d), d) for d in ("int32", "float32")]
    mod = graph(lambda x: tuple(op.astype(op.take(x, op.astype(z, "int32"), 0), "float32") for z in zeros), X)
    assert_settled(CommonSubexpressions(), mod)


def test_constants_with_equal_bits_are_equal_even_if_nan():
    def add(x):
        return op.add(x, relax.const(np.array([np.nan, 1, 2, 3], "float32")))

    before = graph(lambda x: op.multiply(add(x), add(x)), X)
    after, _ = run_rule(CommonSubexpressions(), before)
    assert operators(after) == ["add", "multiply"]


def test_both_results_may_be_returned():
    before = graph(lambda x, y: (op.add(x, y), op.add(y, x)), X, Y)
    after, decisions = run_rule(CommonSubexpressions(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    results = run(after, special((3, 4)), special((3, 4)))
    np.testing.assert_array_equal(results[0], results[1])


def _packed(x):
    return relax.Call(tvm.ir.Op.get("relax.call_pure_packed"), [relax.ExternFunc("rng"), x], None, [x.ty])


def test_refuses_what_may_be_random():
    mod = graph(lambda x: op.add(_packed(x), _packed(x)), X)
    assert_refuses(CommonSubexpressions(), mod, "impure", operator="relax.call_pure_packed")


def test_refuses_a_value_of_another_dataflow_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(op.exp(x))
            first = builder.emit_output(op.tanh(inner))
        between = builder.emit(op.abs(first))
        with builder.dataflow():
            second = builder.emit_output(op.add(op.exp(x), between))
        builder.emit_func_output(second)
    assert_refuses(CommonSubexpressions(), builder.finalize(), "crosses-dataflow-block")
