"""The graph-level price drops what could never pay."""

import numpy as np
import pytest
from tvm import relax

from tvmpass.core.site import FunctionView
from tvmpass.cost.device import Device
from tvmpass.cost.graph_features import graph_cost_us, graph_features

op = relax.op


def _view(shapes, body) -> FunctionView:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            steps = body(builder.emit, *params)
            out = builder.emit_output(steps)
        builder.emit_func_output(out)
    return FunctionView(relax.transform.CanonicalizeBindings()(builder.get()), "main")


def test_bytes_and_work_of_a_chain():
    view = _view([(64, 32), (64, 32)], lambda emit, x, y: op.exp(emit(op.add(x, y))))
    found = graph_features(view, list(view.bindings))
    assert found.bytes_in == 2 * 64 * 32 * 4 and found.bytes_out == 64 * 32 * 4
    assert (found.curves, found.simple, found.flops) == (2048.0, 2048.0, 0.0)
    assert found.recompute == 1.0 and found.operators == 2


def test_broadcast_of_an_expensive_value_is_recomputed():
    view = _view([(256, 128), (128,)], lambda emit, x, b: op.add(x, emit(op.tanh(emit(op.exp(b))))))
    every = list(view.bindings)
    whole = graph_features(view, every)
    assert whole.curves == 2 * 256 * 128
    assert whole.recompute > 2
    device = Device(vector_bytes=64)
    assert graph_cost_us(view, every, device) > sum(graph_cost_us(view, [v], device) for v in every)


def test_chain_is_cheaper_fused():
    def body(emit, x, y):
        return op.nn.relu(emit(op.add(emit(op.multiply(x, y)), y)))

    view = _view([(512, 512)] * 2, body)
    every, device = list(view.bindings), Device(vector_bytes=64)
    assert graph_cost_us(view, every, device) < 0.6 * sum(graph_cost_us(view, [v], device) for v in every)


def test_contraction_reads_what_it_is_given_once():
    view = _view([(64, 32), (32, 16)], lambda emit, x, w: op.matmul(emit(op.exp(x)), w))
    found = graph_features(view, list(view.bindings))
    assert found.curves == 64 * 32
    assert found.flops == 2 * 64 * 16 * 32


@pytest.mark.parametrize("groups, flops", [(1, 2 * 100 * 8 * 9 * 8), (8, 2 * 100 * 8 * 9)])
def test_convolution_counts_its_window(groups, flops):
    def body(emit, x, w):
        conv = op.nn.conv2d
        return conv(x, w, padding=1, groups=groups, data_layout="NHWC", kernel_layout="HWIO")

    view = _view([(1, 10, 10, 8), (3, 3, 8 // groups, 8)], body)
    assert graph_features(view, list(view.bindings)).flops == flops


def test_pooling_window_recomputes():
    def body(emit, x):
        return op.nn.max_pool2d(emit(op.exp(x)), (3, 3), padding=1, layout="NHWC")

    view = _view([(1, 16, 16, 4)], body)
    assert graph_features(view, list(view.bindings)).curves == pytest.approx(9 * 16 * 16 * 4)


def test_values_read_elsewhere_are_written():
    view = _view([(8, 8)], lambda emit, x: op.add(emit(op.exp(x)), x))
    first = next(iter(view.bindings))
    assert graph_features(view, [first]).bytes_out == 8 * 8 * 4


def test_symbolic_dims_count_by_example():
    from tvm import tirx

    n = tirx.Var("n", "int64")
    view = _view([(n, 32)], lambda emit, x: op.exp(x))
    every = list(view.bindings)
    assert graph_features(view, every, {"n": 10}).curves == 320
    assert np.isfinite(graph_cost_us(view, every, Device()))
