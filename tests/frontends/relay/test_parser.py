"""Relay text becomes the right tree."""

import base64
import json
import struct

import numpy as np
import pytest

from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.parser import parse

HEADER = '#[version = "0.0.5"]\n'


def program(text: str) -> ast.Module:
    return parse(HEADER + text, "net.relay")


def body(text: str, params: str = "%x: float32, %y: float32") -> ast.Expression:
    return program(f"def @main({params}) {{ {text} }}").functions["main"].body


def shown(node: ast.Expression) -> str:
    """Return an expression as nested calls."""
    if isinstance(node, ast.Call):
        args = [*map(shown, node.args), *(f"{key}={value}" for key, value in node.attrs.items())]
        return f"{shown(node.function)}({', '.join(args)})"
    if isinstance(node, ast.Constant):
        return f"{node.value.dtype}:{node.value.item()}" if node.value.ndim == 0 else str(node.value.tolist())
    if isinstance(node, ast.Tuple):
        return f"({', '.join(map(shown, node.fields))},)"
    if isinstance(node, ast.TupleGetItem):
        return f"{shown(node.value)}.{node.index}"
    if isinstance(node, ast.If):
        return f"if({', '.join(map(shown, node.children()))})"
    if isinstance(node, ast.Let):
        values = "".join(f"{var.name}={shown(value)}; " for var, value in node.bindings)
        return f"[{values}{shown(node.body)}]"
    if isinstance(node, ast.Function):
        return f"fn({', '.join(param.name for param in node.params)}){{{shown(node.body)}}}"
    if isinstance(node, ast.Unsupported):
        return f"!{node.what}({', '.join(map(shown, node.operands))})"
    return node.name


# Numbers


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("3", "int32", 3),
        ("-05", "int32", -5),
        ("--10", "int32", 10),
        ("---10", "int32", -10),
        ("-42i", "int32", -42),
        ("7i16", "int16", 7),
        ("-32768i16", "int16", -32768),
        ("7i32", "int32", 7),
        ("7i64", "int64", 7),
        ("2147483647", "int32", 2**31 - 1),
        ("2147483648", "int64", 2**31),
        ("-2147483648", "int32", -(2**31)),
        ("9223372036854775807", "int64", 2**63 - 1),
        ("-9223372036854775808", "int64", -(2**63)),
        ("3f", "float32", 3.0),
        ("2.f", "float32", 2.0),
        ("3f16", "float16", 3.0),
        ("65504f16", "float16", 65504.0),
        ("3f32", "float32", 3.0),
        ("0.1f64", "float64", 0.1),
        ("0.1f", "float32", np.float32(0.1)),
        ("1e-05f", "float32", np.float32(1e-5)),
        ("-1e-1f", "float32", np.float32(-0.1)),
        ("1.0E+1f", "float32", 10.0),
        ("inff", "float32", np.inf),
        ("-inff", "float32", -np.inf),
        ("inff16", "float16", np.inf),
        ("inff64", "float64", np.inf),
        ("True", "bool", True),
        ("False", "bool", False),
        ("int64(5)", "int64", 5),
        ("uint8(255)", "uint8", 255),
        ("float64(-0.5)", "float64", -0.5),
    ],
)
def test_numbers_have_their_dtype(text, dtype, value):
    node = body(text)
    assert isinstance(node, ast.Constant)
    assert node.value.dtype == dtype
    assert node.value.shape == ()
    assert node.value.item() == value


@pytest.mark.parametrize(
    ("text", "dtype"), [("nanf", "float32"), ("-nanf", "float32"), ("nanf16", "float16")]
)
def test_nan(text, dtype):
    node = body(text)
    assert isinstance(node, ast.Constant)
    assert node.value.dtype == dtype and np.isnan(node.value)


def test_minus_zero_keeps_its_sign():
    node = body("-0f")
    assert isinstance(node, ast.Constant)
    assert np.signbit(node.value)


