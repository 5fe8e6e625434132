"""Types in Relay text."""

from __future__ import annotations

import re
from difflib import get_close_matches

from . import ast
from .lexer import META, NUMBER, WORD
from .parse_stream import Stream, cut
from .parse_values import Metadata, plain_number

_ALIASES = {"int": "int32", "uint": "uint32", "float": "float32", "uint1": "bool"}

_NAMES = frozenset(
    [*_ALIASES, "bool", "float16", "float32", "float64", "bfloat16"]
    + ["float8_e4m3fn", "float8_e5m2", "e4m3_float8", "e5m2_float8"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (1, 2, 4, 8, 16, 32, 64)]
)
_LONGEST = max(map(len, _NAMES))
_ALIKE = 0.8
"""From here on an unknown type is a dtype misspelt, not a data type."""

_VECTOR = re.compile(r"(\w+)x[0-9]{1,5}")


class Types:
    """Parses types; format 0.0.4 reads ``(T)`` as T, later ones as a tuple of one."""

    def __init__(self, stream: Stream, metadata: Metadata):
        self._stream = stream
        self._metadata = metadata
        self._old = stream.tokens.version == "0.0.4"
        self.known: set[str] = set()
        """Type variables and data types met so far."""

    def parse(self) -> ast.Type | None:
        """Parse a type; None where it is left open (``_``)."""
        stream = self._stream
        stream.enter()
        if stream.text == "(":
            found = self._tuple()
        elif stream.kind == META:
            found = self._reference()
        elif stream.kind != WORD:
            raise stream.expected("a type")
        elif stream.text == "_":
            stream.step()
            found = None
        elif stream.text == "fn":
            found = self._function()
        elif stream.text == "Tensor":
            found = self._tensor()
        elif stream.text == "ref" and stream.ahead() == "(":
            stream.step()
            found = ast.NamedType("ref", tuple(stream.sequence("(", ")", self.parse)))
        elif is_dtype(stream.text):
            found = ast.TensorType((), _dtype(stream))
        else:
            found = self._named()
        stream.leave()
        return found

    def parameters(self) -> list[str]:
        """Parse ``[A, B]``, the type variables of a definition, where there are any."""
        stream = self._stream
        if stream.text != "[":
            return []
        names = stream.sequence("[", "]", lambda: stream.expect_kind(WORD, "the name of a type variable"))
        self.known.update(names)
        return names

    def _named(self) -> ast.Type:
        """Parse a type by its name; one that is not known may be a dtype misspelt."""
        stream = self._stream
        if stream.text not in self.known and len(stream.text) <= _LONGEST:
            near = get_close_matches(stream.text, ("Tensor", *_NAMES), 1, _ALIKE)
            if near:
                raise stream.error(f"there is no type {stream.text}; did you mean {near[0]!r}?")
        name = stream.step()
        arguments = stream.sequence("[", "]", self.parse) if stream.text == "[" else ()
        return ast.NamedType(name, tuple(arguments))

    def _tuple(self) -> ast.Type | None:
        stream = self._stream
        fields = stream.sequence("(", ")", self.parse)
        if self._old and len(fields) == 1 and stream.tokens.texts[stream.at - 2] != ",":
            return fields[0]
        return ast.TupleType(tuple(fields))

    def _function(self) -> ast.Type:
        stream = self._stream
        stream.step()
        self.parameters()
        params = stream.sequence("(", ")", self.parse)
        stream.expect("->")
        return ast.FunctionType(tuple(params), self.parse())

    def _tensor(self) -> ast.Type:
        stream = self._stream
        stream.step()
        stream.expect("[")
        dims = stream.sequence("(", ")", self._dim) if stream.text == "(" else [self._dim()]
        stream.expect(",")
        if not is_dtype(stream.text):
            raise stream.expected("a dtype", _NAMES)
        dtype = _dtype(stream)
        stream.expect("]")
        return ast.TensorType(tuple(dims), dtype)

    def _dim(self) -> int | None:
        stream = self._stream
        if stream.take("?"):
            return None
        if stream.text == "(" and self._old:
            stream.step()
            stream.enter()
            dim = self._dim()
            stream.leave()
            stream.expect(")")
            return dim
        at = stream.at
        if stream.kind == META:
            # A variable or an expression over variables is a dim that is not known.
            value = self._metadata.take()
            if not isinstance(value, int) or isinstance(value, bool):
                return None
            if value < 0:
                raise stream.error("a dim is not negative", at)
            return value
        if stream.kind != NUMBER:
            raise stream.expected("a dim: a number or ?")
        size = plain_number(stream)
        if not isinstance(size, int):
            raise stream.error("a dim is an integer", at)
        return size

    def _reference(self) -> ast.Type | None:
        stream = self._stream
        at = stream.at
        value = self._metadata.take()
        if not isinstance(value, ast.Type):
            raise stream.error(f"{cut(stream.tokens.texts[at])} is no type", at)
        return value


def is_dtype(text: str) -> bool:
    """Say whether a word names a dtype, of vectors too (``int8x4``)."""
    vector = _VECTOR.fullmatch(text)
    return text in _NAMES or (vector is not None and vector.group(1) in _NAMES)


def _dtype(stream: Stream) -> str:
    text = stream.step()
    return _ALIASES.get(text, text)
