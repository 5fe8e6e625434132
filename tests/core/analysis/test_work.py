"""Operations and bytes per binding."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.core.analysis.work import binding_work
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph

R = relax.op


def last(body, *inputs, **options):
    view = FunctionView(graph(body, *inputs), "main")
    var, value = list(view.bindings.items())[-1]
    return binding_work(var, value, **options)


def weight(*shape):
    return relax.const(np.ones(shape, "float32"))


@pytest.mark.parametrize(
    "body, shape, flops",
    [
        (lambda x: R.exp(x), (4, 8), 32),
        (lambda x: R.add(x, weight(8)), (4, 8), 32),
        (lambda x: R.matmul(x, weight(8, 16)), (4, 8), 2 * 4 * 16 * 8),
        (lambda x: R.matmul(x, x), (3, 8, 8), 2 * 3 * 8 * 8 * 8),
        (lambda x: R.nn.conv2d(x, weight(6, 3, 3, 3), padding=(1, 1)), (1, 3, 5, 5), 2 * 6 * 25 * 27),
        (lambda x: R.nn.conv2d(x, weight(6, 1, 3, 3), groups=6), (1, 6, 5, 5), 2 * 6 * 9 * 9),
        (
            lambda x: R.nn.conv2d(x, weight(3, 3, 3, 6), data_layout="NHWC", kernel_layout="HWIO"),
            (1, 5, 5, 3),
            2 * 9 * 6 * 27,
        ),
        (lambda x: R.nn.conv2d_transpose(x, weight(3, 6, 2, 2), strides=(2, 2)), (1, 3, 5, 5), 2 * 75 * 24),
        (lambda x: R.nn.max_pool2d(x, (2, 2), strides=(2, 2)), (1, 3, 4, 4), 12 * 4),
        (lambda x: R.nn.adaptive_avg_pool2d(x, (1, 1)), (1, 3, 4, 4), 48),
        (lambda x: R.sum(x, axis=[1]), (4, 8), 32),
        (lambda x: R.nn.softmax(x), (4, 8), 128),
        (lambda x: R.permute_dims(x), (4, 8), 0),
        (lambda x: R.reshape(x, (32,)), (4, 8), 0),
    ],
)
def test_flops(body, shape, flops):
    assert last(body, (shape,)).flops == flops


def test_bytes_of_operands_and_result():
    work = last(lambda x: R.add(x, weight(8)), ((4, 8),))
    assert (work.bytes_read, work.bytes_written) == (4 * 32 + 4 * 8, 128)
    work = last(lambda x: R.astype(x, "int8"), ((4, 8),))
    assert (work.bytes_read, work.bytes_written) == (128, 32)
    work = last(lambda x: R.reshape(x, (32,)), ((4, 8),))
    assert (work.bytes_read, work.bytes_written) == (0, 0)


def test_several_results_are_all_written():
    view = FunctionView(graph(lambda x: R.split(x, 2, axis=1)[0], ((4, 8),)), "main")
    var, value = next(iter(view.bindings.items()))
    assert binding_work(var, value).bytes_written == 128


def test_symbolic_dims_stand_at_example_values():
    assert last(lambda x: R.exp(x), (("n", 8),)).flops == 32
    assert last(lambda x: R.exp(x), (("n", 8),), examples={"n": 10}).flops == 80


def test_the_analysis_covers_every_binding():
    mod = graph(lambda x: R.exp(R.reshape(R.negative(x), (32,))), ((4, 8),))
    found = Analyses(mod).get("work", "main")
    assert [w.flops for w in found.values()] == [32, 0, 32]
