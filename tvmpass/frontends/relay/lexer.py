"""Tokens of Relay text.

Comments nest, and the metadata section runs from its mark to the end of the
file.  Numbers carry no sign: ``-`` is a token of its own.  A mistake becomes a
last token of kind `BAD`, so that the parser reports whatever is wrong first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from .ast import Place
from .errors import RelayError, located

WORD, NUMBER, STRING, LOCAL, GRAPH, GLOBAL, META, MARK, END, BAD = (
    "word",
    "number",
    "string",
    "local",
    "graph",
    "global",
    "meta",
    "mark",
    "end",
    "bad",
)

VERSIONS = ("0.0.5", "0.0.4")

_HEADER = re.compile(r'#\[\s*version\s*=\s*"([^"\n]*)"\s*\]|v([0-9]+\.[0-9]+\.[0-9]+)\b')

OTHER_LANGUAGES = (
    (
        re.compile(r"(?:@\w+\s*=\s*)?primfn\b"),
        "this is TIR text (primfn), not a Relay program: kernels cannot be read back",
    ),
    (
        re.compile(r"@(?:[TIR]|tvm\.script)\.|#\s*from tvm\b|(?:from|import) tvm\b"),
        "this is TVMScript, not a Relay program",
    ),
)
"""How other texts of TVM begin, and what to say of them."""

_TOKEN = re.compile(
    r"""
    (?P<skip>    [\s\ufeff]+ | //[^\n]* )
  | (?P<comment> /\* )
  | (?P<graph>   %[0-9]+ )
  | (?P<local>   %[^\W\d]\w* )
  | (?P<meta>    meta\[[^\]\n]{0,200}\]\[[^\]\n]{0,200}\] )
  | (?P<section> \#\[\s*metadata\s*\] | METADATA: )
  | (?P<word>    [^\W\d]\w* (?: \.[^\W\d]\w* )* )
  | (?P<number>  [0-9]+ (?: \.[0-9]* )? (?: [eE][+-]?[0-9]+ )? \w* )
  | (?P<global>  @[^\W\d](?: \w | [./](?=\w) )* )
  | (?P<string>  "[^"]*" )
  | (?P<mark>    -> | => | == | != | <= | >= | ;; | [()\[\]{},;:=.?<>+\-*/] )
""",
    re.VERBOSE,
)

_COMMENT_MARK = re.compile(r"/\*|\*/")


@dataclass
class Tokens:
    """The tokens of a text: kind, text and offset of each; the last is `END` or `BAD`.

    A string keeps its quotes.  ``metadata`` is the JSON of the metadata
    section, None where there is none.  ``version`` is the text format's.
    """

    where: str
    source: str
    version: str = ""
    kinds: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    metadata: str | None = None
    _lines: list[int] = field(default_factory=list)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, from 1."""
        if not self._lines:
            self._lines = [0, *(found.end() for found in re.finditer("\n", self.source))]
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def place(self, offset: int, name: str = "") -> Place:
        """Return the place of an offset."""
        return Place(*self.position(offset), name)

    def error(self, offset: int, message: str) -> RelayError:
        """Return the error at an offset, with its line."""
        return located(self.where, self.source, *self.position(offset), message)


def tokenize(source: str, where: str = "relay") -> Tokens:
    """Split Relay text into tokens.

    Raises `RelayError` if the text has no header or one of another version.
    """
    tokens = Tokens(where, source)
    at = _header(tokens)
    add_kind, add_text, add_offset = tokens.kinds.append, tokens.texts.append, tokens.offsets.append
    match = _TOKEN.match
    end = len(source)
    while at < end:
        found = match(source, at)
        if found is None:
            _add_bad(tokens, at, _complaint(source, at))
            return tokens
        kind = found.lastgroup
        if kind == "comment":
            after = _comment_end(source, at)
            if after < 0:
                _add_bad(tokens, at, "this comment is not closed: */ is missing")
                return tokens
            at = after
            continue
        if kind == "section":
            tokens.metadata = source[found.end() :]
            break
        if kind != "skip":
            add_kind(kind)  # type: ignore[arg-type]  # every alternative is named
            add_text(found.group())
            add_offset(at)
        at = found.end()
    add_kind(END)
    add_text("")
    add_offset(min(at, end))
    return tokens


def _header(tokens: Tokens) -> int:
    """Read the version and return the offset after it."""
    source, at = tokens.source, 0
    while True:
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup not in ("skip", "comment"):
            break
        at = found.end() if found.lastgroup == "skip" else _comment_end(source, at)
        if at < 0:
            raise tokens.error(found.start(), "this comment is not closed: */ is missing")
    header = _HEADER.match(source, at)
    if header is None:
        for pattern, message in OTHER_LANGUAGES:
            if pattern.match(source, at):
                raise tokens.error(at, message)
        missing = 'Relay text begins with the line #[version = "0.0.5"]; it is missing'
        raise tokens.error(at, f"{missing} (print(mod) leaves it out, mod.astext() does not)")
    tokens.version = header.group(1) or header.group(2) or ""
    if tokens.version not in VERSIONS:
        raise tokens.error(
            at,
            f"Relay text of version {tokens.version or '(empty)'} is not known; {' and '.join(VERSIONS)} are",
        )
    return header.end()


def _comment_end(source: str, at: int) -> int:
    """Return the offset after the comment that begins at ``at``, -1 if it is open."""
    depth, at = 1, at + 2
    while depth:
        found = _COMMENT_MARK.search(source, at)
        if found is None:
            return -1
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return at


def _complaint(source: str, at: int) -> str:
    if source[at] == '"':
        return "this string is not closed: a second quote is missing"
    if source[at] == "%":
        return "expected a name or a number after %"
    if source[at] == "@":
        return "expected the name of a global function after @"
    for pattern, message in OTHER_LANGUAGES:
        if pattern.match(source, at):
            return message
    if source.startswith("#[", at):
        return "expected #[metadata] here"
    return f"unexpected character {source[at]!r}"


def _add_bad(tokens: Tokens, at: int, message: str) -> None:
    tokens.kinds.append(BAD)
    tokens.texts.append(message)
    tokens.offsets.append(at)
