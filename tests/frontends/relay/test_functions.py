"""Functions: global and local, closures, recursion, functions as arguments, inlining."""

from __future__ import annotations

import numpy as np
import pytest
from running import converted, run, run_module
from tvm import relax

from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.errors import RelayError

X = np.array([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]], np.float32)
FLOATS = "Tensor[(2, 3), float32]"
FUNCTION = f"fn ({FLOATS}) -> {FLOATS}"
VECTOR = ast.TensorType((2,), "float32")


def relax_functions(mod) -> list[str]:
    return sorted(gv.name_hint for gv, f in mod.functions_items() if isinstance(f, relax.Function))


def result(text: str, *arrays, **kwargs) -> np.ndarray:
    (got,) = run(text, *arrays, level=0, **kwargs)
    return got


def test_global_functions_are_inlined():
    text = f"""def @scale(%y: {FLOATS}, %a: float32) -> {FLOATS} {{ %y * %a }}
def @main(%x: {FLOATS}) {{ @scale(%x, 2f) + @scale(%x, 3f) }}"""
    assert relax_functions(converted(text)) == ["main"]
    np.testing.assert_array_equal(result(text, X), X * 5)


@pytest.mark.parametrize("attribute", ["Primitive=1", 'Composite="my.add"', 'Compiler="dnnl"'])
def test_marked_functions_are_inlined(attribute):
    text = f"""def @main(%x: {FLOATS}) {{
      %1 = fn (%a: {FLOATS}, %b: {FLOATS}, {attribute}) -> {FLOATS} {{ add(%a, %b) }};
      %1(%x, %x)
    }}"""
    assert relax_functions(converted(text)) == ["main"]
    np.testing.assert_array_equal(result(text, X), X + X)


def test_a_function_captures_what_is_around_it():
    text = f"""def @main(%x: {FLOATS}) {{
      let %make = fn (%a: float32) {{ fn (%y: {FLOATS}) {{ %y * %a + %x }} }};
      let %g = %make(2f);
      let %h = %make(3f);
      %g(%h(%x))
    }}"""
    np.testing.assert_array_equal(result(text, X), (X * 3 + X) * 2 + X)


def test_curried_calls():
    text = "def @main(%x: float32) { fn (%a: float32) { fn (%b: float32) { %a - %b } }(%x)(1f) }"
    assert result(text, np.float32(5)) == np.float32(4)


def test_a_value_shared_with_a_function_is_computed_around_it():
    text = f"""def @main(%x: {FLOATS}) {{
      %0 = exp(%x);
      let %f = fn (%y: {FLOATS}) {{ %y + %0 }};
      %f(%x) + %f(%0)
    }}"""
    mod = converted(text)
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    assert [v.op.name for v in values if isinstance(v, relax.Call)].count("relax.exp") == 1
    np.testing.assert_allclose(result(text, X), X + 3 * np.exp(X), rtol=1e-5)


def test_functions_in_tuples():
    text = f"""def @main(%x: {FLOATS}) {{
      %0 = fn (%y: {FLOATS}) {{ %y + 1f }};
      %1 = (%0, (fn (%y: {FLOATS}) {{ %y * 2f }}, %x));
      %2 = %1.1; %3 = %1.0; %4 = %2.0;
      %3(%4(%2.1))
    }}"""
    np.testing.assert_array_equal(result(text, X), X * 2 + 1)


def test_a_global_function_is_a_value():
    text = f"""def @twice(%f: {FUNCTION}, %y: {FLOATS}) -> {FLOATS} {{ %f(%f(%y)) }}
def @inc(%y: {FLOATS}) -> {FLOATS} {{ %y + 1f }}
def @main(%x: {FLOATS}) {{ @twice(@inc, %x) }}"""
    np.testing.assert_array_equal(result(text, X), X + 2)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_recursive_global_functions(count):
    text = f"""def @f(%i: int32, %x: {FLOATS}) -> {FLOATS} {{
      if (%i <= 0) {{ %x }} else {{ @f(%i - 1, %x + 1f) }}
    }}
def @main(%n: int32, %x: {FLOATS}) {{ @f(%n, %x) }}"""
    assert {"f", "main"} <= set(relax_functions(converted(text)))
    np.testing.assert_array_equal(result(text, np.array(count, np.int32), X), X + count)


