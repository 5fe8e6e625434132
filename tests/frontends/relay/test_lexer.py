"""Tokens of Relay text."""

import pytest

from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.lexer import BAD, END, tokenize

HEADER = '#[version = "0.0.5"]\n'


def lexed(body: str) -> list[tuple[str, str]]:
    tokens = tokenize(HEADER + body, "net.relay")
    return list(zip(tokens.kinds, tokens.texts))


def test_kinds_of_tokens():
    assert lexed('%0 = nn.relu(%x, a="b c", relay.k=-1.5e-05f) -> @f') == [
        ("graph", "%0"),
        ("mark", "="),
        ("word", "nn.relu"),
        ("mark", "("),
        ("local", "%x"),
        ("mark", ","),
        ("word", "a"),
        ("mark", "="),
        ("string", '"b c"'),
        ("mark", ","),
        ("word", "relay.k"),
        ("mark", "="),
        ("mark", "-"),
        ("number", "1.5e-05f"),
        ("mark", ")"),
        ("mark", "->"),
        ("global", "@f"),
        ("end", ""),
    ]


def test_meta_reference_is_one_token():
    assert lexed("meta[relay.attrs.X][12]")[0] == ("meta", "meta[relay.attrs.X][12]")


@pytest.mark.parametrize(
    "comment",
    [
        "/* plain */",
        "/* ty=Tensor[(2), float32] span=a:1:2 */",
        "/* one /* two /* three */ */ still */",
        "/*/ not closed by its own slash */",
        "/***/",
        "// to the end of the line /* not a comment\n",
        '/* %0 = "a\n */ // meta[\n /* */',
    ],
)
def test_comments_vanish(comment):
    assert lexed(f"%a {comment} %b") == [("local", "%a"), ("local", "%b"), ("end", "")]


def test_open_comment_is_bad_at_its_beginning():
    tokens = tokenize(HEADER + "%a /* one /* two */ rest", "net.relay")
    assert tokens.kinds[-1] == BAD
    assert "not closed" in tokens.texts[-1]
    assert tokens.position(tokens.offsets[-1]) == (2, 4)


def test_many_open_marks_take_linear_time():
    tokens = tokenize(HEADER + "/*" * 200_000, "net.relay")
    assert tokens.kinds == [BAD]
    tokens = tokenize(HEADER + "meta[" * 40_000, "net.relay")
    assert len(tokens.kinds) == 80_001


def test_comment_mark_inside_a_string_is_text():
    assert lexed('"/* a // b"')[0] == ("string", '"/* a // b"')


def test_metadata_runs_to_the_end_of_the_file():
    tokens = tokenize(HEADER + 'def #[ metadata ]\n{"a": "#[metadata]"}\n', "net.relay")
    assert tokens.kinds == ["word", END]
    assert tokens.metadata == '\n{"a": "#[metadata]"}\n'


def test_metadata_mark_in_a_comment_is_none():
    assert tokenize(HEADER + "/* #[metadata] */ %a").metadata is None


def test_old_format_and_its_metadata():
    tokens = tokenize("v0.0.4\nfn () { 1 }\nMETADATA:\n{}", "old.relay")
    assert tokens.version == "0.0.4"
    assert tokens.metadata == "\n{}"
    assert tokens.texts[0] == "fn"


def test_header_may_follow_comments_and_a_byte_order_mark():
    assert tokenize('\ufeff// made by hand\n/* x */ #[version="0.0.5"]').version == "0.0.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main() { 1 }", 'begins with the line #[version = "0.0.5"]'),
        ("", "it is missing"),
        ('#[version = "0.0.6"]', "version 0.0.6 is not known; 0.0.5 and 0.0.4 are"),
        ('#[version = ""]', "version (empty) is not known"),
        ("/* open", "this comment is not closed"),
        ("primfn(a: handle) -> () { }", "this is TIR text (primfn)"),
        ("@main = primfn(a: handle) -> () { }", "this is TIR text (primfn)"),
        ("# from tvm.script import ir as I\n@I.ir_module\nclass Module:", "this is TVMScript"),
        ("@tvm.script.ir_module\nclass Module:", "this is TVMScript"),
    ],
)
def test_header_that_is_not_known(text, message):
    with pytest.raises(RelayError) as caught:
        tokenize(text, "net.relay")
    assert message in str(caught.value)
    assert str(caught.value).startswith("net.relay:1:1: ")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%a $", "unexpected character '$'"),
        ('%a "abc', "string is not closed"),
        ("% a", "a name or a number after %"),
        ("@ f", "the name of a global function after @"),
        ("#[meta]", "expected #[metadata]"),
        ("%a \x00", "unexpected character '\\x00'"),
    ],
)
def test_mistakes_become_the_last_token(body, message):
    kind, text = lexed(body)[-1]
    assert kind == BAD
    assert message in text


def test_positions_count_lines_and_columns_from_one():
    tokens = tokenize(HEADER + "\r\n  %a\n\t%b", "net.relay")
    assert [tokens.position(offset) for offset in tokens.offsets] == [(3, 3), (4, 2), (4, 4)]
