"""Branches and loops: what they compute at every level, with every way to build."""

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


def check(text: str, arrays, wanted, level: int = 1, rtol: float = 1e-6, **kwargs) -> None:
    got = run(text, *arrays, level=level, **kwargs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted):
        assert one.shape == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=rtol)


def branches(mod) -> list[relax.If]:
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [value for value in values if isinstance(value, relax.If)]


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_reads_what_is_computed_before_it(condition):
    text = f"""def @main(%c: bool, %x: {FLOATS}) {{
      %0 = exp(%x);
      if (%c) {{ add(%0, 1f) }} else {{ %1 = abs(%x); add(%1, %0) }}
    }}"""
    check(text, [np.array(condition), X], np.exp(X) + (1 if condition else np.abs(X)), rtol=1e-5)


def test_what_only_one_branch_needs_is_computed_there():
    text = f"""def @main(%c: bool, %x: {FLOATS}) {{
      let %a = exp(%x);
      let %b = tanh(%x);
      if (%c) {{ add(%a, %a) }} else {{ %b }}
    }}"""
    mod = converted(text)
    (choice,) = branches(mod)
    inside = [
        [b.value.op.name for block in part.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
        for part in (choice.true_branch, choice.false_branch)
    ]
    assert inside == [["relax.exp", "relax.add"], ["relax.tanh"]]
    check(text, [np.array(False), X], np.tanh(X), rtol=1e-5)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_return_tuples(condition):
    text = f"""def @main(%c: bool, %x: {FLOATS}) {{
      %2 = if (%c) {{ (%x, (add(%x, 1f), %x)) }} else {{ (exp(%x), (%x, abs(%x))) }};
      %3 = %2.1;
      (%3.0, %2.0, %3.1)
    }}"""
    wanted = (X + 1, X, X) if condition else (X, np.exp(X), np.abs(X))
    check(text, [np.array(condition), X], wanted, rtol=1e-5)


def test_branches_that_return_nothing_are_nothing():
    mod = converted(f"def @main(%c: bool, %x: {FLOATS}) {{ %0 = if (%c) {{ () }} else {{ () }}; (%x, %0) }}")
    assert not branches(mod)


def test_a_known_condition_takes_its_branch():
    mod = converted(f"def @main(%x: {FLOATS}) {{ if (less(1f, 2f)) {{ exp(%x) }} else {{ abs(%x) }} }}")
    assert not branches(mod)
    np.testing.assert_allclose(run_module(mod, X)[0], np.exp(X), rtol=1e-6)


def test_a_bound_parameter_takes_its_branch():
    text = f"def @main(%c: bool, %x: {FLOATS}) {{ if (%c) {{ exp(%x) }} else {{ abs(%x) }} }}"
    mod = converted(text, {"c": np.array(False)})
    assert not branches(mod)
    np.testing.assert_array_equal(run_module(mod, X)[0], np.abs(X))


@pytest.mark.parametrize("number", [0, 1, -3])
def test_an_integer_condition_is_true_where_it_is_not_zero(number):
    text = "def @main(%c: int32, %x: float32) { if (%c) { %x } else { %x + 1f } }"
    check(text, [np.array(number, np.int32), np.float32(2)], np.float32(2 if number else 3))


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_branches_nest(number):
    text = f"""def @main(%a: int32, %x: {FLOATS}) {{
      if (%a < 3) {{ if (%a < 1) {{ %x }} else {{ if (%a == 1) {{ %x + 1f }} else {{ %x + 2f }} }} }}
      else {{ negative(%x) }}
    }}"""
    check(text, [np.array(number, np.int32), X], {0: X, 1: X + 1, 2: X + 2, 5: -X}[number])


@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_different_sizes(condition):
    text = f"""def @main(%c: bool, %x: {FLOATS}) {{
      %0 = if (%c) {{ %x }} else {{ concatenate((%x, %x)) }};
      add(%0, 1f)
    }}"""
    check(text, [np.array(condition), X], (X if condition else np.concatenate([X, X])) + 1)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("rows", [1, 4])
def test_branches_on_open_dims(condition, rows):
    text = """def @main(%c: bool, %x: Tensor[(?, 3), float32]) {
      %0 = if (%c) { if (less(sum(%x), 0f)) { add(%x, 1f) } else { concatenate((%x, exp(%x))) } }
           else { concatenate((%x, %x)) };
      multiply(%0, 2f)
    }"""
    x = np.full((rows, 3), 0.5, np.float32)
    wanted = np.concatenate([x, np.exp(x) if condition else x]) * 2
    check(text, [np.array(condition), x], wanted)


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("rows", ["?", "2"])
@pytest.mark.parametrize(
    ("step", "end"),
    [
        ("%y + %x", lambda x, n: x * (n + 1)),
        ("nn.matmul(nn.dense(%x, %x, units=None), %y)", lambda x, n: np.linalg.matrix_power(x @ x.T, n) @ x),
    ],
)
def test_a_loop_that_keeps_its_open_sizes(step, end, rows, count):
    text = f"""def @main(%n: int32, %x: Tensor[({rows}, 3), float32]) {{
      let %f = fn (%i: int32, %y: Tensor[(?, 3), float32]) -> Tensor[(?, 3), float32] {{
        if (%i < %n) {{ %f(%i + 1, {step}) }} else {{ %y * 2f }}
      }};
      %f(0, %x) - %x
    }}"""
    check(text, [np.array(count, np.int32), X / 8], 2 * end(X / 8, count) - X / 8, rtol=1e-5)


def test_late_sizes_that_must_agree_are_refused():
    text = """def @main(%n: int32, %x: Tensor[(?, 3), float32]) {
      %0 = if (%n > 1) { %x } else { concatenate((%x, %x)) };
      add(%0, %x)
    }"""
    with pytest.raises(RelayError, match="sizes to agree that a loop"):
        converted(text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if (%x) { %x } else { %x }", "the condition of if is Tensor[(2, 3), float32], not a scalar"),
        ("if (%c) { 1f } else { 2 }", "the branches of if differ: float32 and int32"),
        ("if (%c) { (%x, %x) } else { %x }", "the branches of if differ"),
        ("if (%c) { %x } else { sum(%x) }", "the branches of if differ"),
        ("if (%c) { fn (%y: float32) { %y } } else { fn (%y: float32) { 1f } }", "returns a function"),
    ],
)
def test_wrong_branches_are_refused(body, words):
    with pytest.raises(RelayError) as caught:
        converted(f"def @main(%c: bool, %x: {FLOATS}) {{ {body} }}")
    assert words in str(caught.value)


