"""Expressions in Relay text: functions, blocks, and what stands in them.

Statements of a block, infix chains, calls of calls and projections are parsed
by loops; only what nests in the text nests here, to a stated depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ast, older, table
from .lexer import GLOBAL, GRAPH, LOCAL, META, WORD
from .nodes import AttrsNode
from .parse_data import DataTypes
from .parse_scopes import Scopes
from .parse_stream import Stream, cut
from .parse_types import Types
from .parse_values import Metadata, attributes, cast, constant, is_cast, is_number, sign

_INFIX = {
    "*": ("multiply", 4),
    "/": ("divide", 4),
    "+": ("add", 3),
    "-": ("subtract", 3),
    "<": ("less", 2),
    "<=": ("less_equal", 2),
    ">": ("greater", 2),
    ">=": ("greater_equal", 2),
    "==": ("equal", 1),
    "!=": ("not_equal", 1),
}
"""Operator and binding strength; all group to the left."""

_KEYWORDS = ("let", "fn", "if", "else", "match", "def", "type", "extern", "free_var", "True", "False")


class Expressions:
    """Parses expressions; ``%N`` and global functions are known to the whole program."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.metadata = Metadata(stream)
        self.types = Types(stream, self.metadata)
        self.scopes = Scopes(stream)
        self.data = DataTypes(self)
        self.globals: dict[str, int] = {}
        """Global functions that are used, with the token of their first use."""
        self._old = stream.tokens.version == "0.0.4"
        self._graph: dict[str, tuple[ast.Expression, int]] = {}

    def function(self, place: ast.Place | None = None) -> ast.Function:
        """Parse a function after ``fn`` or its name."""
        stream, scopes = self.stream, self.scopes
        place = place or stream.place(stream.at - 1)
        mark = scopes.enter_function()
        type_params = self.types.parameters()
        params: dict[str, ast.Var] = {}
        attrs: dict[str, Any] = {}
        stream.sequence("(", ")", lambda: self._parameter(params, attrs))
        result = self.types.parse() if stream.take("->") else None
        stream.expect("{")
        body = self.block(params)
        stream.expect("}", ", the end of the function, or ';'")
        scopes.leave_function(mark)
        attrs.pop("virtual_device", None)
        # Up to 0.6 all attributes stand in one dict.
        older_attrs = attrs.pop("__dict__", None)
        if isinstance(older_attrs, dict):
            attrs.update(older_attrs)
        return ast.Function(list(params.values()), body, result, attrs, type_params, place=place)

    def _parameter(self, params: dict[str, ast.Var], attrs: dict[str, Any]) -> None:
        stream = self.stream
        if stream.kind == WORD and stream.ahead() == "=":
            attributes(stream, self.metadata, attrs)
            return
        if stream.kind != LOCAL:
            raise stream.expected("a parameter, %name, or an attribute")
        at = stream.at
        name, place = self.scopes.take_name()
        if name in params:
            raise stream.error(f"there are two parameters %{cut(name)}", at)
        if stream.text == "{":
            # Where the parameter lives (virtual_device): tvmpass decides that itself.
            device: dict[str, Any] = {}
            stream.sequence("{", "}", lambda: attributes(stream, self.metadata, device))
        type_ = self.types.parse() if stream.take(":") else None
        var = ast.Var(name, type_, place=place)
        self.scopes.bind(var)
        params[name] = var

    # Blocks

    def block(self, params: dict[str, ast.Var] | None = None) -> ast.Expression:
        """Parse statements and the result that follows them.

        ``params`` are those of the function whose body this is.
        """
        stream, scopes = self.stream, self.scopes
        stream.enter()
        mark = scopes.enter()
        bindings: list[tuple[ast.Var, ast.Expression]] = []
        place = stream.place()
        while True:
            if stream.kind == GRAPH and stream.ahead() == "=":
                self._numbered()
                continue
            if stream.text == "let":
                bindings.append(self._let(params))
                params = None
                continue
            at = stream.at
            if stream.text == "free_var":
                raise stream.error("free_var: this program is open; make the variable a parameter of @main")
            if stream.text == "{":
                stream.step()
                value = self.block()
                stream.expect("}")
            else:
                value = self.infix()
            if not stream.take(";") and not (self._old and stream.take(";;")):
                break
            bindings.append((ast.Var("_", place=stream.place(at)), value))
        scopes.leave(mark)
        stream.leave()
        return ast.Let(bindings, value, place=place) if bindings else value

    def _numbered(self) -> None:
        """Parse ``%N = value;``."""
        stream = self.stream
        at, name = stream.at, stream.step()
        if name in self._graph:
            line = stream.place(self._graph[name][1]).line
            raise stream.error(f"{cut(name)} is defined twice: first on line {line}", at)
        stream.step()
        value = self.infix()
        stream.expect(";", f" after the value of {cut(name)}")
        self._graph[name] = (_named(value, name), at)

    def _let(self, params: dict[str, ast.Var] | None) -> tuple[ast.Var, ast.Expression]:
        stream = self.stream
        stream.step()
        at = stream.at
        name, place = self.scopes.take_name()
        if params and name in params:
            # Relay's own parser goes on using the parameter here: neither reading is safe.
            raise stream.error(f"%{cut(name)} is a parameter of this function already; rename one", at)
        type_ = self.types.parse() if stream.take(":") else None
        stream.expect("=")
        var = ast.Var(name, type_, place=place)
        self.scopes.bind(var)
        self.scopes.begin_value(var)
        value = self.infix()
        self.scopes.end_value(var)
        stream.expect(";", f" after the value of %{cut(name)}")
        return var, _named(value, f"%{name}")

    # Expressions

    def infix(self) -> ast.Expression:
        """Parse operands joined by infix operators."""
        stream = self.stream
        first = self.operand()
        if stream.text not in _INFIX:
            return first
        values = [first]
        pending: list[tuple[str, int, ast.Place]] = []
        while (found := _INFIX.get(stream.text)) is not None:
            while pending and pending[-1][1] >= found[1]:
                _reduce(values, pending)
            pending.append((*found, stream.place()))
            stream.step()
            values.append(self.operand())
        while pending:
            _reduce(values, pending)
        return values[0]

    def operand(self) -> ast.Expression:
        """Parse an atom and the calls and projections after it."""
        stream = self.stream
        at = stream.at
        if stream.text == "-":
            return self._negative()
        value = self.atom()
        while True:
            if stream.text == "(":
                value = self._call(value, at)
            elif stream.text == ".":
                value = self._projection(value, at)
            else:
                return value

    def atom(self) -> ast.Expression:
        """Parse the smallest expression."""
        stream = self.stream
        at, kind, text = stream.at, stream.kind, stream.text
        if kind == LOCAL:
            return self.scopes.take()
        if kind == GRAPH:
            return self._take_numbered()
        if text == "(":
            return self._parentheses()
        if kind == GLOBAL:
            stream.step()
            self.globals.setdefault(text[1:], at)
            return ast.Global(text[1:], place=stream.place(at))
        if kind == META:
            return self._stored()
        if is_number(stream):
            return ast.Constant(constant(stream), place=stream.place(at))
        if kind == WORD:
            return self._word()
        raise stream.expected("an expression")

    def _word(self) -> ast.Expression:
        stream = self.stream
        at, text = stream.at, stream.text
        if text == "if":
            return self._if()
        if text == "fn":
            stream.step()
            return self.function()
        if text in ("True", "False"):
            stream.step()
            return ast.Constant(np.array(text == "True"), place=stream.place(at))
        if text == "match":
            return self.data.match()
        if text in self.data.constructors:
            return self.data.constructor()
        if stream.ahead() == "(":
            if text in ("ref", "ref_read", "ref_write"):
                return self._reference()
            if is_cast(stream):
                return ast.Constant(cast(stream), place=stream.place(at))
        if stream.ahead() != "(" and text not in table.schema()["operators"]:
            known = (*_KEYWORDS, *self.scopes.names(), *table.schema()["operators"])
            raise stream.expected("an expression", known)
        if text in _KEYWORDS:
            raise stream.expected("an expression")
        stream.step()
        return ast.Operator(text, place=stream.place(at))

    def _negative(self) -> ast.Expression:
        stream = self.stream
        at = stream.at
        negative = sign(stream)
        if is_number(stream):
            return ast.Constant(constant(stream, negative), place=stream.place(at))
        value = self.operand()
        if not negative:
            return value
        place = stream.place(at)
        return ast.Call(ast.Operator("negative", place=place), [value], place=place)

    def _take_numbered(self) -> ast.Expression:
        stream = self.stream
        found = self._graph.get(stream.text)
        if found is None:
            raise stream.error(f"{cut(stream.text)} is not defined before this use")
        stream.step()
        return found[0]

    def _parentheses(self) -> ast.Expression:
        """Parse ``()``, ``(value)`` or a tuple."""
        stream = self.stream
        at = stream.at
        stream.step()
        if stream.take(")"):
            return ast.Tuple([], place=stream.place(at))
        first = self.block()
        if stream.take(")"):
            return first
        fields = [first]
        while stream.take(","):
            if stream.text == ")":
                break
            fields.append(self.block())
        stream.expect(")", " or ','")
        return ast.Tuple(fields, place=stream.place(at))

    def _projection(self, value: ast.Expression, at: int) -> ast.Expression:
        """Parse ``.N``; ``.0.1`` comes as one number token."""
        stream = self.stream
        stream.step()
        parts = stream.text.split(".")
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise stream.expected("the index of an item of a tuple")
        stream.step()
        for part in parts:
            value = ast.TupleGetItem(value, int(part), place=stream.place(at))
        return value

    def _call(self, function: ast.Expression, at: int) -> ast.Expression:
        stream = self.stream
        args: list[ast.Expression] = []
        attrs: dict[str, Any] = {}
        stream.step()
        while not stream.take(")"):
            if stream.kind == WORD and stream.ahead() == "=":
                attributes(stream, self.metadata, attrs)
            elif stream.kind == META and stream.ahead() == ")":
                self._last(args, attrs)
            else:
                args.append(self.block())
            if not stream.take(",") and stream.text != ")":
                raise stream.expected("',' or ')'")
        # Says how a call of a function keeps its attributes, not what they are.
        attrs.pop("attrs_type_key", None)
        if self._old and isinstance(function, ast.Operator):
            attrs = older.upgraded(function.name, attrs)
        return ast.Call(function, args, attrs, place=stream.place(at))

    def _last(self, args: list[ast.Expression], attrs: dict[str, Any]) -> None:
        """Parse a reference at the end of a call: an argument, or all attributes."""
        stream = self.stream
        at = stream.at
        value = self.metadata.take()
        if isinstance(value, AttrsNode) and value.type_key.startswith("relay.attrs."):
            attrs.update(value.fields)
        elif isinstance(value, dict):
            attrs.update(value)
        else:
            args.append(self._expression(value, at))

    def _stored(self) -> ast.Expression:
        at = self.stream.at
        return self._expression(self.metadata.take(), at)

    def _expression(self, value: Any, at: int) -> ast.Expression:
        if isinstance(value, ast.Expression):
            return value
        text = cut(self.stream.tokens.texts[at])
        if isinstance(value, AttrsNode):
            return ast.Unsupported(f"{text}, a {value.type_key}", place=self.stream.place(at))
        raise self.stream.error(f"{text} is no expression", at)

    def _if(self) -> ast.Expression:
        stream = self.stream
        place = stream.place()
        stream.step()
        stream.expect("(")
        condition = self.block()
        stream.expect(")")
        stream.expect("{")
        then = self.block()
        stream.expect("}", " or ';'")
        stream.expect("else")
        stream.expect("{")
        otherwise = self.block()
        stream.expect("}", " or ';'")
        return ast.If(condition, then, otherwise, place=place)

    def _reference(self) -> ast.Expression:
        stream = self.stream
        place, what = stream.place(), stream.step()
        operands = stream.sequence("(", ")", self.block)
        return ast.Unsupported(f"{what}(...), a mutable reference", operands, place=place)


def _reduce(values: list[ast.Expression], pending: list[tuple[str, int, ast.Place]]) -> None:
    """Apply the last pending infix operator to the last two values."""
    name, _, place = pending.pop()
    right = values.pop()
    left = values.pop()
    values.append(ast.Call(ast.Operator(name, place=place), [left, right], place=place))


def _named(value: ast.Expression, name: str) -> ast.Expression:
    """Give a value the name that it is bound to, where it has none of its own."""
    if not value.place.name and not isinstance(value, (ast.Var, ast.Global, ast.Operator)):
        value.place = ast.Place(value.place.line, value.place.column, name)
    return value
