"""Constant scales and shifts move into the convolution before them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.simplify import FoldScaleIntoConv
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, assert_settled

op = relax.op
IMAGE = ((2, 4, 6, 7),)


def const(*shape, seed=0, dtype="float32"):
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype), dtype)


def scalar(value):
    return relax.const(value, "float32")


def conv(x):
    return op.nn.conv2d(x, const(6, 4, 3, 3))


NETS = {
    "scalar": lambda x: op.multiply(conv(x), scalar(1.7)),
    "scalar-left-shift": lambda x: op.add(op.multiply(scalar(1.7), conv(x)), scalar(-0.3)),
    "bias-scale-shift": lambda x: op.add(
        scalar(0.2), op.multiply(op.add(conv(x), const(1, 6, 1, 1)), const(6, 1, 1, seed=2))
    ),
    "depthwise": lambda x: op.multiply(
        op.nn.conv2d(x, const(4, 1, 3, 3), groups=4), const(1, 4, 1, 1, seed=2)
    ),
    "transposed": lambda x: op.multiply(
        op.nn.conv2d_transpose(x, const(4, 3, 2, 2), groups=2), const(1, 6, 1, 1, seed=2)
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_applies(name):
    before = graph(lambda x: op.nn.relu(NETS[name](x)), IMAGE)
    after, decisions = run_rule(FoldScaleIntoConv(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after)[1:] == ["add", "nn.relu"]
    assert_settled(FoldScaleIntoConv(), after)
    data = np.random.default_rng(5).standard_normal(IMAGE[0]).astype("float32")
    # Sums of at most 36 products in float32.
    assert_same_results(before, after, data, rtol=1e-5, atol=1e-5)


def test_shift_that_differs_by_pixel_stays():
    before = graph(lambda x: op.add(op.multiply(conv(x), scalar(2.0)), const(1, 1, 4, 5)), (("n", 4, 6, 7),))
    after, _ = run_rule(FoldScaleIntoConv(), before)
    assert operators(after) == ["nn.conv2d", "add", "add"]


def test_scaled_value_read_twice_keeps_its_shift_apart():
    def body(x):
        y = op.multiply(conv(x), scalar(2.0))
        return op.add(y, scalar(1.0)), op.exp(y)

    after, decisions = run_rule(FoldScaleIntoConv(), graph(body, IMAGE))
    assert [d.outcome for d in decisions] == ["applied"]
    assert sorted(operators(after)) == ["add", "add", "exp", "nn.conv2d"]


def test_refuses_convolution_read_elsewhere():
    def body(x):
        y = conv(x)
        return op.add(op.multiply(y, scalar(2.0)), op.exp(y))

    assert_refuses(FoldScaleIntoConv(), graph(body, IMAGE), "escapes", readers=["relax.exp"])


def test_refuses_weights_that_are_no_constants():
    mod = graph(lambda x, w: op.multiply(op.nn.conv2d(x, w), scalar(2.0)), IMAGE, ((6, 4, 3, 3),))
    assert_refuses(FoldScaleIntoConv(), mod, "not-constant")


def test_refuses_integers():
    def body(x):
        y = op.nn.conv2d(x, relax.const(np.ones((6, 4, 3, 3), "int32"), "int32"))
        return op.multiply(y, relax.const(2, "int32"))

    assert_refuses(FoldScaleIntoConv(), graph(body, ((2, 4, 6, 7), "int32")), "dtype-mismatch", found="int32")


def test_refuses_scale_that_differs_by_pixel_or_grows():
    mod = graph(lambda x: op.multiply(conv(x), const(1, 1, 4, 5)), IMAGE)
    assert_refuses(FoldScaleIntoConv(), mod, "shape-mismatch", found=[1, 1, 4, 5])
    mod = graph(lambda x: op.multiply(op.nn.conv2d(x, const(1, 4, 3, 3)), const(1, 5, 1, 1)), IMAGE)
    assert_refuses(FoldScaleIntoConv(), mod, "shape-mismatch", found=[2, 5, 4, 5], expected=[2, 1, 4, 5])


def test_refuses_overflow():
    mod = graph(lambda x: op.multiply(op.add(conv(x), scalar(1e30)), scalar(1e30)), IMAGE)
    assert_refuses(FoldScaleIntoConv(), mod, "not-finite", what="bias")
