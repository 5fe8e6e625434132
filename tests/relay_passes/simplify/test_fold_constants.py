"""Operators on constants are evaluated when the model is built."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.simplify import FoldConstants
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_applies, assert_refuses, assert_same_results, special

op = relax.op
W = np.arange(6, dtype="float32").reshape(2, 3)


def test_transposed_weight():
    before = graph(lambda x: op.matmul(x, op.permute_dims(relax.const(W))), ((4, 3),))
    expected = graph(lambda x: op.matmul(x, relax.const(W.T.copy())), ((4, 3),))
    assert_applies(FoldConstants(), before, expected)


def test_chain_with_special_values():
    values = relax.const(special((2, 3)))
    before = graph(lambda x: op.add(x, op.negative(op.multiply(values, relax.const(W)))), ((2, 3),))
    after, _ = run_rule(FoldConstants(), before)
    assert operators(after) == ["add"]
    assert_same_results(before, after, W, rtol=0.0, atol=0.0)


def test_refuses_run_time_shape():
    def body(x):
        n = x.ty.shape.values[0]
        return op.add(x, op.broadcast_to(relax.const(1.0, "float32"), (n, 3)))

    assert_refuses(FoldConstants(), graph(body, (("n", 3),)), "symbolic-shape", found=["n", 3])


def test_refuses_unknown_shape():
    mod = graph(
        lambda x: op.add(op.unique(relax.const(np.array([1, 1, 2], "int32"), "int32")), x), ((1,), "int32")
    )
    shapes = [getattr(b.var.ty, "shape", None) for b in mod["main"].body.blocks[0].bindings]
    assert shapes[0] is None
    assert_refuses(FoldConstants(), mod, "unknown-shape")


def test_refuses_what_would_grow_too_large():
    mod = graph(lambda x: op.add(x, op.broadcast_to(relax.const(1.0, "float32"), (512, 512))), ((512, 512),))
    assert_refuses(FoldConstants(), mod, "not-evaluable", operator="relax.broadcast_to", shape=[512, 512])


def test_leaves_packed_functions_alone():
    call = relax.Call(
        tvm.ir.Op.get("relax.call_pure_packed"),
        [relax.ExternFunc("rng"), relax.const(W)],
        None,
        [relax.TensorType((2, 3), "float32")],
    )
    _, decisions = run_rule(FoldConstants(), graph(lambda x: op.add(x, call), ((2, 3),)))
    assert decisions == []
