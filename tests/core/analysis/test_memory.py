"""Memory: what lives when, the peak, and what may be reused."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tvmpass.core.analysis import Analyses
from tvmpass.core.analysis.memory import plan_memory
from tvmpass.testing.graphs import graph

R = relax.op


def memory(body, *inputs, **options):
    analyses = Analyses(graph(body, *inputs))
    view = analyses.get("uses", "main")
    return (plan_memory(view, **options) if options else analyses.get("memory", "main")), list(view.bindings)


def test_a_chain_needs_two_buffers_at_a_time():
    found, order = memory(lambda x: R.exp(R.tanh(R.negative(R.sin(x)))), ((10,),))
    assert found.live == [40, 80, 80, 80]
    assert (found.peak, found.allocated, found.planned) == (80, 160, 80)
    assert found.reuses == {order[2]: order[0], order[3]: order[1]}


def test_a_skip_keeps_its_value_alive():
    found, _ = memory(lambda x: [h := R.sin(x), R.add(R.exp(R.tanh(h)), h)][1], ((10,),))
    assert found.live == [40, 80, 120, 120]
    assert found.peak == 120


def test_views_take_no_memory_and_prolong_the_life_of_theirs():
    found, _ = memory(lambda x: R.exp(R.reshape(R.sin(x), (5, 2))), ((10,),))
    assert found.live == [40, 40, 80]
    assert found.allocated == 80


def test_parameters_and_constants_are_not_counted():
    found, _ = memory(lambda x: R.add(x, relax.const(np.ones(10, "float32"))), ((10,),))
    assert found.live == [40]
    found, _ = memory(lambda x: R.reshape(x, (5, 2)), ((10,),))
    assert found.peak == 0


def test_the_smallest_fitting_piece_is_taken():
    def body(x):
        return R.sum(R.add(R.broadcast_to(x, (8, 10)), R.sin(x)), axis=[0])

    found, (big, small, _, total) = memory(body, ((10,),))
    assert found.live == [320, 360, 680, 360]
    assert found.reuses == {total: small}
    assert found.planned == found.allocated - 40 == 680
    assert big not in found.reuses


def test_symbolic_dims_stand_at_example_values():
    found, _ = memory(lambda x: R.exp(x), (("n", 10),))
    assert found.peak == 4 * 40
    found, _ = memory(lambda x: R.exp(x), (("n", 10),), examples={"n": 7})
    assert found.peak == 7 * 40


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_reuse_never_gives_out_memory_that_is_needed(steps):
    def body(x):
        values = [x]
        for a, b in steps:
            values.append(R.add(values[a % len(values)], values[b % len(values)]))
        return values[-1]

    mod = graph(body, ((10,),))
    analyses = Analyses(mod)
    found, live = analyses.get("memory", "main"), analyses.get("liveness", "main")
    assert found.peak <= found.planned <= found.allocated
    for taker, giver in found.reuses.items():
        assert live.last_read[giver] < live.defined[taker]
    assert len(set(found.reuses.values())) == len(found.reuses)
