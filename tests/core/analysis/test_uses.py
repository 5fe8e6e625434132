"""The view of a function: readers, outputs, blocks, escapes."""

from __future__ import annotations

import tvm
from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.core.site import FunctionView, outputs_of
from tvmpass.testing.graphs import graph

R = relax.op


def view_of(body, *inputs, **options) -> FunctionView:
    return Analyses(graph(body, *inputs, **options)).get("uses", "main")


def test_readers_and_outputs():
    view = view_of(lambda x: (R.add(R.exp(x), R.exp(x)), x), ((3,),))
    (x,) = view.function.params
    order = list(view.bindings)
    assert view.users[x] == order[:2]
    assert view.users[order[0]] == [order[2]]
    assert view.returned(x) and view.returned(order[2])
    assert not view.returned(order[0])
    assert view.op(order[2]) == "relax.add"


def test_a_value_read_twice_by_one_call_has_one_reader():
    view = view_of(lambda x: R.multiply(x, x), ((3,),))
    assert len(view.users[view.function.params[0]]) == 1


def test_readers_inside_tuples_and_branches_count():
    view = view_of(lambda x: R.concat([R.exp(x), x], axis=0), ((3,),))
    exp, *_, concat = view.bindings
    assert view.users[exp] == [concat]


def test_escapes():
    view = view_of(lambda x: (R.tanh(R.exp(x)), R.sin(R.negative(R.exp(x)))), ((3,),))
    exp, tanh = list(view.bindings)[:2]
    assert view.escapes(tanh, {exp, tanh})
    assert not view.escapes(exp, {exp, tanh})
    assert view.escapes(exp, {exp})
    assert outputs_of(view, [exp, tanh]) == [tanh]


def test_variables_outside_dataflow_are_outputs():
    view = view_of(lambda x: R.tanh(R.exp(x)), ((3,),), dataflow=False)
    assert set(view.bindings) <= view.outputs
    assert not view.in_dataflow(next(iter(view.bindings)))


def test_match_casts_are_marked():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=1, dtype="float32"))
    n = tvm.tirx.Var("n", "int64")
    with builder.function("main", [x]):
        with builder.dataflow():
            cast = builder.match_cast(x, relax.TensorType((n,), "float32"))
            out = builder.emit_output(R.exp(cast))
        builder.emit_func_output(out)
    view = FunctionView(builder.get(), "main")
    assert view.match_casts == {cast}
    assert view.users[x] == [cast]