def test_main_may_call_itself():
    text = """def @main(%n: int32, %x: float32) -> float32 {
      if (%n > 0) { @main(%n - 1, %x * 2f) } else { %x }
    }"""
    assert float(result(text, np.array(3, np.int32), np.float32(5))) == 40


def test_deep_recursion_has_its_stack():
    text = """def @f(%n: int32, %x: float32) -> float32 {
      if (%n > 0) { @f(%n - 1, %x) + %x } else { %x }
    }
def @main(%n: int32, %x: float32) { @f(%n, %x) }"""
    mod = converted(text)
    assert "tvmpass.recursive" in mod["main"].attrs
    (got,) = run_module(mod, np.array(5000, np.int32), np.float32(1), level=0)
    assert float(got) == 5001


@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_functions_that_call_each_other(count):
    text = """def @even(%i: int32) -> bool { if (%i == 0) { True } else { @odd(%i - 1) } }
def @odd(%i: int32) -> bool { if (%i == 0) { False } else { @even(%i - 1) } }
def @main(%n: int32) { @even(%n) }"""
    assert bool(result(text, np.array(count, np.int32))) == (count % 2 == 0)


@pytest.mark.parametrize("count", [0, 7, 35])
def test_a_loop_that_another_function_calls_back(count):
    text = """def @a(%i: int32, %x: float32) -> float32 {
      if (%i > 10) { @a(%i - 10, %x + 10f) } else { if (%i > 0) { @b(%i, %x) } else { %x } }
    }
def @b(%i: int32, %x: float32) -> float32 { @a(%i - 1, %x + 1f) }
def @main(%n: int32) { @a(%n, 0f) }"""
    assert float(result(text, np.array(count, np.int32))) == count


@pytest.mark.parametrize("count", [1, 5, 10])
def test_a_condition_from_a_recursive_function(count):
    text = """def @f(%i: int32) -> int32 { if (%i > 0) { @f(%i - 2) } else { %i } }
def @main(%n: int32) { %0 = @f(%n); if (%0 == 0) { 1f } else { 2f } }"""
    assert float(result(text, np.array(count, np.int32))) == 1 + count % 2


@pytest.mark.parametrize("count", [1, 5, 10])
def test_two_recursive_calls(count):
    text = """def @fib(%i: int32) -> int32 { if (%i < 2) { %i } else { @fib(%i - 1) + @fib(%i - 2) } }
def @main(%n: int32) { @fib(%n) }"""
    assert int(result(text, np.array(count, np.int32))) == {1: 1, 5: 5, 10: 55}[count]


def test_a_recursive_function_gets_functions_and_what_they_capture():
    text = f"""def @main(%x: {FLOATS}, %n: int32) {{
      let %loop = fn (%f: {FUNCTION}, %i: int32, %y: {FLOATS}) -> {FLOATS} {{
        if (%i > 0) {{ %loop(%f, %i - 1, %f(%y)) }} else {{ %y }}
      }};
      %0 = exp(%x);
      let %g = fn (%z: {FLOATS}) {{ %z + %x }};
      let %h = fn (%z: {FLOATS}) {{ %g(%z) + %0 }};
      %loop(%g, %n, %x) + %loop(%h, %n, %x)
    }}"""
    got = result(text, X, np.array(3, np.int32))
    np.testing.assert_allclose(got, 4 * X + X + 3 * (X + np.exp(X)), rtol=1e-5)


def test_recursive_closures_keep_their_own_captures():
    text = """def @main(%n: int32, %x: float32) {
      let %make = fn (%a: float32) {
        let %f = fn (%i: int32, %y: float32) -> float32 { if (%i < %n) { %f(%i + 1, %y + %a) } else { %y } };
        %f
      };
      let %p = %make(%x);
      let %q = %make(%x * 10f);
      %p(0, 0f) + %q(0, 0f)
    }"""
    assert float(result(text, np.array(3, np.int32), np.float32(2))) == 66