# Expressions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("%x * %y + %x", "add(multiply(x, y), x)"),
        ("%x + %y * %x", "add(x, multiply(y, x))"),
        ("%x - %y - %x", "subtract(subtract(x, y), x)"),
        ("%x / %y / %x", "divide(divide(x, y), x)"),
        ("%x * (%x + %y)", "multiply(x, add(x, y))"),
        ("%x == %y < %x + %y * %x", "equal(x, less(y, add(x, multiply(y, x))))"),
        ("%x * %x + %y < %x == %y", "equal(less(add(multiply(x, x), y), x), y)"),
        ("%x != %y", "not_equal(x, y)"),
        ("%x <= %y", "less_equal(x, y)"),
        ("%x >= %y", "greater_equal(x, y)"),
        ("%x > %y", "greater(x, y)"),
        ("%x + -1f", "add(x, float32:-1.0)"),
        ("%x-1f", "subtract(x, float32:1.0)"),
        ("-%x * %y", "multiply(negative(x), y)"),
        ("--%x", "x"),
        ("()", "(,)"),
        ("(%x)", "x"),
        ("(%x,)", "(x,)"),
        ("(%x, %y)", "(x, y,)"),
        ("(%x, %y,)", "(x, y,)"),
        ("(%x, %y).1", "(x, y,).1"),
        ("((%x, %y), %x).0.1", "((x, y,), x,).0.1"),
        ("nn.relu(%x)", "nn.relu(x)"),
        ('zeros(shape=[2, 3], dtype="float32")', "zeros(shape=[2, 3], dtype=float32)"),
        ("add(%x, %y,)", "add(x, y)"),
        ("if (%x < %y) { %x } else { %y }", "if(less(x, y), x, y)"),
        ("(fn (%a) { %a })(%x)", "fn(a){a}(x)"),
        ("fn (%a) { fn (%b) { %a + %b } }", "fn(a){fn(b){add(a, b)}}"),
        ("%x(%y)(%x)", "x(y)(x)"),
        ("{ %x }", "x"),
        ("split(%x, indices_or_sections=3).0", "split(x, indices_or_sections=3).0"),
    ],
)
def test_expressions(text, tree):
    assert shown(body(text)) == tree


def test_a_long_infix_chain_is_no_recursion():
    node = body(" + ".join(["%x"] * 20_000))
    depth = 0
    while isinstance(node, ast.Call):
        node, depth = node.args[0], depth + 1
    assert depth == 19_999


def test_a_long_chain_of_calls_and_of_lets_is_no_recursion():
    assert isinstance(body("%x" + "(%y)" * 20_000), ast.Call)
    chain = body("".join(f"let %v{i} = %x;" for i in range(20_000)) + "%x")
    assert isinstance(chain, ast.Let)
    assert len(chain.bindings) == 20_000


# Blocks and names


def test_numbered_values_are_shared():
    node = body("%0 = exp(%x); %1 = (%0, %0); %1")
    assert isinstance(node, ast.Tuple)
    assert node.fields[0] is node.fields[1]


def test_numbers_are_known_across_scopes():
    node = body("%1 = if (%x < %y) { %0 = exp(%x); %0 } else { %y }; (%1, %0)")
    assert isinstance(node, ast.Tuple)
    branch = node.fields[0]
    assert isinstance(branch, ast.If)
    assert branch.then is node.fields[1]


def test_lets_and_statements():
    assert shown(body("let %a = %x + %y; %0 = exp(%a); let %b: float32 = %0; %b")) == (
        "[a=add(x, y); b=exp(a); b]"
    )
    assert shown(body("exp(%x); %y")) == "[_=exp(x); y]"
    assert shown(body("let %a = %x; exp(%a); let %b = %a; %b")) == "[a=x; _=exp(a); b=a; b]"
    assert shown(body("%0 = (\n let %a = %x;\n %a\n ); (%0, %0)")) == "([a=x; a], [a=x; a],)"


def test_inner_variables_hide_outer_ones_until_their_scope_ends():
    node = body("let %a = %x; %0 = (let %a = %y; exp(%a)); (%0, %a)")
    assert shown(node) == "[a=x; ([a=y; exp(a)], a,)]"
    assert isinstance(node, ast.Let)
    outer = node.bindings[0][0]
    assert isinstance(node.body, ast.Tuple)
    inner = node.body.fields[0]
    assert node.body.fields[1] is outer
    assert isinstance(inner, ast.Let) and isinstance(inner.body, ast.Call)
    assert inner.body.args[0] is inner.bindings[0][0] is not outer


