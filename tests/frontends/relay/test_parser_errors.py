"""Text that is no Relay program: one clear error with its place."""

import sys

import pytest

from tvmpass.frontends.relay.errors import RelayError, bounded
from tvmpass.frontends.relay.parse_stream import MAX_DEPTH
from tvmpass.frontends.relay.parser import parse

HEADER = '#[version = "0.0.5"]\n'


def refusal(text: str) -> RelayError:
    with pytest.raises(RelayError) as caught:
        parse(HEADER + text, "net.relay")
    return caught.value


def in_main(text: str) -> str:
    return f"def @main(%x: float32, %y: float32) {{ {text} }}"


def test_error_shows_file_line_column_line_and_caret():
    error = refusal("def @main(%x: float32) {\n  %0 = add(%x, %zz);\n  %0\n}")
    assert str(error) == (
        "net.relay:3:16: there is no variable %zz here\n      %0 = add(%x, %zz);\n                   ^"
    )
    assert (error.line, error.column) == (3, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # what is missing
        (in_main("%0 = exp(%x) %0"), "expected ';' after the value of %0, found %0"),
        (in_main("let %a = %x %a"), "expected ';' after the value of %a, found %a"),
        (in_main("exp(%x %y)"), "expected ',' or ')', found %y"),
        (in_main("(%x, %y"), "expected ')' or ',', found '}'"),
        (in_main("(%x %y)"), "expected ')' or ',', found %y"),
        (in_main("%0 = exp(%x);"), "expected an expression, found '}'"),
        (in_main(""), "expected an expression, found '}'"),
        (in_main("%x;"), "expected an expression, found '}'"),
        (in_main("%x + "), "expected an expression, found '}'"),
        (in_main("if (%x) { %x }"), "expected 'else', found '}'"),
        (in_main("if (%x) { %x } eles { %y }"), "found eles; did you mean 'else'?"),
        (in_main("if %x { %x } else { %y }"), "expected '(', found %x"),
        (in_main("if (%x) %x else { %y }"), "expected '{', found %x"),
        (
            "def @main(%x: float32) { %x",
            "expected '}', the end of the function, or ';', found the end of the program",
        ),
        ("def @main(%x: float32) %x }", "expected '{', found %x"),
        ("def main(%x: float32) { %x }", "expected the name of a function, @name, found main"),
        ("def @main(x: float32) { %x }", "expected a parameter, %name, or an attribute, found x"),
        ("def @main(%x: float32 %y: float32) { %x }", "expected ',' or ')', found %y"),
        ("def @main(%x: ) { %x }", "expected a type, found ')'"),
        ("dfe @main() { 1 }", "expected a definition (def, type), found dfe; did you mean 'def'?"),
        ("} def @main() { 1 }", "expected a definition (def, type), found '}'"),
        ('"text"', 'found the string "text"'),
        # names
        (in_main("%z"), "there is no variable %z here"),
        (in_main("let %alpha = %x; %alhpa"), "there is no variable %alhpa here; did you mean '%alpha'?"),
        (in_main("%3"), "%3 is not defined before this use"),
        (in_main("%0 = %0; %0"), "%0 is not defined before this use"),
        (in_main("%0 = exp(%x);\n %0 = exp(%y); %0"), "%0 is defined twice: first on line 2"),
        (in_main("@other(%x)"), "there is no function @other in this program"),
        (in_main("@mian(%x, %y)"), "there is no function @mian in this program; did you mean 'main'?"),
        (in_main("let %a = exp(%a); %a"), "%a is used in its own value; only a function can refer to itself"),
        (in_main("let %x = exp(%y); %x"), "%x is a parameter of this function already; rename one"),
        ("def @main(%x: float32, %x: float32) { %x }", "there are two parameters %x"),
        (in_main("%x") + "\n" + in_main("%y"), "@main is defined twice: first on line 2"),
        (in_main("if (%x) { let %a = 1; %a } else { %a }"), "there is no variable %a here"),
        (in_main("(fn (%a) { %a }, %a)"), "there is no variable %a here"),
        (in_main("let @x = 1; ()"), "expected a variable's name, %name, found @x"),
        (in_main("let x = 1; ()"), "expected a variable's name, %name, found x"),
        (in_main("add(x, %y)"), "expected an expression, found x; did you mean"),
        ("def @main(%t: (float32, float32), %t.1: float32) { %t.1 }", "or an item of %t; rename one"),
        # numbers
        (in_main("32768i16"), "the number 32768i16 does not fit int16"),
        (in_main("2147483648i32"), "the number 2147483648i32 does not fit int32"),
        (in_main("9223372036854775808"), "does not fit int64"),
        (in_main("9" * 5000), "does not fit int64"),
        (in_main("3.40283e+38f32"), "does not fit float32"),
        (in_main("65505f16"), "does not fit float16"),
        (in_main("1e999f64"), "does not fit float64"),
        (in_main("uint8(256)"), "does not fit uint8"),
        (in_main("int64(1.5)"), "does not fit int64"),
        (in_main("3i8"), "its width is one of 16, 32, 64"),
        (in_main("3f8"), "its width is one of 16, 32, 64"),
        (in_main("1.5i32"), "1.5i32 is not an integer"),
        (in_main("1.5"), "the number 1.5 does not say its dtype: 1.5f is float32"),
        (in_main("3x"), "3x is not a number"),
        (in_main("1e999"), "does not say its dtype"),
        (in_main("%x.y"), "expected the index of an item of a tuple, found y"),
        (in_main("%x.1f"), "expected the index of an item of a tuple, found 1f"),
        # attributes
        (in_main("exp(%x, axis=)"), "expected the value of an attribute, found ')'"),
        (in_main("exp(%x, axis=%y)"), "expected the value of an attribute, found %y"),
        (in_main("exp(%x, flag=Ture)"), "found Ture; did you mean 'True'?"),
        (in_main("exp(%x, axis=1, axis=2)"), "attribute axis is given twice"),
        (in_main("exp(%x, axis=[1 2])"), "expected ',' or ']', found 2"),
        (in_main("exp(%x, axis=-)"), "expected a number, found ')'"),
        (in_main("exp(%x, axis=())"), "expected the value of an attribute, found ()"),
        # types
        ("def @main(%x: flaot32) { %x }", "there is no type flaot32; did you mean 'float32'?"),
        (
            "def @main(%x: Tensor[(2), flaot32]) { %x }",
            "expected a dtype, found flaot32; did you mean 'float32'?",
        ),
        ("def @main(%x: tensor[(2), float32]) { %x }", "there is no type tensor; did you mean 'Tensor'?"),
        ("def @main(%x: Tensor[(n), float32]) { %x }", "expected a dim: a number or ?, found n"),
        ("def @main(%x: Tensor[(-1), float32]) { %x }", "expected a dim: a number or ?, found '-'"),
        ("def @main(%x: Tensor[(1.5f), float32]) { %x }", "a dim is an integer"),
        ("def @main(%x: Tensor[(2) float32]) { %x }", "expected ',', found float32"),
        ("def @main(%x: fn (float32)) { %x }", "expected '->', found ')'"),
        # metadata
        (in_main("meta[relay.Constant][0]"), "meta[relay.Constant][0] has no metadata section"),
        (in_main("meta[relay.Constant][x]"), "is no reference: meta[TYPE][NUMBER] is"),
        (
            in_main("meta[A][0]") + '\n#[metadata]\n{"root": 0, "nodes": [{"type_key": ""}]}',
            "holds none of this type",
        ),
        (in_main("meta[A][0]") + "\n#[metadata]\nnot json", "metadata section: not JSON"),
        # other languages and open programs
        ("@main = primfn(x: handle) -> () { }", "this is TIR text (primfn), not a Relay program"),
        ("@T.prim_func\ndef main(): pass", "this is TVMScript, not a Relay program"),
        ("# from tvm.script import tir as T", "this is TVMScript, not a Relay program"),
        ("free_var %x: float32;\nexp(%x)", "this is an expression, not a program"),
        ("%0 = exp(1f); %0", "this is an expression, not a program"),
        (in_main("free_var %z: float32; %z"), "free_var: this program is open"),
        # data types
        ("type A { B, B }", "the constructor B is defined twice"),
        ("type A { B }\ntype A { C }", "the data type A is defined twice"),
        (in_main("match (%x) { %a -> %a }"), "expected '=>', found '->'"),
        # characters
        (in_main("%x $ %y"), "unexpected character '$'"),
        (in_main("/* %x"), "this comment is not closed"),
        (in_main('f(a="x)'), "this string is not closed"),
    ],
)
def test_errors_say_what_is_wrong(text, message):
    error = refusal(text)
    assert message in str(error)
    first = str(error).splitlines()[0]
    assert first.startswith("net.relay:") and len(first) < 400


