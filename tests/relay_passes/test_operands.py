"""Constants are read bit by bit, on either side of an operator."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes import operands
from relay_passes.recognize import polynomials
from tvmpass.core.analysis import purity
from tvmpass.core.site import FunctionView
from tvmpass.testing.graphs import graph

op = relax.op


def view_of(body, *specs):
    view = FunctionView(graph(body, *specs), "main")
    return view, list(view.bindings)


@pytest.mark.parametrize(
    "values,expected",
    [
        ([1.0, 1.0], 1.0),
        ([1.0, 2.0], None),
        ([0.0, -0.0], None),
        ([np.nan, np.nan], np.nan),
        ([], None),
        ([np.nan, 1.0], None),
    ],
)
def test_uniform_constants(values, expected):
    view, _ = view_of(lambda x: op.exp(x), ((2,),))
    found = operands.uniform_of(view, relax.const(np.array(values, "float32")))
    assert found is None if expected is None else np.array_equal(found, expected, equal_nan=True)


def test_number_on_either_side():
    def body(x):
        return op.multiply(relax.const(2.0), x), op.multiply(x, relax.const(3.0))

    view, (left, right) = view_of(body, ((2,),))
    assert operands.with_number(view, left, "relax.multiply")[1] == 2.0
    assert operands.with_number(view, right, "relax.multiply")[1] == 3.0
    assert operands.with_number(view, left, "relax.add") is None


def test_constants_keep_rank_and_dtype():
    made = operands.constant(np.asarray(0.5), "float16")
    assert made.value.numpy().shape == () and made.value.numpy().dtype == np.float16


def test_polynomials_see_through_any_spelling():
    def body(x, t):
        return op.divide(op.add(x, op.multiply(t, x)), relax.const(2.0)), op.subtract(
            op.square(x), op.power(x, relax.const(2.0))
        )

    view, bindings = view_of(body, ((2,),), ((2,),))
    x, t = view.function.params
    halves = next(b for b in bindings if view.op(b) == "relax.divide")
    assert polynomials.read(view, halves, x, t) == {(1, 0): 0.5, (1, 1): 0.5}
    nothing = next(b for b in bindings if view.op(b) == "relax.subtract")
    assert polynomials.read(view, nothing, x, t) == {}
    assert polynomials.text({(1, 0): 0.5, (1, 1): 0.25}) == "0.25*x^1*t^1 + 0.5*x^1"


def test_what_is_pure_and_repeatable():
    view, (call,) = view_of(lambda x: op.exp(x), ((2,),))
    assert purity.is_pure(view.bindings[call]) and purity.is_repeatable(view.bindings[call])
    assert not purity.is_pure(op.print(view.function.params[0], format="{}"))
