"""A convolution's input may change layout while it is padded."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvmpass
from relay_passes.fusion import FuseConvInput
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph
from tvmpass.testing.rule_checks import assert_refuses, assert_same_results, proposals

op = relax.op
X, W = (1, 3, 9, 8), (3, 3, 3, 16)


def _const(shape, seed=0):
    return relax.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def _conv(data, padding=(1, 1, 1, 1), strides=(1, 1)):
    return op.nn.conv2d(
        data,
        _const(W, 1),
        strides=list(strides),
        padding=list(padding),
        data_layout="NHWC",
        kernel_layout="HWIO",
    )


def _nhwc(data):
    return op.permute_dims(data, [0, 2, 3, 1])


def test_scale_shift_and_transpose_join_with_and_without_epilogue():
    def body(x):
        scaled = op.add(op.multiply(x, _const((1, 3, 1, 1), 2)), _const((1, 3, 1, 1), 3))
        return op.nn.relu(_conv(_nhwc(scaled)))

    assert list(proposals(FuseConvInput(), graph(body, (X,))).values()) == [
        ["multiply + add + permute_dims + conv2d + relu", "multiply + add + permute_dims + conv2d"]
    ]


def test_a_transpose_alone():
    mod = graph(lambda x: _conv(_nhwc(x)), (X,))
    assert list(proposals(FuseConvInput(), mod).values()) == [["permute_dims + conv2d"]]


def test_what_else_reads_the_producer_stays_apart():
    def body(x):
        scaled = op.multiply(x, _const((1, 3, 1, 1), 2))
        return op.add(op.sum(_conv(_nhwc(scaled))), op.sum(scaled))

    assert list(proposals(FuseConvInput(), graph(body, (X,))).values()) == [["permute_dims + conv2d"]]


def test_no_transpose_is_no_site():
    mod = graph(lambda x: _conv(op.nn.relu(x)), ((1, 9, 8, 3),))
    assert list(FuseConvInput().match(FunctionView(mod, "main"))) == []


def test_refuses_without_padding():
    mod = graph(lambda x: _conv(_nhwc(x), (0, 0, 0, 0)), (X,))
    assert_refuses(FuseConvInput(), mod, "no-padding")


def test_refuses_a_transpose_read_elsewhere():
    def body(x):
        moved = _nhwc(x)
        return op.add(op.sum(_conv(moved)), op.sum(moved))

    assert_refuses(FuseConvInput(), graph(body, (X,)), "escapes", readers=["relax.sum"])


def test_refuses_a_transpose_of_another_block():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            moved = builder.emit_output(_nhwc(x))
        between = builder.emit(op.abs(x))
        with builder.dataflow():
            z = builder.emit_output(op.add(op.sum(_conv(moved)), op.sum(between)))
        builder.emit_func_output(z)
    assert_refuses(FuseConvInput(), builder.finalize(), "crosses-dataflow-block")


NETS = {
    "scaled": lambda x: op.nn.relu(_conv(_nhwc(op.multiply(x, _const((1, 3, 1, 1), 2))))),
    "strided": lambda x: _conv(_nhwc(op.add(x, _const((1, 3, 1, 1), 2))), (2, 0, 1, 1), (2, 2)),
    "curve": lambda x: _conv(_nhwc(op.tanh(x))),
    "plain": lambda x: op.add(_conv(_nhwc(x)), _const((16,), 4)),
}


@pytest.mark.parametrize("name", NETS)
def test_fused_kernels_compute_the_same(emitter, name):
    mod = graph(NETS[name], (X,))
    data = np.random.default_rng(1).standard_normal(X).astype("float32")
    for candidate in emitter.candidates(FuseConvInput(), mod):
        assert_same_results(mod, emitter.fused(mod, candidate), data, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_a_build_has_one_kernel_and_the_same_results(name):
    mod = graph(NETS[name], (X,))
    data = np.random.default_rng(2).standard_normal(X).astype("float32")
    results = []
    for fusion in ("always", "never"):
        with tvmpass.PassContext(opt_level=3, config={"tvmpass.fusion": fusion}):
            built = tvmpass.build(mod, target="llvm")
        results.append(next(iter(built.run({mod["main"].params[0].name: data}))))
        if fusion == "always":
            kernels = (
                built.report.to_json()["kernels"]
                if hasattr(built.report, "to_json")
                else built.report["kernels"]
            )
            assert len(kernels) == 1
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)
