"""Convolution networks run channels-last, with permutes only where a region ends."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from relay_passes.layout import PreferNHWC, RewriteConvTranspose, SinkTransposes
from relay_passes.layout.channels_last import to_nhwc
from relay_passes.simplify import RULES
from tvmpass.core.decision import Estimate
from tvmpass.core.engine import Sites, simplify
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger
from tvmpass.core.site import FunctionView, op_name
from tvmpass.core.source import origin
from tvmpass.testing.graphs import graph, named, operators
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results

op = relax.op
IMAGE = ((2, 8, 10, 10),)
CLEANUP = (*(rule() for rule in RULES), SinkTransposes())


def const(*shape, low=-1.0):
    return relax.const(np.random.default_rng(0).uniform(low, 1, shape).astype("float32"))


def conv(x, **attrs):
    groups = attrs.get("groups", 1)
    return named("conv", op.nn.conv2d(x, const(8, 8 // groups, 3, 3), padding=1, **attrs))


def converted(mod):
    view = FunctionView(mod, "main")
    return to_nhwc(mod, "main", [v for v in view.bindings if view.op(v) == "relax.nn.conv2d"])


TAILS = {
    "max-pool": lambda y: op.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1)),
    "avg-pool": lambda y: op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 1)),
    "global-pool": lambda y: op.nn.adaptive_avg_pool2d(y, (1, 1)),
    "mean": lambda y: op.mean(y, [2, 3]),
    "resize": lambda y: op.image.resize2d(y, (20, 20), layout="NCHW", method="linear"),
    "concat": lambda y: op.concat([y, conv(y)], 1),
    "split": lambda y: op.split(y, 2, 1)[1],
    "pad": lambda y: op.nn.pad(y, [0, 0, 0, 0, 1, 1, 1, 1]),
    "reshape": lambda y: op.reshape(y, (2, 8, 100)),
    "layer-norm": lambda y: op.nn.layer_norm(y, const(10), const(10), [-1]),
    "softmax": lambda y: op.nn.softmax(y, 1),
    "prelu": lambda y: op.nn.prelu(y, const(8), 1),
    "leaky": lambda y: conv(op.nn.leakyrelu(y, 0.1)),
    "batch-norm": lambda y: op.nn.batch_norm(y, *[const(8, low=0.1)] * 4, 1, training=False)[0],
    "transposed": lambda y: op.nn.conv2d_transpose(y, const(8, 4, 3, 3), strides=2, padding=1),
    "groups": lambda y: conv(y, groups=2),
    "depthwise": lambda y: conv(y, groups=8),
    "low-rank-constant": lambda y: conv(op.add(const(8, 1, 1), y)),
    "row-constant": lambda y: op.add(y, const(10)),
    "squeeze-excite": lambda y: op.multiply(
        op.sigmoid(op.nn.conv2d(op.mean(y, [2, 3], True), const(8, 8, 1, 1))), y
    ),
}


@pytest.mark.parametrize("name", TAILS)
def test_results_stay_with_every_kind_of_reader(name):
    before = graph(lambda x: TAILS[name](conv(x)), IMAGE)
    after = converted(before)
    assert relax.analysis.check_well_formed(after)
    data = np.random.default_rng(1).uniform(-1, 1, IMAGE[0]).astype("float32")
    # Sums of 72 products of values up to 1, then at most another 72.
    assert_same_results(before, after, data, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["leaky", "low-rank-constant", "squeeze-excite", "depthwise", "concat"])
def test_two_permutes_are_left(name):
    mod = converted(graph(lambda x: TAILS[name](conv(x)), IMAGE))
    assert operators(simplify(mod, CLEANUP)).count("permute_dims") == 2


def test_transposed_convolution_needs_no_permute_in_between():
    def body(x):
        y = op.nn.relu(
            op.add(op.nn.conv2d_transpose(conv(x), const(8, 8, 2, 2), strides=2), const(1, 8, 1, 1))
        )
        return op.sigmoid(op.nn.conv2d_transpose(y, const(8, 1, 2, 2), strides=2))

    before = graph(body, IMAGE)
    rules = (*CLEANUP, RewriteConvTranspose())
    after = simplify(converted(simplify(before, rules)), rules)
    # One for the input, one depth-to-space for each transposed convolution.
    assert operators(after).count("permute_dims") == 3
    data = np.random.default_rng(1).uniform(-1, 1, IMAGE[0]).astype("float32")
    assert_same_results(before, after, data, rtol=1e-4, atol=1e-5)


def test_unchosen_convolutions_keep_their_layout():
    mod = graph(lambda x: conv(op.nn.relu(conv(x))), IMAGE)
    view = FunctionView(mod, "main")
    first = next(v for v in view.bindings if view.op(v) == "relax.nn.conv2d")
    after = to_nhwc(mod, "main", [first])
    layouts = [b.value.attrs.data_layout for block in after["main"].body.blocks for b in block.bindings
               if getattr(b.value, "op", None) == tvm.ir.Op.get("relax.nn.conv2d")]  # fmt: skip
    assert layouts == ["NHWC", "NCHW"]


def test_source_nodes_stay():
    after = converted(graph(lambda x: named("act", op.nn.relu(conv(x))), (("n", 8, 10, 10),)))
    named_values = {
        b.value.op.name: origin(b.value) for block in after["main"].body.blocks for b in block.bindings
        if origin(b.value)
    }  # fmt: skip
    assert named_values["relax.nn.conv2d"] == ("conv",)
    assert named_values["relax.nn.relu"] == ("act",)


class Prices:
    """Says 10 µs for NCHW and what it is given for NHWC; no price for None."""

    def __init__(self, channels_last):
        self.channels_last = channels_last

    def apart(self, view):
        layouts = {
            str(v.attrs.data_layout) for v in view.bindings.values() if op_name(v) == "relax.nn.conv2d"
        }
        mean = self.channels_last if layouts == {"NHWC"} else 10.0
        return None if mean is None else Estimate.exact("analytic", mean)


def job(layout="auto", channels_last=1.0):
    return SimpleNamespace(
        options=Options(layout=layout),
        sites=Sites(Ledger()),
        target=tvm.target.Target("llvm"),
        pricer=Prices(channels_last),
    )


@pytest.mark.parametrize(
    "layout,channels_last,outcome",
    [
        ("auto", 5.0, "applied"),
        ("auto", 9.9, "unprofitable"),  # not by the least speedup
        ("auto", 20.0, "unprofitable"),
        ("auto", None, "applied"),  # abstaining: the default of the target
        ("NHWC", 20.0, "applied"),
        ("keep", 5.0, "unprofitable"),
        ("NCHW", 5.0, "unprofitable"),
    ],
)
def test_weighs(layout, channels_last, outcome):
    mod = graph(lambda x: conv(x), IMAGE)
    run = job(layout, channels_last)
    after = PreferNHWC().plan(mod, "main", run)
    assert [d.outcome for d in run.sites.ledger.decisions] == [outcome]
    assert tvm_ffi.structural_equal(mod, after) == (outcome != "applied")
    run.sites.ledger.assert_sum()
    again = len(run.sites.ledger.decisions)
    PreferNHWC().plan(after, "main", run)
    assert len(run.sites.ledger.decisions) == again


def test_a_network_is_not_priced():
    mod = graph(lambda x: conv(op.nn.relu(conv(x))), IMAGE)
    run = job(channels_last=20.0)
    PreferNHWC(max_priced=1).plan(mod, "main", run)
    assert [d.outcome for d in run.sites.ledger.decisions] == ["applied", "applied"]


def test_refuses_other_layouts():
    mod = graph(lambda x: op.nn.conv2d(x, const(3, 3, 8, 8), kernel_layout="HWIO"), IMAGE)
    assert_refuses(PreferNHWC(), mod, "unsupported-layout", found=["NCHW", "HWIO", "NCHW"])


def test_refuses_unknown_shape():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=4))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.nn.conv2d(x, const(8, 8, 3, 3)))
        builder.emit_func_output(y)
    assert_refuses(PreferNHWC(), builder.finalize(), "unknown-shape")