def test_the_same_name_in_two_branches():
    assert shown(body("if (%x < %y) { let %a = %x; %a } else { let %a = %y; %a }")) == (
        "if(less(x, y), [a=x; a], [a=y; a])"
    )


def test_a_function_may_call_itself():
    node = body("let %f = fn (%n: float32) -> float32 { %f(%n - 1f) }; %f(%x)")
    assert isinstance(node, ast.Let)
    var, function = node.bindings[0]
    assert isinstance(function, ast.Function) and isinstance(function.body, ast.Call)
    assert function.body.function is var


def test_a_variable_of_a_let_hides_one_of_the_same_name_from_then_on():
    node = body("let %a = %x; let %a = %y; %a")
    assert isinstance(node, ast.Let)
    assert node.body is node.bindings[1][0]


@pytest.mark.parametrize(
    "name", ["conv1/weight", "a.b", "features.0.weight", "input.1", "x:0", "resnet-50/bn:2", "onnx::Conv_497"]
)
def test_names_of_old_front_ends(name):
    function = program(f"def @main(%{name}: Tensor[(2), float32]) {{ nn.relu(%{name}) }}").functions["main"]
    assert function.params[0].name == name
    assert function.params[0].type == ast.TensorType((2,), "float32")
    assert shown(function.body) == f"nn.relu({name})"


def test_marks_after_a_name_mean_themselves_unless_such_a_name_is_bound():
    assert shown(body("%x/%y")) == "divide(x, y)"
    assert shown(body("%t.1", "%t: (float32, float32)")) == "t.1"
    assert shown(body("(%t.1, %t.0, %t.1)", "%t.1: float32, %t: Tensor[(2), float32]")) == "(t.1, t.0, t.1,)"
    assert shown(body("%a-2f", "%a-b: float32, %a: float32")) == "subtract(a, float32:2.0)"


def test_a_type_may_follow_its_colon_without_a_space():
    function = program("def @main(%x:float32) { let %a:float32=%x; %a }").functions["main"]
    assert function.params[0].name == "x"
    assert function.params[0].type == ast.TensorType((), "float32")


# Functions, attributes, types


def test_functions_of_a_program_in_their_order():
    module = program(
        "def @main(%x: float32) -> float32 { @twice(%x) }\n"
        'def @twice(%a: float32, Inline=1, relay.reshape_only=0, Composite="x") { %a + %a }'
    )
    assert list(module.functions) == ["main", "twice"]
    assert module.functions["main"].result == ast.TensorType((), "float32")
    assert module.functions["twice"].attrs == {"Inline": 1, "relay.reshape_only": 0, "Composite": "x"}
    assert module.where == "net.relay"


def test_the_text_of_one_function_is_a_program():
    module = program("fn (%x: float32) -> float32 { %x }")
    assert [param.name for param in module.functions["main"].params] == ["x"]


def test_a_parameter_may_say_its_device():
    device = "virtual_device=meta[VirtualDevice][0]"
    text = f"def @main(%x {{{device}}}: float32, {device}) {{ %x }}"
    function = program(text).functions["main"]
    assert function.params[0].type == ast.TensorType((), "float32")
    assert function.attrs == {}


def test_type_parameters():
    function = program("def @id[A, B](%x: A) -> B { %x }").functions["id"]
    assert function.type_params == ["A", "B"]
    assert function.params[0].type == ast.NamedType("A")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("4i64", 4),
        ("2e-05f", 2e-5),
        ("0.1", 0.1),
        ("1e+300f", 1e300),
        ("-inff", -np.inf),
        ('"NCHW"', "NCHW"),
        ('""', ""),
        ("True", True),
        ("False", False),
        ("None", None),
        ("nullptr", None),
        ("[]", []),
        ("[1, 4i64, -1]", [1, 4, -1]),
        ("[[0, 0], [1, 1],]", [[0, 0], [1, 1]]),
        ("(3)", 3),
        ("(3, 4)", [3, 4]),
        ("(3,)", [3]),
        ('["a", None, 1f]', ["a", None, 1.0]),
    ],
)
def test_attribute_values(text, value):
    node = body(f"some.operator(%x, key={text}, last=1)")
    assert isinstance(node, ast.Call)
    assert node.attrs == {"key": value, "last": 1}
    assert type(node.attrs["key"]) is type(value)


