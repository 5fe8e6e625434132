"""Which variable a name means, in Relay text.

Names that old front ends made may hold ``.``, ``/``, ``-`` and ``:``, which in
expressions mean something else (``%conv1/weight:0``, ``%onnx::Conv_7``).  Where
a variable is bound the whole name is taken; where one is used, the longest name
that is bound.
"""

from __future__ import annotations

import re

from . import ast
from .errors import RelayError
from .lexer import LOCAL
from .parse_stream import Stream, cut, suggestion

_TAIL = re.compile(r"(?:[./-]|::)\w+|:[0-9]+")
_WHOLE = re.compile(rf"[^\W\d]\w*(?:{_TAIL.pattern})*")

_MAX_NAME = 1000
"""Characters of a name."""

_SUGGESTIONS = 2000
"""Names looked at for ``did you mean``."""


class Scopes:
    """The variables in scope, with inner ones hiding outer ones."""

    def __init__(self, stream: Stream):
        self._stream = stream
        self._bound: dict[str, ast.Var] = {}
        self._undo: list[tuple[str, ast.Var | None]] = []
        self._open: dict[ast.Var, int] = {}
        self._functions = 0
        self._compound = False

    def enter(self) -> int:
        """Begin a scope and return what `leave` needs."""
        return len(self._undo)

    def leave(self, mark: int) -> None:
        """End the scope that began at ``mark``."""
        while len(self._undo) > mark:
            name, hidden = self._undo.pop()
            if hidden is None:
                del self._bound[name]
            else:
                self._bound[name] = hidden

    def enter_function(self) -> int:
        """Begin the scope of a function: from here on variables being bound may be used."""
        self._functions += 1
        return self.enter()

    def leave_function(self, mark: int) -> None:
        """End the scope of a function."""
        self._functions -= 1
        self.leave(mark)

    def bind(self, var: ast.Var) -> None:
        """Bring a variable into scope."""
        self._undo.append((var.name, self._bound.get(var.name)))
        self._bound[var.name] = var

    def begin_value(self, var: ast.Var) -> None:
        """Note that a variable's value begins: only functions in it may use the variable."""
        self._open[var] = self._functions

    def end_value(self, var: ast.Var) -> None:
        """Note that the value of a variable is complete."""
        del self._open[var]

    def take_name(self) -> tuple[str, ast.Place]:
        """Parse the name of a variable that is bound here."""
        stream = self._stream
        if stream.kind != LOCAL:
            raise stream.expected("a variable's name, %name")
        begin = stream.offset
        found = _WHOLE.match(stream.tokens.source, begin + 1)
        name = found.group() if found else stream.text[1:]
        if len(name) > _MAX_NAME:
            raise stream.error(f"the name %{cut(name)} is longer than {_MAX_NAME} characters")
        place = stream.tokens.place(begin, "%" + name)
        if len(name) == len(stream.text) - 1:
            stream.step()
        else:
            self._compound = True
            stream.skip_to(begin + 1 + len(name))
        return name, place

    def take(self) -> ast.Var:
        """Parse a use of a variable and return the variable."""
        stream = self._stream
        at, name = stream.at, stream.text[1:]
        if self._compound:
            name = self._longest(name)
        var = self._bound.get(name)
        if var is None:
            raise self._unknown(name)
        if self._open and self._open.get(var, -1) == self._functions:
            raise stream.error(
                f"%{cut(name)} is used in its own value; only a function can refer to itself", at
            )
        if len(name) == len(stream.text) - 1:
            stream.step()
        else:
            stream.skip_to(stream.offset + 1 + len(name))
        return var

    def _longest(self, name: str) -> str:
        """Return the longest bound name that begins here."""
        stream = self._stream
        source, begin = stream.tokens.source, stream.offset + 1
        found, end = name, begin + len(name)
        while (tail := _TAIL.match(source, end)) is not None and tail.end() - begin <= _MAX_NAME:
            end = tail.end()
            if source[begin:end] in self._bound:
                found = source[begin:end]
        if found != name and found.startswith(name + ".") and self._may_be_tuple(name):
            raise stream.error(
                f"%{cut(found)} may be the variable of this name or an item of %{cut(name)}; rename one"
            )
        return found

    def _may_be_tuple(self, name: str) -> bool:
        var = self._bound.get(name)
        return var is not None and not isinstance(var.type, ast.TensorType)

    def names(self) -> list[str]:
        """Return the names of variables in scope, to suggest one."""
        return [f"%{bound}" for bound in list(self._bound)[-_SUGGESTIONS:]]

    def _unknown(self, name: str) -> RelayError:
        hint = suggestion(f"%{name}", self.names())
        return self._stream.error(f"there is no variable %{cut(name)} here{hint}")