@pytest.mark.parametrize(
    ("begin", "inner", "end"),
    [
        ("(", "%x", ")"),
        ("(%x, ", "%x", ")"),
        ("exp(", "%x", ")"),
        ("-(", "%x", ")"),
        ("{", "%x", "}"),
        ("if (%x) {", "%x", "} else { %x }"),
        ("if (", "%x", ") { %x } else { %x }"),
        ("if (%x) { %x } else {", "%x", "}"),
        ("fn (%a) {", "%x", "}"),
        ("ref(", "%x", ")"),
        ("match (%x) { _ => ", "%x", "}"),
        ("let %a = (", "%x", "); %a"),
        ("fn (%a: ", "float32", ") { 1 }"),
    ],
)
def test_nesting_is_bounded_well_before_pythons_limit(begin, inner, end):
    if "fn (%a: " in begin:
        nest = lambda depth: begin + "(" * depth + inner + ",)" * depth + end
    else:
        nest = lambda depth: begin * depth + inner + end * depth
    assert parse(HEADER + in_main(nest(MAX_DEPTH - 5))).functions
    assert f"nested more than {MAX_DEPTH} deep" in str(refusal(in_main(nest(5_000))))


def test_nested_types_and_attributes_are_bounded():
    for text in (
        "def @main(%x: " + "fn () -> " * 5_000 + "_) { %x }",
        "def @main(%x: " + "A[" * 5_000 + "_) { %x }",
        in_main("exp(%x, a=" + "[" * 5_000 + "1)"),
        in_main("match (%x) { " + "(" * 5_000 + " => 1 }"),
    ):
        assert "deep" in str(refusal(text))


