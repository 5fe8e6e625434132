"""The printer writes what Relay wrote: numbers, names, lets, branches, attributes, metadata."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tvmpass.frontends.relay.ast import (
    Call,
    Constant,
    Function,
    If,
    Let,
    Module,
    Operator,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
)
from tvmpass.testing.relay.printer import HEADER, print_module
from tvmpass.testing.relay.spelling import scalar, survives

T = TensorType((2, 3), "float32")


def call(name, *args, **attrs):
    return Call(Operator(name), list(args), attrs)


def printed(params, body, **types):
    text = print_module(Module({"main": Function(params, body)}), **types)
    assert text.startswith(HEADER)
    return text.removeprefix(HEADER)


def test_every_operand_gets_a_number_where_its_user_is_reached():
    x = Var("x", T)
    first, second = call("abs", x), call("exp", x)
    last = call("add", call("sqrt", first), call("log", second))
    assert printed([x], last) == (
        "def @main(%x: Tensor[(2, 3), float32]) {\n"
        "  %0 = abs(%x);\n"
        "  %1 = exp(%x);\n"
        "  %2 = sqrt(%0);\n"
        "  %3 = log(%1);\n"
        "  add(%2, %3)\n"
        "}\n"
    )


def test_a_shared_value_is_written_once_and_not_in_place():
    x = Var("x", T)
    shared = call("nn.relu", x)
    variable = Var("a", T)
    body = Let([(variable, shared)], Tuple([shared, variable]))
    assert printed([x], body).splitlines()[1:-1] == [
        "  %0 = nn.relu(%x);",
        "  let %a: Tensor[(2, 3), float32] = %0;",
        "  (%0, %a)",
    ]


def test_a_shared_let_stands_in_parentheses():
    x, a = Var("x"), Var("a")
    shared = Let([(a, call("abs", x))], call("add", a, a))
    assert printed([x], call("multiply", shared, shared)).splitlines()[1:-1] == [
        "  %0 = (",
        "    let %a = abs(%x);",
        "    add(%a, %a)",
        "  );",
        "  multiply(%0, %0)",
    ]


def test_branches_and_functions_are_blocks():
    x, y, c = Var("x", T), Var("y", T), Var("c", TensorType((), "bool"))
    function = Function([y], call("negative", call("abs", y)), T, {"Primitive": 1, "Composite": "a.b"})
    body = If(c, Call(function, [x]), x)
    assert printed([x, c], body).splitlines()[1:-1] == [
        "  if (%c) {",
        "    %1 = fn (%y: Tensor[(2, 3), float32], Primitive=1, "
        'Composite="a.b") -> Tensor[(2, 3), float32] {',
        "      %0 = abs(%y);",
        "      negative(%0)",
        "    };",
        "    %1(%x)",
        "  } else {",
        "    %x",
        "  }",
    ]


def test_equal_names_are_told_apart_and_odd_ones_begin_with_a_letter():
    params = [Var("x"), Var("x"), Var("0"), Var("x1")]
    assert (
        printed(params, Tuple(list(params))) == "def @main(%x, %x1, %v0, %x11) {\n  (%x, %x1, %v0, %x11)\n}\n"
    )


def test_functions_are_sorted_and_names_run_through_all():
    module = Module({name: Function([x], x) for name, x in (("main", Var("x")), ("a", Var("x")))})
    assert print_module(module) == HEADER + "def @a(%x) {\n  %x\n}\n\ndef @main(%x1) {\n  %x1\n}\n"


@pytest.mark.parametrize(
    ("operator", "attrs", "text"),
    [
        ("nn.dense", {"units": None}, "units=None"),
        ("nn.dense", {"units": 4, "out_dtype": "int32"}, 'units=4, out_dtype="int32"'),
        ("transpose", {}, "axes=None"),
        ("nn.softmax", {"axis": -1}, ""),
        ("nn.softmax", {"axis": 1}, "axis=1"),
        ("sum", {"keepdims": True, "axis": [0, -1]}, "axis=[0, -1], keepdims=True"),
        ("clip", {"a_min": 0.0, "a_max": 6.0}, "a_min=0f, a_max=6f"),
        ("nn.batch_norm", {"epsilon": 2e-05}, "epsilon=2e-05f"),
        ("nn.pad", {"pad_width": [[0, 0], [1, 2]]}, "pad_width=[[0, 0], [1, 2]]"),
        ("image.resize2d", {"size": [2, 2], "roi": [0.0, 0.5]}, "size=[2, 2], roi=[0f, 0.5f]"),
    ],
)
def test_attributes_are_left_out_where_they_are_defaults(operator, attrs, text):
    x = Var("x")
    inside = f"%x, {text}" if text else "%x"
    assert printed([x], call(operator, x, **attrs)).splitlines()[1] == f"  {operator}({inside})"


def test_an_unknown_attribute_is_refused():
    with pytest.raises(ValueError, match="nn.softmax has no attribute axes"):
        printed([Var("x")], call("nn.softmax", Var("x"), axes=1))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.70710677, "float32", "0.707107f"),
        (1e-05, "float32", "1e-05f"),
        (-np.inf, "float32", "-inff"),
        (1e300, "float64", "1e+300f64"),
        (1.5, "float16", "1.5f16"),
        (3, "int32", "3"),
        (3, "int64", "3i64"),
        (-3, "int16", "-3i16"),
        (1, "bool", "True"),
        (3, "int8", None),
        (3, "uint8", None),
    ],
)
def test_scalars(value, dtype, text):
    assert scalar(np.asarray(value, dtype)) == text


def test_survives_six_digits():
    assert survives(0.1, "float32") and survives(0.707107, "float32")
    assert not survives(0.70710677, "float32")


def test_types_are_comments_at_the_first_occurrence():
    x = Var("x", T)
    first = call("abs", x)
    types = {x: T, first: T}
    lines = printed([x], Tuple([first, first, x]), types=types).splitlines()
    assert lines[0].startswith("def @main(%x: Tensor[(2, 3), float32] /* ty=Tensor[(2, 3), float32] */)")
    assert lines[1:3] == ["  %0 = abs(%x) /* ty=Tensor[(2, 3), float32] */;", "  (%0, %0, %x)"]


def test_metadata_holds_constants_boxed_numbers_and_attributes():
    x = Var("x", TensorType((2, 4), "int8"))
    constant = Constant(np.array([[1], [-2]], "int8"))
    sum_ = call("add", x, constant)
    parts = call("split", sum_, indices_or_sections=[1, 3], axis=1)
    body = call("trilu", TupleGetItem(parts, 1), Constant(np.asarray(0, "int32")), upper=False)
    text = printed([x], body, types={constant: TensorType((2, 1), "int8")})
    program, _, metadata = text.partition("\n#[metadata]\n")
    assert program.splitlines()[1:-1] == [
        "  %0 = add(%x, meta[relay.Constant][0] /* ty=Tensor[(2, 1), int8] */);",
        "  %1 = split(%0, indices_or_sections=[meta[runtime.BoxInt][0], meta[runtime.BoxInt][1]], axis=1);",
        "  %2 = %1.1;",
        "  trilu(%2, 0, meta[relay.attrs.TriluAttrs][0])",
    ]
    nodes = json.loads(metadata)["nodes"]
    assert nodes[1]["keys"] == ["relay.Constant", "runtime.BoxInt", "relay.attrs.TriluAttrs"]
    assert [node.get("repr_str") for node in nodes if node["type_key"] == "runtime.BoxInt"] == ["1", "3"]
    assert {"type_key": "relay.attrs.TriluAttrs", "attrs": {"upper": "0"}} in nodes


def test_a_chain_of_many_calls_needs_no_recursion():
    value = x = Var("x", T)
    for _ in range(20_000):
        value = call("negative", value)
    text = printed([x], value)
    assert text.count("negative") == 20_000
    assert "  %19998 = negative(%19997);\n  negative(%19998)\n" in text