def test_attributes_of_the_call_of_a_function():
    node = body('%f(%x, name="y", attrs_type_key="attrs.TestAttrs")', "%f, %x: float32")
    assert isinstance(node, ast.Call)
    assert node.attrs == {"name": "y"}


F32 = ast.TensorType((), "float32")


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("_", None),
        ("float32", F32),
        ("bool", ast.TensorType((), "bool")),
        ("uint1", ast.TensorType((), "bool")),
        ("int", ast.TensorType((), "int32")),
        ("Tensor[(2), float]", ast.TensorType((2,), "float32")),
        ("bfloat16", ast.TensorType((), "bfloat16")),
        ("int8x4", ast.TensorType((), "int8x4")),
        ("Tensor[(), float32]", F32),
        ("Tensor[(2), int8]", ast.TensorType((2,), "int8")),
        ("Tensor[(2,), int8]", ast.TensorType((2,), "int8")),
        ("Tensor[(?, 3i64), int64]", ast.TensorType((None, 3), "int64")),
        ("Tensor[(0, 3), int64]", ast.TensorType((0, 3), "int64")),
        ("()", ast.TupleType(())),
        ("(float32,)", ast.TupleType((F32,))),
        ("(float32)", ast.TupleType((F32,))),
        ("(float32, (_, bool))", ast.TupleType((F32, ast.TupleType((None, ast.TensorType((), "bool")))))),
        ("fn () -> float32", ast.FunctionType((), F32)),
        ("fn (float32, _) -> fn () -> _", ast.FunctionType((F32, None), ast.FunctionType((), None))),
        ("fn [A](A) -> A", ast.FunctionType((ast.NamedType("A"),), ast.NamedType("A"))),
        ("List[float32]", ast.NamedType("List", (F32,))),
        ("ref(float32)", ast.NamedType("ref", (F32,))),
    ],
)
def test_types(text, type_):
    assert program(f"def @main(%x: {text}) {{ %x }}").functions["main"].params[0].type == type_


# Metadata


def metadata(**kinds: list) -> str:
    """Return a metadata section: ints become BoxInt, arrays constants, pairs attributes."""
    nodes: list[dict] = [{"type_key": ""}]
    blobs: list[str] = []

    def add(node: dict) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def item(value) -> int:
        if isinstance(value, int):
            return add({"type_key": "runtime.BoxInt", "repr_str": str(value)})
        if isinstance(value, np.ndarray):
            head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, value.ndim, 2, 32, 1)
            shape = struct.pack(f"<{value.ndim}q", *value.shape)
            blob = head + shape + struct.pack("<q", value.nbytes) + value.tobytes()
            blobs.append(base64.b64encode(blob).decode())
            return add({"type_key": "relay.Constant", "attrs": {"data": str(len(blobs) - 1), "span": "0"}})
        key, fields = value
        return add({"type_key": key, "attrs": fields})

    arrays = {
        key: add({"type_key": "Array", "data": [item(value) for value in values]})
        for key, values in kinds.items()
    }
    root = add({"type_key": "Map", "keys": list(arrays), "data": list(arrays.values())})
    return "\n#[metadata]\n" + json.dumps({"root": root, "nodes": nodes, "b64ndarrays": blobs})


def test_constants_of_the_metadata_are_shared():
    value = np.arange(6, dtype="float32").reshape(2, 3)
    module = program(
        "def @main(%x: Tensor[(2, 3), float32]) {\n"
        "  (add(%x, meta[relay.Constant][0]), meta[relay.Constant][1], meta[relay.Constant][0])\n}"
        + metadata(**{"relay.Constant": [value, -value]})
    )
    result = module.functions["main"].body
    assert isinstance(result, ast.Tuple)
    first, second, third = result.fields
    assert isinstance(first, ast.Call) and isinstance(second, ast.Constant)
    assert first.args[1] is third
    assert isinstance(third, ast.Constant)
    np.testing.assert_array_equal(third.value, value)
    np.testing.assert_array_equal(second.value, -value)
    assert third.place.line == 3


