"""Relay text to `ast.Module`, by recursive descent.

What Relay can say and Relax cannot (algebraic data types, references) is read
into `ast.Unsupported`, so that the converter can list all of it at once.
"""

from __future__ import annotations

from . import ast
from .errors import RelayError
from .lexer import END, GLOBAL, GRAPH, LOCAL, META, OTHER_LANGUAGES, tokenize
from .parse_expressions import Expressions
from .parse_stream import Stream, cut, suggestion

_DEFINITIONS = ("def", "type", "extern")


def parse(text: str, where: str = "relay") -> ast.Module:
    """Parse Relay text (formats 0.0.5 and 0.0.4) into its tree.

    ``where`` names the file in messages.  The text of a lone function gives a
    module with it as ``main``.  Raises `RelayError` with file, line and column,
    what was expected and what was found.
    """
    try:
        return _Program(text, where).parse()
    except RecursionError:
        raise RelayError(f"{where}: the program is nested too deep to be read from here") from None


class _Program:
    """The definitions of one text."""

    def __init__(self, text: str, where: str):
        self._stream = Stream(tokenize(text, where))
        self._expressions = Expressions(self._stream)
        self._functions: dict[str, ast.Function] = {}
        self._module = ast.Module(self._functions, where, text)

    def parse(self) -> ast.Module:
        """Parse all definitions."""
        stream = self._stream
        while stream.kind != END:
            if stream.text == "def":
                self._function()
            elif stream.text in ("type", "extern"):
                self._expressions.data.definition()
            elif stream.text == "fn" and not self._functions:
                stream.step()
                self._functions["main"] = self._expressions.function()
            else:
                raise self._no_definition()
        for name, at in self._expressions.globals.items():
            if name not in self._functions:
                hint = suggestion(name, self._functions)
                raise stream.error(f"there is no function @{cut(name)} in this program{hint}", at)
        return self._module

    def _function(self) -> None:
        stream = self._stream
        stream.step()
        at = stream.at
        name = stream.expect_kind(GLOBAL, "the name of a function, @name")[1:]
        place = stream.place(at, f"@{name}")
        if name in self._functions:
            line = self._functions[name].place.line
            raise stream.error(f"@{cut(name)} is defined twice: first on line {line}", at)
        if not stream.take("="):
            self._functions[name] = self._expressions.function(place)
            return
        # Code of another compiler, kept by reference: def @name = meta[ExternalFunc][0].
        stream.expect_kind(META, "meta[...][N]")
        body = ast.Unsupported(f"the external function @{name}", place=place)
        self._functions[name] = ast.Function([], body, place=place)

    def _no_definition(self) -> RelayError:
        stream = self._stream
        for pattern, message in OTHER_LANGUAGES:
            if pattern.match(stream.tokens.source, stream.offset):
                return stream.error(message)
        if stream.kind in (LOCAL, GRAPH) or stream.text in ("free_var", "let"):
            return stream.error("this is an expression, not a program: def @main(...) { ... } is needed")
        return stream.expected("a definition (def, type)", _DEFINITIONS)
