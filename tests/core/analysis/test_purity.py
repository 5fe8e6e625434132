"""Purity: what may be left out, and what may be shared."""

from __future__ import annotations

from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.core.analysis.purity import is_pure, is_repeatable
from tvmpass.testing.graphs import graph

R = relax.op


def value(make):
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    return make(x)


def test_operators():
    assert is_pure(value(R.exp)) and is_repeatable(value(R.exp))
    dropout = value(lambda x: R.nn.dropout(x, 0.5))
    assert is_pure(dropout) and not is_repeatable(dropout)


def test_calls_into_unknown_code():
    out = relax.TensorType((3,), "float32")
    packed = value(lambda x: relax.call_dps_packed("my.function", (x,), out))
    assert not is_pure(packed) and not is_repeatable(packed)
    said_pure = value(lambda x: R.call_pure_packed("my.function", x, ty_args=out))
    assert is_pure(said_pure) and not is_repeatable(said_pure)


def test_the_analysis_sorts_bindings():
    mod = graph(lambda x: R.exp(R.nn.dropout(x, 0.5)[0]), ((3,),))
    found = Analyses(mod).get("purity", "main")
    view = Analyses(mod).get("uses", "main")
    order = list(view.bindings)
    assert found.pure == set(order)
    assert order[0] not in found.repeatable
    assert order[-1] in found.repeatable
