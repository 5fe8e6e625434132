"""Float arithmetic inside one kernel is what is written, not what it is for real numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import tvmpass
from tvmpass.compile.exact_floats import guard
from tvmpass.testing.graphs import NAMES, graph

R = relax.op
NAN, INF = np.nan, np.inf
SPECIAL = np.array([NAN, INF, -INF, 1.0, -0.0, 0.0], "float32")


def number(value: float):
    return relax.const(np.float32(value))


def results(body, *arrays):
    """Run a graph as one kernel and as one kernel per operator."""
    made = []
    for fusion in ("always", "never"):
        with tvmpass.PassContext(config={"tvmpass.fusion": fusion}):
            lib = tvmpass.build(graph(body, *[(a.shape,) for a in arrays]))
        made.append(lib.run(dict(zip(NAMES, arrays)))[0])
    return made


CASES = {
    "x-x": (lambda x: R.tanh(R.subtract(x, x)), lambda x: x - x),
    "x*0": (lambda x: R.multiply(x, number(0.0)), lambda x: x * np.float32(0)),
    "-0*x": (lambda x: R.multiply(number(-0.0), x), lambda x: np.float32(-0.0) * x),
    "0/x": (lambda x: R.divide(number(0.0), x), lambda x: np.float32(0) / x),
    "x+0": (lambda x: R.add(x, number(0.0)), lambda x: x + np.float32(0)),
    "relu-relu": (lambda x: R.subtract(R.nn.relu(x), R.nn.relu(x)), lambda x: x.clip(0) - x.clip(0)),
}


@pytest.mark.parametrize("name", CASES)
def test_special_values_are_not_simplified_away(name):
    body, numpy = CASES[name]
    with np.errstate(all="ignore"):
        expected = numpy(SPECIAL)
    for got in results(body, SPECIAL):
        np.testing.assert_array_equal(got, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


def test_rounding_is_not_simplified_away():
    x = np.array([1.0, 3.0, 9.0], "float32")
    for got in results(lambda x: R.subtract(R.add(x, number(1e8)), number(1e8)), x):
        np.testing.assert_array_equal(got, [0.0, 0.0, 8.0])
    for got in results(lambda x, y: R.subtract(R.add(x, y), y), x, np.array([1e20, INF, NAN], "float32")):
        np.testing.assert_array_equal(got, [0.0, NAN, NAN])


def test_nan_equals_nothing_and_is_not_less():
    x = np.array([NAN, INF, 1.0, -1.0], "float32")
    for got in results(lambda x: R.equal(R.nn.relu(x), R.nn.relu(x)), x):
        np.testing.assert_array_equal(got, [False, True, True, True])
    for got in results(lambda x: R.logical_not(R.less(R.add(x, x), x)), x):
        np.testing.assert_array_equal(got, ~(x + x < x))


def test_the_guarded_kernel_is_still_vector_code():
    source = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in T.vectorized(64):
        with T.sblock("c"):
            v = T.axis.spatial(64, i)
            C[v] = A[v] + T.float32(1e8) - T.float32(1e8)
"""
    function = tvm.script.from_source(source)
    guarded = guard(function)
    assert guard(guarded).same_as(guarded)
    module = tvm.tirx.build(tvm.IRModule({"main": guarded}), tvm.target.Target("llvm"))
    lines = [
        line for line in module.inspect_source("ll").splitlines() if " fadd " in line or " fsub " in line
    ]
    assert len(lines) >= 2 and all("x float>" in line for line in lines)
    out = tvm.runtime.tensor(np.ones(64, "float32"))
    module["main"](tvm.runtime.tensor(np.arange(64, dtype="float32")), out)
    np.testing.assert_array_equal(
        out.numpy(), (np.arange(64, dtype="float32") + np.float32(1e8)) - np.float32(1e8)
    )
