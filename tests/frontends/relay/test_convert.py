"""Straight-line programs: values, tuples, inputs, parameters, dims and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from running import converted, run, run_module, run_ops
from tvm import relax

from tvmpass.core.errors import UsageError
from tvmpass.core.source import origin
from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.emitter import RelaxEmitter
from tvmpass.frontends.relay.errors import RelayError

X = np.array([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]], np.float32)
FLOATS = "Tensor[(2, 3), float32]"


def bindings(mod: tvm.IRModule) -> list[relax.Binding]:
    return [binding for block in mod["main"].body.blocks for binding in block.bindings]


def calls(mod: tvm.IRModule) -> list[str]:
    values = [binding.value for binding in bindings(mod)]
    return [value.op.name for value in values if isinstance(value, relax.Call)]


def refusal(text: str, **kwargs) -> str:
    with pytest.raises(RelayError) as caught:
        converted(text, **kwargs)
    return str(caught.value)


def test_a_shared_value_is_computed_once():
    mod = converted(f"def @main(%x: {FLOATS}) {{ %0 = exp(%x); %1 = add(%0, %0); multiply(%1, %0) }}")
    assert calls(mod) == ["relax.exp", "relax.add", "relax.multiply"]


def test_what_nobody_reads_is_not_converted():
    mod = converted(f"def @main(%x: {FLOATS}) {{ let %a = nn.no_such(%x); %0 = exp(%x); abs(%x) }}")
    assert calls(mod) == ["relax.abs"]


def test_lets_hide_names_of_outer_lets():
    body = "let %y = add(%x, 1f); %0 = (let %y = multiply(%x, 2f); abs(%y)); add(%0, %y)"
    np.testing.assert_array_equal(run_ops(body, {"x": X})[0], np.abs(X * 2) + X + 1)


def test_tuples_nest_and_outputs_are_flat():
    text = f"""def @main(%x: {FLOATS}) {{
      %0 = (%x, (add(%x, 1f), ()));
      %1 = %0.1;
      (%1.0, (%0.0, %1.0), %1.1)
    }}"""
    got = run(text, X, level=0)
    assert len(got) == 3
    for found, wanted in zip(got, (X + 1, X, X + 1)):
        np.testing.assert_array_equal(found, wanted)


def test_tuple_inputs_become_tensors_by_index():
    text = (
        f"def @main(%t: ({FLOATS}, (float32, int32)), %y: float32) {{ %0 = %t.1; (%t.0 + %0.0, %0.1, %y) }}"
    )
    mod = converted(text)
    assert [param.name for param in mod["main"].params] == ["t.0", "t.1.0", "t.1.1", "y"]
    got = run_module(mod, X, np.float32(2), np.array(3, np.int32), np.float32(4), level=0)
    np.testing.assert_array_equal(got[0], X + 2)
    assert [int(got[1]), float(got[2])] == [3, 4.0]


def test_inputs_and_constants_may_be_outputs():
    got = run(f"def @main(%x: {FLOATS}) {{ (%x, 3f, %x) }}", X, level=0)
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[2], X)
    assert got[1] == np.float32(3) and got[1].dtype == np.float32


@pytest.mark.parametrize("dtype", ["int64", "float64", "int8", "uint8", "bool", "float16", "int16"])
def test_constants_keep_their_dtype(dtype):
    value = np.array([1, 0, 1], dtype)
    main = ast.Function([], ast.Tuple([ast.Constant(value)]))
    mod = convert(ast.Module({"main": main}))
    constant = next(item for b in bindings(mod) for item in b.value.fields)
    assert str(constant.ty.dtype) == dtype
    np.testing.assert_array_equal(constant.value.numpy(), value)


def test_constants_without_elements_are_made_at_run_time():
    x = np.zeros((0, 3), np.float32)
    var = ast.Var("x", ast.TensorType((2, 3), "float32"))
    body = ast.Call(ast.Operator("concatenate"), [ast.Tuple([ast.Constant(x), var])], {"axis": 0})
    got = run_module(convert(ast.Module({"main": ast.Function([var], body)})), X, level=0)
    np.testing.assert_array_equal(got[0], X)


def test_parameters_become_constants_and_others_stay_inputs():
    text = f"def @main(%x: {FLOATS}, %w: {FLOATS}, %b: float32) {{ %x * %w + %b }}"
    mod = converted(text, {"w": X, "unused": X})
    assert [param.name for param in mod["main"].params] == ["x", "b"]
    np.testing.assert_array_equal(run_module(mod, X, np.float32(1), level=0)[0], X * X + 1)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"w": X.astype(np.float64)}, "'w' is declared Tensor[(2, 3), float32], but Tensor[(2, 3), float64]"),
        ({"w": X[:1]}, "'w' is declared Tensor[(2, 3), float32], but Tensor[(1, 3), float32]"),
        ({"ww": X}, "did you mean 'w'"),
    ],
)
def test_parameters_that_do_not_fit(params, words):
    with pytest.raises(UsageError) as caught:
        converted(f"def @main(%x: {FLOATS}, %w: {FLOATS}) {{ %x * %w }}", params)
    assert words in str(caught.value)


def test_names_that_occur_twice_are_numbered():
    one, two = (ast.Var("data", ast.TensorType((2, 3), "float32")) for _ in range(2))
    body = ast.Call(ast.Operator("subtract"), [one, two])
    mod = convert(ast.Module({"main": ast.Function([one, two], body)}))
    assert [param.name for param in mod["main"].params] == ["data", "data1"]
    with pytest.raises(UsageError, match="several inputs have that name"):
        convert(ast.Module({"main": ast.Function([one, two], body)}), {"data": X})


def test_operators_that_leave_their_operand():
    body = "%0 = copy(%x); %1 = annotation.stop_fusion(%0); %2 = on_device((%1, %x)); %2.0 + %2.1"
    np.testing.assert_array_equal(run_ops(body, {"x": X})[0], X + X)


def test_an_operator_is_a_value():
    np.testing.assert_array_equal(run_ops("let %f = add; %f(%x, %x)", {"x": X})[0], X + X)


# Names of the source.


def test_calls_carry_the_names_of_the_program():
    text = f"def @main(%x: {FLOATS}) {{\n%7 = exp(%x);\nlet %z = abs(%7);\nadd(%z,\nnegative(%z)) }}"
    names = {
        b.value.op.name: origin(b.value) for b in bindings(converted(text)) if isinstance(b.value, relax.Call)
    }
    assert names["relax.exp"] == ("%7",)
    assert names["relax.add"] == ("add@5",)
    assert names["relax.negative"] == ("negative@6",)


def test_calls_without_a_place_are_numbered():
    var = ast.Var("x", ast.TensorType((2,), "float32"))
    body = ast.Call(ast.Operator("exp"), [ast.Call(ast.Operator("abs"), [var])])
    mod = convert(ast.Module({"main": ast.Function([var], body)}))
    assert [origin(b.value) for b in bindings(mod) if isinstance(b.value, relax.Call)] == [
        ("abs#1",),
        ("exp#2",),
    ]


# Dims.


def test_an_open_dim_is_a_symbol_of_its_own():
    mod = converted("def @main(%x: Tensor[(?, 3), float32], %y: Tensor[(?), float32]) { (exp(%x), abs(%y)) }")
    dims = [str(param.ty.shape.values[0]) for param in mod["main"].params]
    assert dims == ["x_0", "y_0"]
    got = run_module(mod, X, X[0], level=1)
    np.testing.assert_allclose(got[0], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(got[1], np.abs(X[0]))


def test_shapes_give_sizes_and_shared_names():
    text = "def @main(%x: Tensor[(?, ?), float32], %y: Tensor[(?, 3), float32]) { add(%x, %y) }"
    mod = converted(text, shapes={"x": ("n", 3), "y": ("n", 3)})
    x, y = mod["main"].params
    assert x.ty.shape.values[0].same_as(y.ty.shape.values[0])
    assert int(x.ty.shape.values[1]) == 3
    np.testing.assert_array_equal(run_module(mod, X, X, level=1)[0], X + X)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": (2, 3)}, "unknown input 'z'"),
        ({"x": (2,)}, "has 2 dims"),
        ({"x": (2, 4)}, "dim 1 fixed at 3"),
        ({"x": ("1n", 3)}, "neither a size nor a name"),
        ({"x": (-1, 3)}, "neither a size nor a name"),
    ],
)
def test_shapes_that_do_not_fit(shapes, words):
    with pytest.raises(UsageError) as caught:
        converted("def @main(%x: Tensor[(?, 3), float32]) { exp(%x) }", shapes=shapes)
    assert words in str(caught.value)


@pytest.mark.parametrize("body", ["add(%x, %y)", "nn.dense(%x, %y, units=None)"])
def test_open_dims_that_must_agree(body):
    said = refusal(f"def @main(%x: Tensor[(?, ?), float32], %y: Tensor[(?, ?), float32]) {{ {body} }}")
    assert "input 'x'" in said and "input 'y'" in said and "--shape" in said


def test_a_known_size_is_checked_of_an_open_dim_at_run_time():
    text = (
        "def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(4, ?), float32]) { nn.dense(%x, %y, units=None) }"
    )
    mod = converted(text)
    y = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(run_module(mod, X, y, level=1)[0], X @ y.T, rtol=1e-6)
    with pytest.raises(Exception, match="7 vs. 3|mismatch"):
        run_module(mod, X, np.zeros((4, 7), np.float32), level=1)


# Refusals.


def test_all_that_is_unsupported_is_said_at_once_with_lines():
    lines = "%0 = nn.no_such(%x);\n%1 = nn.bitserial_dense(%0, %x);\nadd(%1, nn.no_such(%x))"
    said = refusal(f"def @main(%x: {FLOATS}) {{\n{lines} }}")
    assert said.startswith("test.relay:3:6: 2 things cannot be converted: ")
    assert "nn.no_such (no operator of Relay" in said and "in lines 3, 5" in said
    assert "operator nn.bitserial_dense in line 4" in said
    assert "^" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("add(%x)", "add: takes 2 arguments (lhs, rhs), 1 given"),
        ("nn.softmax(%x, axes=1)", "has no attribute 'axes'; did you mean 'axis'"),
        ("%0 = (%x, %x); %0.2", "item 2 of a tuple of 2"),
        ("%x.0", "no tuple but Tensor[(2, 3), float32]"),
        ("%x(%x)", "what is called is no function but Tensor[(2, 3), float32]"),
        ("let %y: int32 = abs(%x); %y", "%y: int32 is declared, the value is Tensor[(2, 3), float32]"),
        (
            "add((%x, %x), %x)",
            "add cannot be converted on ((Tensor[(2, 3), float32], Tensor[(2, 3), float32])",
        ),
        ("add(fn (%y: float32) { %y }, %x)", "add: argument lhs is a function"),
        ("fn (%y: float32) { %y }", "@main returns a function"),
        ("let %y = add(%y, %x); %y", "%y is used in its own value"),
    ],
)
def test_wrong_programs_are_refused_at_their_place(body, words):
    said = refusal(f"def @main(%x: {FLOATS}) {{\n{body} }}")
    assert words in said
    assert said.startswith("test.relay:") and "^" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("int32", "int32 is declared"),
        ("Tensor[(3, 2), float32]", "Tensor[(3, 2), float32] is declared"),
        ("(float32, float32)", "(float32, float32) is declared"),
    ],
)
def test_a_declared_result_must_hold(declared, words):
    assert words in refusal(f"def @main(%x: {FLOATS}) -> {declared} {{ exp(%x) }}")


def test_a_declared_result_with_open_dims_holds():
    assert converted(f"def @main(%x: {FLOATS}) -> Tensor[(?, 3), float32] {{ exp(%x) }}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def @main(%x) { %x }", "the type is not stated"),
        ("def @main(%x: Tensor[(99999999999, 99999999999), int8]) { %x }", "more elements than any memory"),
        ("def @main(%f: fn (float32) -> float32) { %f(1f) }", "has no Relax form"),
        ("def @fun(%x: float32) { %x }", "no function @main (functions: @fun)"),
    ],
)
def test_mains_that_cannot_be_called(text, words):
    assert words in refusal(text)


def test_a_variable_outside_its_function_is_refused():
    inner = ast.Var("y", ast.TensorType((2,), "float32"))
    shared = ast.Call(ast.Operator("exp"), [inner])
    x = ast.Var("x", ast.TensorType((2,), "float32"))
    function = ast.Function([inner], shared)
    body = ast.Call(ast.Operator("add"), [shared, ast.Call(function, [x])])
    with pytest.raises(RelayError, match="%y is used where it"):
        convert(ast.Module({"main": ast.Function([x], body)}))


# Long programs.


@pytest.mark.parametrize("lets", [False, True])
def test_long_chains_need_no_recursion(lets):
    x = ast.Var("x", ast.TensorType((2,), "float32"))
    value: ast.Expression = x
    bound = []
    for number in range(5000):
        call = ast.Call(ast.Operator("add"), [value, x])
        if lets:
            value = ast.Var(f"v{number}")
            bound.append((value, call))
        else:
            value = call
    body = ast.Let(bound, value) if lets else value
    assert len(calls(convert(ast.Module({"main": ast.Function([x], body)})))) == 5000


def test_repeated_squaring_is_not_repeated_work():
    x = ast.Var("x", ast.TensorType((2,), "float32"))
    value: ast.Expression = x
    for _ in range(60):
        value = ast.Call(ast.Operator("multiply"), [value, value])
    assert len(calls(convert(ast.Module({"main": ast.Function([x], value)})))) == 60


# Values known now.


def test_array_evaluates_what_small_operators_make_of_constants():
    builder = relax.BlockBuilder()
    emit = RelaxEmitter(builder)
    x = relax.Var("x", relax.TensorType((2,), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            two = emit.const([2, 3], "int64")
            known = emit(relax.op.multiply(emit(relax.op.add(two, two)), two))
            np.testing.assert_array_equal(emit.array(known), [8, 18])
            both = emit(relax.op.concat([known, two], axis=0))
            np.testing.assert_array_equal(emit.array(both), [8, 18, 2, 3])
            assert emit.array(emit(relax.op.add(known, x))) is None
            result = builder.emit_output(known)
        builder.emit_func_output(result)


def test_te_returns_several_results_as_a_tuple():
    from tvm import te

    builder = relax.BlockBuilder()
    emit = RelaxEmitter(builder)
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))

    def both(a):
        return [te.compute(a.shape, lambda *i: a(*i) + 1), te.compute(a.shape, lambda *i: a(*i) * 2)]

    with builder.function("main", [x]):
        with builder.dataflow():
            one, two = emit.te(both, x, name="both")
            result = builder.emit_output(relax.Tuple([one, two]))
        builder.emit_func_output(result)
    got = run_module(builder.get(), X, level=0)
    np.testing.assert_array_equal(got[0], X + 1)
    np.testing.assert_array_equal(got[1], X * 2)
