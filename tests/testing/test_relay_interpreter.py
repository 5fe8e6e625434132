"""The interpreter runs Relay's control flow, and its operators have Relay's meaning."""

from __future__ import annotations

import numpy as np
import pytest

from tvmpass.frontends.relay.ast import (
    Call,
    Constant,
    Function,
    Global,
    If,
    Let,
    Module,
    Operator,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from tvmpass.testing.relay.interpreter import interpret, types_of


def number(value, dtype="int32"):
    return Constant(np.asarray(value, dtype))


def call(name, *args, **attrs):
    return Call(Operator(name), list(args), attrs)


def run(params, body, *inputs, **functions):
    return interpret(Module({**functions, "main": Function(params, body)}), inputs)


def apply(name, *arrays, **attrs):
    params = [Var(f"x{place}") for place in range(len(arrays))]
    return run(params, call(name, *params, **attrs), *arrays)


def test_a_function_sees_where_it_was_made_not_where_it_is_called():
    x, f, y = Var("x"), Var("f"), Var("x")
    adds = Function([y], call("add", y, x))
    body = Let([(f, adds), (Var("x"), number(100))], Call(f, [number(1)]))
    assert run([x], body, np.asarray(10, "int32")) == 11


def test_recursion_by_let_and_by_name():
    n, f, i = Var("n"), Var("f"), Var("i")
    step = call("multiply", i, Call(f, [call("subtract", i, number(1))]))
    factorial = Function([i], If(call("less", i, number(1)), number(1), step))
    assert run([n], Let([(f, factorial)], Call(f, [n])), np.asarray(5, "int32")) == 120
    again = Call(Global("main"), [call("subtract", n, number(1))])
    assert run([n], If(call("less", n, number(1)), n, again), np.asarray(5_000, "int32")) == 0


def test_only_the_branch_taken_is_computed():
    x = Var("x")
    bad = call("no.such.operator", x)
    assert run([x], If(number(True, "bool"), x, bad), np.asarray(1.0)) == 1.0


def test_a_shared_value_is_computed_once():
    x = Var("x", TensorType((), "float32"))
    value = x
    for _ in range(60):
        value = call("add", value, value)
    assert run([x], value, np.asarray(1, "float32")) == 2.0**60


def test_a_long_chain_needs_no_recursion():
    value = x = Var("x")
    for _ in range(20_001):
        value = call("negative", value)
    assert run([x], value, np.asarray(3, "int32")) == -3


def test_types_are_those_of_the_values():
    x, f, y = Var("x"), Var("f"), Var("y", TensorType((2,), "float32"))
    function = Function([y], call("cast", y, dtype="int8"), TensorType((2,), "int8"))
    pair = Tuple([x, Call(f, [x])])
    item = TupleGetItem(pair, 1)
    module = Module({"main": Function([x], Let([(f, function)], item))})
    types = types_of(module, [np.zeros(2, "float32")])
    assert types[item] == types[function.body] == TensorType((2,), "int8")
    assert types[pair] == TupleType((TensorType((2,), "float32"), TensorType((2,), "int8")))
    assert str(types[f]) == str(types[function])


def test_wrong_calls_are_errors():
    x = Var("x")
    with pytest.raises(TypeError, match="2 arguments for 1 parameters"):
        interpret(Module({"main": Function([x], x)}), [1, 2])
    with pytest.raises(LookupError, match="%y has no value here"):
        run([x], Var("y"), np.asarray(1))


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "wanted"),
    [
        ("round", [[0.5, -0.5, 1.5, -2.5, 0.49]], {}, [1, -1, 2, -3, 0]),
        ("argmax", [[[1, 3, 3], [2, 2, 0]]], {"axis": [1]}, [1, 0]),
        ("argmax", [[[1, 3, 3], [2, 2, 0]]], {"axis": [1], "select_last_index": True}, [2, 1]),
        ("sum", [[[1, 2], [3, 4]]], {"axis": [0], "exclude": True}, [3, 7]),
        ("reverse", [[1, 2, 3]], {"axis": 0}, [3, 2, 1]),
        ("strided_slice", [[0, 1, 2, 3, 4]], {"begin": [4], "end": [-6], "strides": [-2]}, [4, 2, 0]),
        ("strided_slice", [[0, 1, 2, 3]], {"begin": [1], "end": [2], "slice_mode": "size"}, [1, 2]),
        ("nn.pad", [[1, 2], 9], {"pad_width": [[1, 2]]}, [9, 1, 2, 9, 9]),
        ("nn.mirror_pad", [[1, 2, 3]], {"pad_width": [[1, 1]]}, [1, 1, 2, 3, 3]),
    ],
)
def test_operators(name, inputs, attrs, wanted):
    if name == "strided_slice":
        attrs = {"axes": None, "strides": [1], **attrs}
    arrays = [np.asarray(value, "float32") for value in inputs]
    assert np.array_equal(apply(name, *arrays, **attrs), wanted)


def test_integers_divide_toward_zero():
    found = apply("divide", np.array([7, -7, 7, -7], "int32"), np.array([2, 2, -2, -2], "int32"))
    assert found.dtype == np.int32 and found.tolist() == [3, -3, -3, 3]


@pytest.mark.parametrize(
    ("shape", "words", "wanted"),
    [
        ((2, 3, 4), [0, -1], (2, 12)),
        ((2, 3, 4), [-2], (2, 3, 4)),
        ((2, 3, 4), [-3, 0], (6, 4)),
        ((2, 3, 4), [0, -4, -1, 3, -2], (2, 1, 3, 4)),
        ((6,), [-4, 2, -1], (2, 3)),
    ],
)
def test_reshape_words(shape, words, wanted):
    assert apply("reshape", np.zeros(shape, "float32"), newshape=words).shape == wanted


def test_requantize_rounds_halves_upward_or_away():
    x = np.array([1, -1, 3, -3, 1000], "int32")
    arguments = [
        np.asarray(v, d) for v, d in ((0.5, "float32"), (0, "int32"), (1.0, "float32"), (0, "int32"))
    ]
    up = apply("qnn.requantize", x, *arguments, out_dtype="int8")
    away = apply("qnn.requantize", x, *arguments, out_dtype="int8", rounding="TONEAREST")
    assert up.tolist() == [1, 0, 2, -1, 127]
    assert away.tolist() == [1, -1, 2, -2, 127]
