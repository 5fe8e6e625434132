"""Liveness: from the definition to the last reader."""

from __future__ import annotations

from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.core.analysis.liveness import PARAMETER
from tvmpass.testing.graphs import graph

R = relax.op


def test_a_chain_with_a_skip():
    mod = graph(lambda x: R.add(R.tanh(R.exp(R.negative(x))), R.negative(x)), ((3,),))
    analyses = Analyses(graph(lambda x: x, ((3,),)))
    analyses.after(mod)
    live = analyses.get("liveness", "main")
    view = analyses.get("uses", "main")
    (x,), order = view.function.params, list(view.bindings)
    names = ["negative", "exp", "tanh", "negative", "add"]
    assert [view.op(v) for v in order] == [f"relax.{name}" for name in names]
    assert (live.defined[x], live.last_read[x]) == (PARAMETER, 3)
    assert live.last_read[order[0]] == 1
    assert live.last_read[order[2]] == 4
    assert live.last_read[order[4]] == len(order)
    assert live.live_at(3) == {x, order[2], order[3]}
    assert live.dies_at(3) == {x}
    assert live.dies_at(4) == {order[2], order[3]}


def test_results_live_to_the_end_and_dead_values_no_longer_than_themselves():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(R.exp(x))
            dead = builder.emit(R.sin(x))
            out = builder.emit_output(R.tanh(first))
        builder.emit_func_output(relax.Tuple([first, out]))
    live = Analyses(builder.get()).get("liveness", "main")
    assert live.last_read[first] == live.last_read[out] == 3
    assert live.last_read[dead] == live.defined[dead] == 1
    assert dead in live.dies_at(1)
