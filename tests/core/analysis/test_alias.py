"""Aliases: names, tuples, views, parameters."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.testing.graphs import graph

R = relax.op


def aliases(body, *inputs):
    analyses = Analyses(graph(body, *inputs))
    view = analyses.get("uses", "main")
    return analyses.get("alias", "main"), view, list(view.bindings)


def test_operators_make_memory_and_views_do_not():
    found, view, order = aliases(lambda x: R.exp(R.reshape(R.negative(x), (4, 2))), ((2, 4),))
    negative, reshape, exp = order
    assert found.may_alias(negative, reshape)
    assert not found.may_alias(reshape, exp)
    assert found.storages[reshape] == {negative}
    assert not found.may_alias(negative, view.function.params[0])


def test_a_view_of_a_parameter_lies_in_the_callers_memory():
    found, view, order = aliases(lambda x: R.reshape(R.reshape(x, (8,)), (4, 2)), ((2, 4),))
    assert all(found.may_alias(var, view.function.params[0]) for var in order)


def test_tuples_are_told_apart_field_by_field():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a, b = builder.emit(R.exp(x)), builder.emit(R.tanh(x))
            both = builder.emit(relax.Tuple([a, b]))
            first = builder.emit(relax.TupleGetItem(both, 0))
            parts = builder.emit(R.split(a, 2))
            one, two = builder.emit(relax.TupleGetItem(parts, 0)), builder.emit(relax.TupleGetItem(parts, 1))
            out = builder.emit_output(R.add(one, two))
        builder.emit_func_output(relax.Tuple([out, first]))
    found = Analyses(builder.get()).get("alias", "main")
    assert found.may_alias(first, a) and not found.may_alias(first, b)
    assert found.may_alias(both, a) and found.may_alias(both, b)
    assert found.may_alias(one, two)  # fields of one operator's result: not told apart
    assert not found.may_alias(out, one)


def test_a_constant_has_no_memory_to_share():
    constant = relax.const(np.ones(3, "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            c = builder.emit(constant)
            out = builder.emit_output(R.add(x, c))
        builder.emit_func_output(out)
    found = Analyses(builder.get()).get("alias", "main")
    assert found.storages[c] == frozenset()
    assert not found.may_alias(c, x)
