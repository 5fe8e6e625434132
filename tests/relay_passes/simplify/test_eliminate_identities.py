"""Identities are removed where they are exact, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.simplify import EliminateIdentities
from relay_passes.simplify.identities import is_lossless
from tvmpass.core.engine import run_rule
from tvmpass.testing.graphs import graph, interpret, operators, run
from tvmpass.testing.rule_checks import (
    assert_applies,
    assert_refuses,
    assert_same_results,
    assert_settled,
    special,
)

op = relax.op
FLOAT, INT, BOOL = ((3, 4),), ((3, 4), "int32"), ((3, 4), "bool")


def scalar(value, dtype="float32"):
    return relax.const(value, dtype)


IDENTITIES = {
    "add-negative-zero": (FLOAT, lambda x: op.add(x, scalar(-0.0))),
    "negative-zero-add": (FLOAT, lambda x: op.add(scalar(-0.0), x)),
    "subtract-zero": (FLOAT, lambda x: op.subtract(x, scalar(0.0))),
    "add-integer-zero": (INT, lambda x: op.add(x, scalar(0, "int32"))),
    "multiply-one": (FLOAT, lambda x: op.multiply(x, scalar(1.0))),
    "one-multiply": (FLOAT, lambda x: op.multiply(scalar(1.0), x)),
    "multiply-ones": (FLOAT, lambda x: op.multiply(x, relax.const(np.ones((3, 1), "float32")))),
    "divide-one": (FLOAT, lambda x: op.divide(x, scalar(1.0))),
    "floor-divide-one": (INT, lambda x: op.floor_divide(x, scalar(1, "int32"))),
    "power-one": (FLOAT, lambda x: op.power(x, scalar(1.0))),
    "maximum-lowest": (FLOAT, lambda x: op.maximum(x, scalar(-np.inf))),
    "minimum-highest": (INT, lambda x: op.minimum(scalar(2**31 - 1, "int32"), x)),
    "negative-twice": (FLOAT, lambda x: op.negative(op.negative(x))),
    "not-twice": (BOOL, lambda x: op.logical_not(op.logical_not(x))),
    "cast-to-own-dtype": (FLOAT, lambda x: op.astype(x, "float32")),
    "cast-there-and-back": (FLOAT, lambda x: op.astype(op.astype(x, "float64"), "float32")),
    "reshape-to-own-shape": (FLOAT, lambda x: op.reshape(x, (3, 4))),
    "broadcast-to-own-shape": (FLOAT, lambda x: op.broadcast_to(x, (3, 4))),
    "transpose-identity": (FLOAT, lambda x: op.permute_dims(x, [0, 1])),
    "concat-of-one": (FLOAT, lambda x: op.concat([x], 0)),
    "pad-by-nothing": (FLOAT, lambda x: op.nn.pad(x, [0, 0, 0, 0])),
    "where-of-equals": (FLOAT, lambda x: op.where(op.isnan(x), x, x)),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_applies_and_is_exact(name):
    spec, identity = IDENTITIES[name]
    # Not on the bare parameter: a function whose result is one is a case of its own.
    before = graph(
        lambda x: identity(op.logical_not(x) if spec is BOOL else op.sin(x) if spec is FLOAT else x), spec
    )
    after, decisions = run_rule(EliminateIdentities(), before)
    assert "applied" in [d.outcome for d in decisions]
    assert_settled(EliminateIdentities(), after)
    dtype = spec[1] if len(spec) == 2 else "float32"
    direct = graph(identity, spec)
    gone, _ = run_rule(EliminateIdentities(), direct)
    data = special((3, 4), dtype) if dtype == "float32" else np.arange(-6, 6).reshape(3, 4).astype(dtype)
    execute = run if name == "pad-by-nothing" else interpret
    assert_same_results(direct, gone, data, rtol=0.0, atol=0.0, execute=execute)


def test_relu_twice_becomes_one():
    before = graph(lambda x: op.nn.relu(op.nn.relu(x)), FLOAT)
    assert_applies(EliminateIdentities(), before, graph(lambda x: op.nn.relu(x), FLOAT))


def test_symbolic_shapes_and_several_readers():
    before = graph(lambda x: (op.multiply(op.exp(x), scalar(1.0)), op.tanh(op.exp(x))), (("n", 4),))
    after, decisions = run_rule(EliminateIdentities(), before)
    assert [d.outcome for d in decisions] == ["applied"]
    assert operators(after).count("multiply") == 0


def test_refuses_positive_zero():
    mod = graph(lambda x: op.add(x, scalar(0.0)), FLOAT)
    assert_refuses(EliminateIdentities(), mod, "negative-zero", operator="relax.add", constant="0.0")


def test_refuses_to_subtract_negative_zero():
    mod = graph(lambda x: op.subtract(x, scalar(-0.0)), FLOAT)
    assert_refuses(EliminateIdentities(), mod, "negative-zero", operator="relax.subtract", constant="-0.0")


def test_refuses_lossy_cast():
    mod = graph(lambda x: op.astype(op.astype(x, "float32"), "int32"), INT)
    assert_refuses(EliminateIdentities(), mod, "lossy-cast", start="int32", through="float32")


def test_refuses_constant_that_grows_the_result():
    mod = graph(lambda x: op.multiply(x, relax.const(np.ones((2, 3, 4), "float32"))), FLOAT)
    assert_refuses(EliminateIdentities(), mod, "shape-mismatch", found=[3, 4], expected=[2, 3, 4])


def test_never_touches_multiplication_by_zero():
    mod = graph(lambda x: op.multiply(x, scalar(0.0)), FLOAT)
    assert_settled(EliminateIdentities(), mod)
    assert np.isnan(interpret(mod, special((3, 4)))[0]).any()


@pytest.mark.parametrize(
    "start,through,expected",
    [
        ("float16", "float32", True),
        ("float32", "float16", False),
        ("bfloat16", "float16", False),
        ("float16", "bfloat16", False),
        ("int8", "float16", True),
        ("int16", "float32", True),
        ("int32", "float32", False),
        ("int32", "float64", True),
        ("int64", "float64", False),
        ("uint8", "int16", True),
        ("uint8", "int8", False),
        ("int8", "uint16", False),
        ("bool", "int8", True),
        ("int8", "bool", False),
        ("float32", "int64", False),
    ],
)
def test_lossless_casts(start, through, expected):
    assert is_lossless(start, through) is expected
