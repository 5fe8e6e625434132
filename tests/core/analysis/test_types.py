"""Shapes, dtypes and layouts; sizes at example values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx

from tvmpass.core.analysis import Analyses
from tvmpass.core.analysis.types import EXAMPLE_EXTENT, elements, extent, size_in_bytes
from tvmpass.cost.extents import EXAMPLE_EXTENT as COST_EXAMPLE
from tvmpass.testing.graphs import graph

R = relax.op
NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def facts(body, *inputs):
    analyses = Analyses(graph(body, *inputs))
    return list(analyses.get("types", "main").values())


def test_shape_and_dtype():
    x, y = facts(lambda x: R.astype(x, "int8"), (("n", 4),))
    assert (x.shape[1], x.dtype, y.dtype) == (4, "float32", "int8")
    assert isinstance(x.shape[0], tirx.Var)


def test_layout_flows_from_a_convolution_to_what_keeps_the_shape():
    w = relax.const(np.ones((1, 1, 3, 8), "float32"))
    bias = relax.const(np.ones(8, "float32"))

    def body(x):
        y = R.nn.relu(R.add(R.nn.conv2d(x, w, **NHWC), bias))
        return R.mean(R.exp(R.permute_dims(y, [0, 3, 1, 2])), [2, 3])

    found = [f.layout for f in facts(body, ((1, 5, 5, 3),))]
    assert found == [None, "NHWC", "NHWC", "NHWC", "NCHW", "NCHW", None]


def test_a_matmul_ends_a_layout():
    w = relax.const(np.ones((1, 1, 5, 5), "float32"))
    found = facts(lambda x: R.matmul(R.nn.conv2d(x, w, **NHWC), x), ((1, 5, 5, 5),))
    assert [f.layout for f in found] == [None, "NHWC", None]


def test_an_unknown_shape_is_none():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=2, dtype="float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(R.exp(x))
        builder.emit_func_output(out)
    found = Analyses(builder.get()).get("types", "main")
    assert found[x].shape is None
    assert elements(x) == 1
    assert size_in_bytes(x) == 0


BYTES = {"float32": 24, "float64": 48, "int8": 6, "bool": 6, "bfloat16": 12}


@pytest.mark.parametrize("dtype, size", BYTES.items())
def test_bytes(dtype, size):
    assert size_in_bytes(relax.Var("x", relax.TensorType((2, 3), dtype))) == size


def test_tuples_add_up_and_other_types_take_nothing():
    tensor = relax.TensorType((2, 3), "float32")
    assert size_in_bytes(relax.Var("t", relax.TupleType([tensor, relax.TupleType([tensor])]))) == 48
    assert size_in_bytes(relax.Var("s", relax.ShapeType([2, 3]))) == 0


def test_symbolic_dims_stand_at_example_values():
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, n * 2 + 1), "float32"))
    assert elements(x) == EXAMPLE_EXTENT * (EXAMPLE_EXTENT * 2 + 1)
    assert elements(x, {"n": 3}) == 21
    assert extent(n // 2, {"n": 7}) == 3


def test_the_cost_model_uses_the_same_example_value():
    assert EXAMPLE_EXTENT == COST_EXAMPLE
