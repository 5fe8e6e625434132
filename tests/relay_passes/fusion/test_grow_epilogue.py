"""Epilogues grow as far as exactly one value leaves the group."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tvm import relax

from relay_passes.fusion import GrowEpilogue
from tvmpass.testing.graphs import graph
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, proposals

op = relax.op
IMAGE = ((1, 4, 5, 5),)


def const(*shape, seed=0):
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32"))


def conv(x, out=6):
    return op.nn.conv2d(x, const(out, 4, 1, 1))


def hard_swish(y):
    clipped = op.minimum(op.maximum(op.add(y, relax.const(3.0)), relax.const(0.0)), relax.const(6.0))
    return op.multiply(op.multiply(y, clipped), relax.const(1 / 6))


def labels(mod, rule=None):
    (found,) = [v for v in proposals(rule or GrowEpilogue(), mod).values() if isinstance(v, list)]
    return found


def test_bias_residual_and_activation():
    mod = graph(
        lambda x, y: op.nn.relu(op.add(y, op.add(conv(x), const(1, 6, 1, 1)))), IMAGE, ((1, 6, 5, 5),)
    )
    assert labels(mod) == ["conv2d + add + add + relu", "conv2d + add + add", "conv2d + add"]


def test_activation_of_five_operators_is_taken_whole():
    mod = graph(lambda x: conv(hard_swish(op.add(conv(x, 4), const(1, 4, 1, 1)))), IMAGE)
    assert labels(mod)[0] == "conv2d + add + add + maximum + minimum + multiply + multiply"
    # Between the two reads of the biased value nothing is legal.
    assert [len(label.split(" + ")) for label in labels(mod)] == [7, 6, 2]


def test_value_read_by_another_branch_ends_the_group():
    def body(x):
        biased = op.add(conv(x), const(1, 6, 1, 1))
        return op.nn.gelu(biased), op.sum(biased, 1)

    mod = graph(body, IMAGE)
    found = proposals(GrowEpilogue(), mod)
    assert ["conv2d + add"] in found.values()


def test_result_of_the_function_ends_the_group():
    def body(x):
        biased = op.add(conv(x), const(1, 6, 1, 1))
        return biased, op.exp(biased)

    assert labels(graph(body, IMAGE)) == ["conv2d + add"]


def test_diamond_is_taken():
    def body(x):
        y = conv(x)
        return op.add(op.sigmoid(y), op.tanh(y))

    assert labels(graph(body, IMAGE)) == ["conv2d + sigmoid + tanh + add"]


def test_side_operand_made_after_the_anchor():
    def body(x, y):
        z = conv(x)
        side = op.nn.max_pool2d(y, (1, 1))
        return op.add(z, side)

    mod = graph(body, IMAGE, ((1, 6, 5, 5),))
    assert ["conv2d + add"] in proposals(GrowEpilogue(), mod).values()


def test_two_anchors_may_want_one_residual_add():
    mod = graph(lambda x: op.add(conv(x), op.nn.conv2d(x, const(6, 4, 1, 1, seed=3))), IMAGE)
    assert [v for v in proposals(GrowEpilogue(), mod).values()] == [["conv2d + add"], ["conv2d + add"]]


def test_symbolic_batch_and_casts():
    mod = graph(lambda x: op.astype(op.nn.relu(op.matmul(x, const(8, 8))), "float16"), (("n", 8),))
    assert labels(mod) == ["matmul + relu + astype", "matmul + relu"]


def test_number_of_candidates_is_bounded():
    def body(x):
        y = conv(x)
        for _ in range(10):
            y = op.exp(y)
        return y

    found = labels(graph(body, IMAGE), GrowEpilogue(max_candidates=3, max_length=8))
    assert [len(label.split(" + ")) for label in found] == [8, 7, 2]


def test_identity_names_what_the_group_is_and_no_site(emitter):
    mod = graph(lambda x: op.nn.relu(conv(x)), IMAGE)
    (candidate,) = emitter.candidates(GrowEpilogue(), mod)
    assert json.loads(json.dumps(candidate.identity)) == {
        "rule": "grow-epilogue",
        "anchor": "relax.nn.conv2d",
        "layout": "NCHW/OIHW",
        "epilogue": ["relu"],
    }


def test_refuses_without_elementwise_reader():
    mod = graph(lambda x: op.sum(op.nn.max_pool2d(x, (2, 2)), 1), IMAGE)
    assert_refuses(GrowEpilogue(), mod, "no-elementwise-reader", readers=["relax.sum"])


def test_refuses_anchor_read_twice():
    def body(x):
        y = conv(x)
        return op.nn.relu(y), op.sum(y, 1)

    assert_refuses(GrowEpilogue(), graph(body, IMAGE), "escapes", readers=["relax.nn.relu", "relax.sum"])


def test_refuses_reader_of_another_shape():
    mod = graph(lambda x: op.add(op.sum(x, 1, keepdims=True), x), IMAGE)
    assert_refuses(
        GrowEpilogue(), mod, "shape-changes", found=[1, 1, 5, 5], reader="relax.add", expected=[1, 4, 5, 5]
    )


def test_refuses_reader_in_another_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE[0], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.normalize(conv(x)))
        between = builder.emit(op.abs(x))
        with builder.dataflow():
            z = builder.emit_output(op.add(op.nn.relu(y), op.mean(between)))
        builder.emit_func_output(z)
    assert_refuses(GrowEpilogue(), builder.finalize(), "crosses-dataflow-block")


def test_refuses_unknown_shape():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.nn.relu(op.matmul(x, x)))
        builder.emit_func_output(y)
    assert_refuses(GrowEpilogue(), builder.finalize(), "unknown-shape")


NETS = {
    "hard-swish": (IMAGE, lambda x: hard_swish(op.add(conv(x), const(1, 6, 1, 1)))),
    "matmul-bias-gelu": (((3, 8),), lambda x: op.nn.gelu(op.add(op.matmul(x, const(8, 8)), const(8)))),
    "softmax-scale": (((3, 8),), lambda x: op.multiply(op.nn.softmax(x), const(3, 1))),
    "resize-add": (IMAGE, lambda x: op.add(op.image.resize2d(x, (10, 10), layout="NCHW"), const(1, 4, 1, 1))),
    "symbolic": ((("n", 8),), lambda x: op.nn.relu(op.add(op.matmul(x, const(8, 8)), const(1, 8)))),
}


@pytest.mark.parametrize("name", NETS)
def test_fused_kernels_compute_the_same(emitter, name):
    spec, net = NETS[name]
    mod = graph(net, spec)
    shape = [3 if isinstance(d, str) else d for d in spec[0]]
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    for candidate in emitter.candidates(GrowEpilogue(), mod):
        assert_same_results(mod, emitter.fused(mod, candidate), data, rtol=1e-5, atol=1e-6)