def test_a_recursive_function_in_a_branch_of_another():
    text = """def @main(%n: int32, %x: float32) {
      let %up = fn (%i: int32, %y: float32) -> float32 { if (%i < %n) { %up(%i + 1, %y + %x) } else { %y } };
      let %down = fn (%i: int32, %y: float32) -> float32 {
        if (%i > 0) { %down(%i - 1, %up(%i, %y)) } else { %y }
      };
      %down(%n, 0f)
    }"""
    assert float(result(text, np.array(3, np.int32), np.float32(1))) == 0 + 1 + 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def @f(%a: float32) { %a }\ndef @main(%x: float32) { @f(%x, %x) }",
            "@f takes 1 arguments, 2 given",
        ),
        (
            "def @f(%a: int32) { %a }\ndef @main(%x: float32) { @f(%x) }",
            "argument %a of @f: int32 is declared, the value is float32",
        ),
        (
            "def @f(%a: float32) -> int32 { %a }\ndef @main(%x: float32) { @f(%x) }",
            "the result of @f: int32 is declared, the value is float32",
        ),
        (
            "def @f(%a: float32) { @f(%a) }\ndef @main(%x: float32) { @f(%x) }",
            "the result of @f, which is recursive: the type is not stated",
        ),
        ("def @f[A](%a: A) -> A { %a }\ndef @main(%x: float32) { @f(%x) }", "polymorphic function (of A)"),
        ("def @main(%x: float32) { let %f = fn (%g) { %g(%g) }; %f(%f) }", "inside each other"),
    ],
)
def test_wrong_functions_are_refused(text, words):
    with pytest.raises(RelayError) as caught:
        converted(text)
    assert words in str(caught.value)


def test_a_missing_function_is_named():
    x = ast.Var("x", VECTOR)
    module = ast.Module(
        {
            "main": ast.Function([x], ast.Call(ast.Global("hepler"), [x])),
            "helper": ast.Function([x], x),
        }
    )
    with pytest.raises(RelayError, match="@hepler.*did you mean 'helper'"):
        convert(module)


# Inlining has bounds.


def doubling(levels: int, leaf: str = "exp") -> ast.Module:
    """Return a program whose function number n calls number n - 1 twice."""
    functions = {}
    for number in range(levels):
        p = ast.Var("p", VECTOR)
        called = ast.Global(f"f{number - 1}") if number else ast.Operator(leaf)
        functions[f"f{number}"] = ast.Function([p], ast.Call(called, [ast.Call(called, [p])]))
    x = ast.Var("x", VECTOR)
    functions["main"] = ast.Function([x], ast.Call(ast.Global(f"f{levels - 1}"), [x]))
    return ast.Module(functions)


def test_few_calls_are_inlined():
    mod = convert(doubling(3, "negative"))
    assert relax_functions(mod) == ["main"]
    assert sum(len(block.bindings) for block in mod["main"].body.blocks) == 9


def test_calls_beyond_the_bound_are_calls_of_private_functions():
    mod = convert(doubling(40))
    assert 10 < len(relax_functions(mod)) <= 41
    assert sum(len(block.bindings) for block in mod["main"].body.blocks) < 30_000


def test_private_functions_compute_the_same(monkeypatch):
    monkeypatch.setattr("tvmpass.frontends.relay.functions.INLINED_NODES", 4)
    mod = convert(doubling(5, "abs"))
    assert len(relax_functions(mod)) > 1
    x = np.array([-3, 2], np.float32)
    np.testing.assert_array_equal(run_module(mod, x, level=0)[0], np.abs(x))


def test_private_functions_capture_and_take_open_sizes(monkeypatch):
    monkeypatch.setattr("tvmpass.frontends.relay.functions.INLINED_NODES", 0)
    text = """def @main(%x: Tensor[(?, 3), float32], %a: float32) {
      %0 = concatenate((%x, %x));
      let %f = fn (%y) { %y * %a };
      let %g = fn (%y) { (%f(%f(%y)), %f(%0)) };
      %1 = %g(%x); %2 = %g(%0);
      (%1.0, %1.1, %2.0)
    }"""
    mod = converted(text)
    assert len(relax_functions(mod)) > 2
    got = run_module(mod, X, np.float32(2), level=1)
    both = np.concatenate([X, X])
    for found, wanted in zip(got, (X * 4, both * 2, both * 4)):
        np.testing.assert_array_equal(found, wanted)


def test_a_long_chain_of_functions_needs_no_recursion():
    functions = {}
    for number in range(3000):
        p = ast.Var("p", VECTOR)
        inner = ast.Call(ast.Global(f"f{number - 1}"), [p]) if number else p
        functions[f"f{number}"] = ast.Function([p], ast.Call(ast.Operator("add"), [inner, p]))
    x = ast.Var("x", VECTOR)
    functions["main"] = ast.Function([x], ast.Call(ast.Global("f2999"), [x]))
    mod = convert(ast.Module(functions))
    assert sum(len(block.bindings) for block in mod["main"].body.blocks) >= 3000
