"""Algebraic data types in Relay text: read, so that errors say where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import ast
from .lexer import LOCAL, WORD

if TYPE_CHECKING:
    from .parse_expressions import Expressions


class DataTypes:
    """The data types of a program; their constructors become `ast.Unsupported`."""

    def __init__(self, parser: Expressions):
        self._parser = parser
        self._stream = parser.stream
        self._types = parser.types
        self._names: set[str] = set()
        self.constructors: dict[str, str] = {}

    def definition(self) -> None:
        """Parse ``type Name[A] { Constructor(type, ...), ... }`` or ``extern type Name``."""
        stream = self._stream
        external = stream.take("extern")
        stream.expect("type")
        at = stream.at
        name = stream.expect_kind(WORD, "the name of a data type")
        if name in self._names:
            raise stream.error(f"the data type {name} is defined twice", at)
        self._names.add(name)
        self._types.known.add(name)
        self._types.parameters()
        if not external or stream.text == "{":
            stream.sequence("{", "}", lambda: self._constructor_definition(name))

    def _constructor_definition(self, data_type: str) -> None:
        stream = self._stream
        at = stream.at
        name = stream.expect_kind(WORD, "the name of a constructor")
        if name in self.constructors:
            raise stream.error(f"the constructor {name} is defined twice", at)
        self.constructors[name] = data_type
        if stream.text == "(":
            stream.sequence("(", ")", self._types.parse)

    def constructor(self) -> ast.Expression:
        """Parse a constructor and its arguments."""
        stream = self._stream
        place, name = stream.place(), stream.step()
        operands = stream.sequence("(", ")", self._parser.block) if stream.text == "(" else []
        what = f"{name} of the algebraic data type (ADT) {self.constructors[name]}"
        return ast.Unsupported(what, operands, place=place)

    def match(self) -> ast.Expression:
        """Parse ``match (value) { pattern => result, ... }``; ``match?`` too."""
        stream = self._stream
        place = stream.place()
        stream.step()
        stream.take("?")
        operands = [self._parser.atom()]
        stream.expect("{")
        while not stream.take("}"):
            operands.append(self._arm(operands[0]))
            stream.take(",")
        return ast.Unsupported("match over an algebraic data type (ADT)", operands, place=place)

    def _arm(self, value: ast.Expression) -> ast.Expression:
        """Parse one arm; its variables stand for the whole value, so that each has one."""
        stream, scopes = self._stream, self._parser.scopes
        mark = scopes.enter()
        bound: list[ast.Var] = []
        self._pattern(bound)
        stream.expect("=>")
        result = self._parser.block()
        scopes.leave(mark)
        return ast.Let([(var, value) for var in bound], result, place=result.place) if bound else result

    def _pattern(self, bound: list[ast.Var]) -> None:
        stream, scopes = self._stream, self._parser.scopes
        stream.enter()
        if stream.take("_"):
            pass
        elif stream.kind == LOCAL:
            name, place = scopes.take_name()
            type_ = self._types.parse() if stream.take(":") else None
            bound.append(ast.Var(name, type_, place=place))
            scopes.bind(bound[-1])
        elif stream.text == "(":
            stream.sequence("(", ")", lambda: self._pattern(bound))
        else:
            stream.expect_kind(WORD, "a pattern")
            if stream.text == "(":
                stream.sequence("(", ")", lambda: self._pattern(bound))
        stream.leave()
