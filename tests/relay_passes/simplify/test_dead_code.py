"""What nothing reads is removed, what has effects is kept."""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.simplify import DeadCode
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import operators
from tvmpass.testing.rule_checks import assert_refuses, assert_settled

op = relax.op


def _module(body, is_pure=True):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [x], pure=is_pure):
        builder.emit_func_output(body(builder, x))
    return builder.finalize()


def test_removes_a_chain_in_one_sweep():
    def body(builder, x):
        with builder.dataflow():
            builder.emit(op.tanh(builder.emit(op.exp(x))))
            result = builder.emit_output(op.abs(x))
        return result

    after, decisions = run_rule(DeadCode(), _module(body))
    assert [d.outcome for d in decisions] == ["applied", "applied"]
    assert operators(after) == ["abs"]
    assert_settled(DeadCode(), after)


def test_removes_unread_results_of_a_block():
    def body(builder, x):
        with builder.dataflow():
            result = builder.emit_output(op.abs(x))
            builder.emit_output(op.exp(x))
        return result

    after, _ = run_rule(DeadCode(), _module(body))
    assert operators(after) == ["abs"]


def test_keeps_match_cast_that_defines_a_dim():
    def body(builder, x):
        n = tvm.tirx.Var("n", "int64")
        y = builder.match_cast(x, relax.TensorType((n, 4), "float32"))
        del y
        return builder.emit(op.full((n,), relax.const(0.0, "float32"), "float32"))

    mod = _module(body)
    after, decisions = run_rule(DeadCode(), mod)
    assert decisions == []
    assert "full" in operators(after)


def test_refuses_effects():
    def body(builder, x):
        builder.emit(op.print(x, format="{}"))
        return builder.emit(op.exp(x))

    assert_refuses(DeadCode(), _module(body, is_pure=False), "impure", operator="relax.print")
