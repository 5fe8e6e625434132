"""Transposed convolutions whose windows do not overlap become matmuls."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.layout import RewriteConvTranspose
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, assert_settled

op = relax.op
IMAGE = ((2, 4, 5, 6),)


def const(*shape, seed=0):
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32"))


def deconv(x, out=3, kernel=(2, 2), **attrs):
    return op.nn.conv2d_transpose(x, const(4, out, *kernel), **{"strides": kernel, **attrs})


def hard_swish(y):
    clipped = op.minimum(op.maximum(op.add(y, relax.const(3.0)), relax.const(0.0)), relax.const(6.0))
    return op.multiply(op.multiply(y, clipped), relax.const(1 / 6))


NETS = {
    "plain": (IMAGE, lambda x: deconv(x)),
    "oblong": (IMAGE, lambda x: deconv(x, kernel=(2, 3))),
    "one-channel": (IMAGE, lambda x: deconv(x, out=1)),
    "bias-relu": (IMAGE, lambda x: op.nn.relu(op.add(deconv(x), const(1, 3, 1, 1)))),
    "bias-left": (IMAGE, lambda x: op.add(const(3, 1, 1), deconv(x))),
    "hard-swish": (IMAGE, lambda x: hard_swish(op.add(deconv(x), const(1, 3, 1, 1)))),
    "per-pixel-add": (IMAGE, lambda x: op.add(deconv(x), const(1, 1, 10, 12))),
}


@pytest.mark.parametrize("name", NETS)
def test_applies(name):
    spec, net = NETS[name]
    before = graph(net, spec)
    after, decisions = run_rule(RewriteConvTranspose(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert "nn.conv2d_transpose" not in operators(after)
    assert_settled(RewriteConvTranspose(), after)
    data = np.random.default_rng(1).standard_normal(spec[0]).astype("float32")
    assert_same_results(before, after, data, rtol=1e-5, atol=1e-6)


def test_what_follows_joins_the_convolution():
    after, _ = run_rule(RewriteConvTranspose(), graph(NETS["bias-relu"][1], IMAGE))
    names = operators(after)
    assert names[names.index("nn.conv2d") :] == [
        "nn.conv2d", "add", "nn.relu", "reshape", "permute_dims", "reshape", "permute_dims",
    ]  # fmt: skip


def test_value_read_by_two_is_not_moved_past():
    def body(x):
        y = deconv(x)
        return op.nn.relu(y), op.sum(y, 1)

    before = graph(body, IMAGE)
    after, decisions = run_rule(RewriteConvTranspose(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    data = np.random.default_rng(1).standard_normal(IMAGE[0]).astype("float32")
    assert_same_results(before, after, data, rtol=1e-5, atol=1e-6)


def test_symbolic_batch():
    before = graph(lambda x: op.nn.relu(deconv(x)), (("n", 4, 5, 6),))
    after, _ = run_rule(RewriteConvTranspose(), before)
    data = np.random.default_rng(1).standard_normal((3, 4, 5, 6)).astype("float32")
    assert_same_results(before, after, data, rtol=1e-5, atol=1e-6)


def test_refuses_weights_that_are_no_constants():
    mod = graph(lambda x, w: op.nn.conv2d_transpose(x, w, strides=2), IMAGE, ((4, 3, 2, 2),))
    assert_refuses(RewriteConvTranspose(), mod, "not-constant")


def test_refuses_overlapping_windows():
    mod = graph(lambda x: deconv(x, kernel=(3, 3), strides=(2, 2)), IMAGE)
    assert_refuses(RewriteConvTranspose(), mod, "windows-overlap", strides=[2, 2], kernel=[3, 3])


@pytest.mark.parametrize("attrs", [{"padding": 1}, {"output_padding": (1, 1)}, {"dilation": 2}], ids=str)
def test_refuses_padding_and_dilation(attrs):
    mod = graph(lambda x: deconv(x, **attrs), IMAGE)
    assert_refuses(RewriteConvTranspose(), mod, "padded")


def test_refuses_groups():
    mod = graph(lambda x: deconv(x, groups=2), IMAGE)
    assert_refuses(RewriteConvTranspose(), mod, "grouped", groups=2)


def test_refuses_other_layouts():
    weight = const(3, 4, 2, 2)
    mod = graph(lambda x: op.nn.conv2d_transpose(x, weight, strides=2, kernel_layout="OIHW"), IMAGE)
    assert_refuses(RewriteConvTranspose(), mod, "unsupported-layout", found=["NCHW", "OIHW", "NCHW"])