def deep(levels: int) -> ast.Module:
    c, x = ast.Var("c", ast.TensorType((), "bool")), ast.Var("x", ast.TensorType((2,), "float32"))
    body: ast.Expression = x
    for number in range(levels):
        other = ast.Call(ast.Operator("add"), [x, ast.Constant(np.float32(number))])
        body = ast.If(c, body, other)
    return ast.Module({"main": ast.Function([c, x], body)})


def test_deep_branches():
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(run_module(convert(deep(40)), np.array(True), x, level=0)[0], x)


def test_too_deep_branches_are_refused():
    with pytest.raises(RelayError, match="inside each other"):
        convert(deep(5000))


# Loops.

WHILE = f"""def @main(%n: int32, %x: {FLOATS}) {{
  let %while = fn (%i: int32, %acc: {FLOATS}) -> (int32, {FLOATS}) {{
    if (%i < %n) {{ %while(%i + 1, %acc + %x) }} else {{ (%i, %acc) }}
  }};
  %3 = %while(0, %x);
  (%3.1, %3.0)
}}"""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_while_loop(count):
    check(WHILE, [np.array(count, np.int32), X], (X * (count + 1), np.int32(count)))


@pytest.mark.parametrize("count", [2, 7, 20_000])
def test_a_loop_takes_no_stack_per_step(monkeypatch, count):
    """Four steps between two frames show the seams; the usual bound lets 20,000 steps run."""
    if count < 100:
        monkeypatch.setattr("tvmpass.frontends.relay.loops.DOUBLINGS", 2)
    text = """def @main(%n: int32, %x: float32) {
      let %while = fn (%i: int32, %acc: float32) -> (int32, float32) {
        if (%i < %n) {
          if (%i == 3) { %while(%i + 1, %acc * 2f) } else { let %j = %i + 1; %while(%j, %acc + %x) }
        } else { (%i, %acc) }
      };
      %while(0, %x)
    }"""
    wanted = 1.0
    for step in range(count):
        wanted = wanted * 2 if step == 3 else wanted + 1
    check(text, [np.array(count, np.int32), np.float32(1)], (np.int32(count), np.float32(wanted)))


@pytest.mark.parametrize("count", [0, 5])
def test_recursion_that_is_not_last_stays(count):
    """A call whose result is used, or that is shared with such a use, is no loop's step."""
    text = """def @main(%n: int32, %x: float32) {
      let %f = fn (%i: int32) -> float32 {
        if (%i < %n) { %1 = %f(%i + 1); if (%i == 2) { %1 } else { %1 + %x } } else { 0f }
      };
      %f(0)
    }"""
    check(text, [np.array(count, np.int32), np.float32(1)], np.float32(max(count - 1, 0)))


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_loop_ends_with_a_branch_that_is_shared(count, sign):
    text = """def @main(%n: int32, %x: float32) {
      %0 = if (%x < 0f) { abs(%x) } else { %x + 1f };
      let %f = fn (%i: int32, %y: float32) -> float32 { if (%i < %n) { %f(%i + 1, %y + %x) } else { %0 } };
      %f(0, %0) + %0
    }"""
    x = np.float32(2 * sign)
    check(text, [np.array(count, np.int32), x], 2 * (np.abs(x) if sign < 0 else x + 1))


