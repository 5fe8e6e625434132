"""What a reduction reads may be computed while reducing."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.fusion import FuseReduceProducer
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, proposals

op = relax.op
X = ((4, 6),)


def test_with_and_without_epilogue():
    mod = graph(lambda x: op.sqrt(op.sum(op.multiply(x, x), 1)), X)
    assert list(proposals(FuseReduceProducer(), mod).values()) == [
        ["multiply + sum + sqrt", "multiply + sum"]
    ]


def test_mask_into_softmax():
    mod = graph(lambda x, m: op.nn.softmax(op.add(op.multiply(x, relax.const(0.5)), m)), X, ((1, 6),))
    assert list(proposals(FuseReduceProducer(), mod).values()) == [["multiply + add + softmax"]]


def test_broadcast_producer_stays_apart():
    mod = graph(lambda x, y: op.sum(op.add(op.exp(x), y), 1), ((4, 1),), X)
    assert list(proposals(FuseReduceProducer(), mod).values()) == [["add + sum"]]


def test_nothing_before_the_reduction_is_no_site():
    assert list(FuseReduceProducer().match(FunctionView(graph(lambda x: op.sum(x, 1), X), "main"))) == []


def test_refuses_data_read_elsewhere():
    def body(x):
        a = op.exp(x)
        return op.divide(a, op.sum(a, 1, keepdims=True))

    assert_refuses(FuseReduceProducer(), graph(body, X), "escapes", readers=["relax.divide"])


def test_refuses_data_of_another_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit_output(op.exp(x))
        between = builder.emit(op.abs(x))
        with builder.dataflow():
            z = builder.emit_output(op.add(op.sum(a, 1, keepdims=True), between))
        builder.emit_func_output(z)
    assert_refuses(FuseReduceProducer(), builder.finalize(), "crosses-dataflow-block")


NETS = {
    "sum": lambda x: op.sqrt(op.sum(op.multiply(x, x), 1)),
    "max": lambda x: op.max(op.abs(x), 0, keepdims=True),
    "mean": lambda x: op.mean(op.nn.silu(x), 1),
    "softmax": lambda x: op.nn.softmax(op.multiply(x, relax.const(0.125))),
}


@pytest.mark.parametrize("name", NETS)
def test_fused_kernels_compute_the_same(emitter, name):
    mod = graph(NETS[name], X)
    data = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    for candidate in emitter.candidates(FuseReduceProducer(), mod):
        assert_same_results(mod, emitter.fused(mod, candidate), data, rtol=1e-5, atol=1e-6)
