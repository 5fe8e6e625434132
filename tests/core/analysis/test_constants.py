"""Which values are known when the model is built."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvmpass.core.analysis import Analyses

R = relax.op


def test_constants_flow_through_repeatable_operators():
    weight = relax.const(np.ones((2, 3), "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = builder.emit(R.permute_dims(weight))
            scaled = builder.emit(R.multiply(turned, turned))
            flat = builder.emit(R.reshape(scaled, (3, 2)))
            zeros = builder.emit(R.zeros((3, 2), "float32"))
            random = builder.emit(R.nn.dropout(flat, 0.5))
            mixed = builder.emit(R.add(x, flat))
            out = builder.emit_output(R.add(mixed, zeros))
        builder.emit_func_output(out)
    found = Analyses(builder.get()).get("constants", "main")
    assert found.known == {turned, scaled, flat, zeros}
    assert found.is_known(weight) and found.is_known(flat)
    assert not any(found.is_known(v) for v in (x, random, mixed, out))


def test_a_shape_is_known_where_it_is_numbers():
    from tvm import tirx

    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            ones = builder.emit(R.ones(relax.ShapeExpr([n]), "float32"))
            out = builder.emit_output(R.add(x, ones))
        builder.emit_func_output(out)
    found = Analyses(builder.get()).get("constants", "main")
    assert found.known == frozenset()
    assert found.is_known(relax.ShapeExpr([2, 3]))
    assert not found.is_known(relax.ShapeExpr([n]))