def test_boxed_integers_and_attribute_nodes():
    module = program(
        "def @main(%x: Tensor[(6), float32]) {\n"
        "  (split(%x, indices_or_sections=meta[runtime.BoxInt][0]),\n"
        "   cumsum(%x, meta[relay.attrs.ScanopAttrs][0]))\n}"
        + metadata(
            **{
                "runtime.BoxInt": [3],
                "relay.attrs.ScanopAttrs": [("relay.attrs.ScanopAttrs", {"dtype": "int64"})],
            }
        )
    )
    assert shown(module.functions["main"].body) == (
        "(split(x, indices_or_sections=3), cumsum(x, dtype=int64),)"
    )


def test_a_dim_that_is_a_variable_is_not_known():
    module = program(
        "def @main(%x: Tensor[(meta[tir.Var][0], 3), float32]) { %x }"
        + metadata(**{"tir.Var": [("tir.Var", {"name": "n"})]})
    )
    assert module.functions["main"].params[0].type == ast.TensorType((None, 3), "float32")


# Old text


def test_format_0_0_4():
    module = parse(
        "v0.0.4\ndef @main(%x: Tensor[(2,), float32], %y: (float32)) -> Tensor[2, float32] {\n"
        "  %0 = nn.softmax(%x, axis=1)\n  /* ty=Tensor[(2,), float32] */;\n  exp(%0);; -%0 }",
        "old.relay",
    )
    main = module.functions["main"]
    assert main.params[1].type == F32
    assert main.result == ast.TensorType((2,), "float32")
    assert shown(main.body) == "[_=exp(nn.softmax(x, axis=1)); negative(nn.softmax(x, axis=1))]"


def test_batch_matmul_of_format_0_0_4_reads_its_second_operand_transposed():
    module = parse("v0.0.4 fn (%x: float32) { nn.batch_matmul(%x, %x) }")
    call = module.functions["main"].body
    assert isinstance(call, ast.Call)
    assert call.attrs["transpose_b"] is True
    assert shown(body("nn.batch_matmul(%x, %y)")) == "nn.batch_matmul(x, y)"


# What has no Relax form is kept


def test_data_types_are_read_into_unsupported_nodes():
    module = program(
        "type List[A] {\n  Cons(A, List[A]),\n  Nil,\n}\nextern type Other[A]\n"
        "def @main(%x: float32) {\n  %0 = Cons(%x, Nil);\n"
        "  match? (%0) {\n    Cons(%hd, _) => { exp(%hd) },\n    (%a, Nil) => %a,\n  }\n}"
    )
    tree = shown(module.functions["main"].body)
    assert tree.startswith("!match over an algebraic data type (ADT)(")
    assert "!Cons of the algebraic data type (ADT) List(x, !Nil of" in tree
    assert "; exp(hd)], [a=" in tree and tree.endswith("; a])")
    assert module.functions["main"].body.place.line == 9


def test_references_are_read_into_unsupported_nodes():
    node = body("%0 = ref(%x); ref_write(%0, %y); ref_read(%0)")
    assert isinstance(node, ast.Let)
    assert shown(node.body) == "!ref_read(...), a mutable reference(!ref(...), a mutable reference(x))"


def test_external_functions_are_kept_by_name():
    module = program("def @f = meta[ExternalFunc][0]\ndef @main(%x: float32) { @f(%x) }")
    assert shown(module.functions["f"].body) == "!the external function @f()"


# Places


def test_places_and_names_of_values():
    module = program("def @main(%x: float32) {\n  %0 = exp(%x);\n  let %b = log(%0);\n  sqrt(%b) + 1f\n}")
    node = module.functions["main"].body
    assert isinstance(node, ast.Let)
    log = node.bindings[0][1]
    assert isinstance(log, ast.Call)
    assert log.place == ast.Place(4, 12, "%b")
    assert log.args[0].place == ast.Place(3, 8, "%0")
    assert node.body.place == ast.Place(5, 12)
    assert module.functions["main"].place == ast.Place(2, 5, "@main")
    assert module.functions["main"].params[0].place == ast.Place(2, 11, "%x")


def test_a_value_keeps_its_first_name():
    node = body("%0 = exp(%x); let %a = %0; %a")
    assert isinstance(node, ast.Let)
    assert node.bindings[0][1].place.name == "%0"