def test_a_parser_called_near_pythons_limit_still_says_so():
    def deep(left: int) -> None:
        if left:
            return deep(left - 1)
        parse(HEADER + in_main("(" * 90 + "%x" + ")" * 90), "net.relay")

    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    with pytest.raises(RelayError, match="nested too deep"):
        deep(sys.getrecursionlimit() - used - 200)


def test_long_names_give_short_messages():
    name = "a" * 100_000
    for text in (
        in_main(f"%{name}"),
        in_main(f"@{name}(%x)"),
        in_main(f"{name}"),
        in_main(f"f(%x, a={name})"),
    ):
        assert len(str(refusal(text))) < 700


def test_dotted_names_take_linear_time():
    dotted = "a" + ".b" * 50_000
    assert "longer than" in str(refusal(f"def @main(%{dotted}: float32) {{ 1 }}"))
    text = "def @main(%a.b: float32) { (" + ", ".join(["%" + dotted] * 3) + ") }"
    assert "expected an operator after %a.b" in str(refusal(text))


def test_messages_are_cut_in_words_not_in_what_they_list():
    listed = "; ".join(f"operator number.{i} in line {i}" for i in range(80))
    assert bounded(listed) == listed
    assert len(bounded("a" * 10_000 + " b " + "c, " * 10_000)) <= 4000
    assert bounded("a" * 200) == "a" * 100 + "..."