def test_a_loop_in_a_loop():
    text = """def @main(%n: int32, %x: float32) {
      let %outer = fn (%i: int32, %acc: float32) -> float32 {
        let %inner = fn (%j: int32, %b: float32) -> float32 {
          if (%j < %i) { %inner(%j + 1, %b + %x) } else { %b }
        };
        if (%i < %n) { %outer(%i + 1, %inner(0, %acc)) } else { %acc }
      };
      %outer(0, 0f)
    }"""
    check(text, [np.array(4, np.int32), np.float32(1.5)], np.float32(9))


def test_a_loop_that_grows_its_tensor():
    text = """def @main(%n: int32, %x: Tensor[(?, 3), float32]) {
      let %f = fn (%i: int32, %y: Tensor[(?, 3), float32]) -> Tensor[(?, 3), float32] {
        if (%i < %n) { %f(%i + 1, concatenate((%y, %x))) } else { %y }
      };
      %f(0, %x) + 1f
    }"""
    check(text, [np.array(2, np.int32), X], np.concatenate([X, X, X]) + 1)


def test_a_loop_with_a_tuple_as_its_state():
    text = f"""def @main(%n: int32, %x: {FLOATS}) {{
      let %f = fn (%s: (int32, ({FLOATS}, float32))) -> (int32, ({FLOATS}, float32)) {{
        %0 = %s.0; %1 = %s.1;
        if (%0 < %n) {{ %f((%0 + 1, (%1.0 * 2f, %1.1 + 1f))) }} else {{ %s }}
      }};
      %2 = %f((0, (%x, 0f)));
      %3 = %2.1;
      (%3.0, %3.1)
    }}"""
    check(text, [np.array(3, np.int32), X], (X * 8, np.float32(3)))


RNG = np.random.default_rng(7)
IMAGE = RNG.standard_normal((1, 8, 12, 12)).astype(np.float32)
WEIGHT = (RNG.standard_normal((8, 8, 3, 3)) * 0.1).astype(np.float32)
IMAGES, WEIGHTS = "Tensor[(1, 8, 12, 12), float32]", "Tensor[(8, 8, 3, 3), float32]"
CONV = "nn.conv2d({}, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3])"
PROGRAMS = {
    "branch": (
        f"""def @block(%y: {IMAGES}, %w: {WEIGHTS}) -> {IMAGES} {{ %9 = {CONV.format("%y")}; nn.relu(%9) }}
def @main(%c: bool, %x: {IMAGES}, %w: {WEIGHTS}) {{
  %0 = @block(%x, %w);
  if (%c) {{ %1 = @block(%0, %w); add(%1, %x) }} else {{ %2 = {CONV.format("%0")}; tanh(%2) }}
}}""",
        [np.array(False), IMAGE, WEIGHT],
    ),
    "loop": (
        f"""def @main(%n: int32, %x: {IMAGES}, %w: {WEIGHTS}) {{
  let %f = fn (%i: int32, %y: {IMAGES}) -> {IMAGES} {{
    if (%i < %n) {{ %0 = {CONV.format("%y")}; %f(%i + 1, add(nn.relu(%0), %x)) }} else {{ %y }}
  }};
  %f(0, %x)
}}""",
        [np.array(2, np.int32), IMAGE, WEIGHT],
    ),
    "recurrent": (
        """def @main(%x: Tensor[(7, 2, 5), float32],
          %h: Tensor[(2, 5), float32], %w: Tensor[(5, 5), float32]) {
  let %step = fn (%i: int32, %s: Tensor[(2, 5), float32]) -> Tensor[(2, 5), float32] {
    if (%i < 7) { %1 = nn.dense(%s, %w, units=None); %step(%i + 1, tanh(take(%x, %i, axis=0) + %1)) }
    else { %s }
  };
  %step(0, %h)
}""",
        [RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 2, 5), (2, 5), (5, 5))],
    ),
}
SETTINGS = [
    (1, {}),
    (2, {}),
    (3, {}),
    (3, {"tvmpass.fusion": "always"}),
    (3, {"tvmpass.layout": "NHWC", "tvmpass.fusion": "always"}),
    (3, {"tvmpass.verify": "numeric"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_to_build_gives_the_same(name):
    text, arrays = PROGRAMS[name]
    mod = converted(text)
    (wanted,) = run_module(mod, *arrays, level=0)
    for level, config in SETTINGS:
        (got,) = run_module(mod, *arrays, level=level, config=config)
        np.testing.assert_allclose(
            got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max(), err_msg=f"{level} {config}"
        )
