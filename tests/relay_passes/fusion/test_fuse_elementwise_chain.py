"""Elementwise trees are proposed whole, and cut where something is broadcast."""

from __future__ import annotations

import pytest
from tvm import relax

from relay_passes.fusion import FuseElementwiseChain
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, proposals, special

op = relax.op
X = ((4, 5),)


def test_chain_and_tree():
    def body(x, y):
        a = op.exp(x)
        return op.multiply(op.add(a, y), a)

    assert list(proposals(FuseElementwiseChain(), graph(body, X, X)).values()) == [["exp + add + multiply"]]


def test_expensive_broadcast_producer_can_stay_apart():
    def body(x, y):
        small = op.tanh(op.exp(x))
        return op.abs(op.add(small, y))

    found = list(proposals(FuseElementwiseChain(), graph(body, ((4, 1),), X)).values())
    assert found == [["exp + tanh + add + abs", "add + abs"], ["exp + tanh"]]


def test_what_an_epilogue_could_take_can_be_left_out():
    def body(x, y):
        z = op.nn.relu(op.matmul(x, y))
        return op.exp(op.add(z, op.multiply(op.sum(z, 1, keepdims=True), relax.const(2.0))))

    found = list(proposals(FuseElementwiseChain(), graph(body, ((4, 4),), ((4, 4),))).values())
    assert found == [["multiply + add + exp", "add + exp"]]


def test_value_read_outside_is_an_operand():
    def body(x):
        a = op.exp(x)
        return op.abs(op.tanh(a)), op.sum(a, 1)

    assert list(proposals(FuseElementwiseChain(), graph(body, X)).values()) == [["tanh + abs"]]


def test_length_is_bounded():
    def body(x):
        for _ in range(9):
            x = op.exp(x)
        return x

    found = proposals(FuseElementwiseChain(max_length=4), graph(body, X))
    assert [len(v[0].split(" + ")) for v in found.values()] == [4, 4]


def test_single_operator_is_no_site():
    view = FunctionView(graph(lambda x: op.exp(x), X), "main")
    assert list(FuseElementwiseChain().match(view)) == []


def test_refuses_producer_read_elsewhere():
    def body(x):
        a = op.exp(x)
        return op.tanh(a), op.sum(a, 1)

    assert_refuses(FuseElementwiseChain(), graph(body, X), "escapes", readers=["relax.sum"])


def test_refuses_producer_in_another_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit_output(op.exp(x))
        between = builder.emit(op.sum(a, 1, keepdims=True))
        with builder.dataflow():
            z = builder.emit_output(op.add(a, between))
        builder.emit_func_output(z)
    assert_refuses(FuseElementwiseChain(), builder.finalize(), "crosses-dataflow-block")


NETS = {
    "broadcast": ((((4, 1),), X), lambda x, y: op.abs(op.add(op.tanh(op.exp(x)), y))),
    "nan": ((X, X), lambda x, y: op.maximum(op.minimum(op.multiply(x, y), x), op.nn.relu(y))),
    "bool": ((X, X), lambda x, y: op.where(op.less(x, y), op.negative(x), op.abs(y))),
    "cast": (
        (X, X),
        lambda x, y: op.astype(op.add(op.astype(x, "float64"), op.astype(y, "float64")), "float32"),
    ),
    "symbolic": (((("n", 5),), (("n", 1),)), lambda x, y: op.sigmoid(op.multiply(x, op.negative(y)))),
}


@pytest.mark.parametrize("name", NETS)
def test_fused_kernels_compute_the_same(emitter, name):
    specs, net = NETS[name]
    mod = graph(net, *specs)
    data = [
        special([4 if isinstance(d, str) else d for d in spec[0]])[..., ::step]
        for spec, step in zip(specs, (1, -1))
    ]
    apart = emitter.fused(mod)
    for candidate in emitter.candidates(FuseElementwiseChain(), mod):
        assert_same_results(apart, emitter.fused(mod, candidate), *data, rtol=1e-6, atol=0.0)
