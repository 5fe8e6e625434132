"""The parser's position in the tokens of Relay text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tvmpass.core.errors import nearest

from .ast import Place
from .errors import RelayError
from .lexer import BAD, END, MARK, STRING, Tokens

MAX_DEPTH = 100
"""How deep a program may nest.  At most six Python calls per level stay well
below Python's own limit; printed programs nest a few levels deep, by scope."""

_LONG = 60
"""Messages show this much of a name; longer ones are compared with no others."""

T = TypeVar("T")


class Stream:
    """A cursor over tokens: ``kind`` and ``text`` are those of the current one."""

    def __init__(self, tokens: Tokens):
        self.tokens = tokens
        self.at = -1
        self.kind = ""
        self.text = ""
        self._depth = 0
        self.step()

    @property
    def offset(self) -> int:
        """The offset of the current token in the text."""
        return self.tokens.offsets[self.at]

    def step(self) -> str:
        """Go to the next token and return the text of the one left behind."""
        left = self.text
        if self.kind != END:
            self.at += 1
            self.kind = self.tokens.kinds[self.at]
            self.text = self.tokens.texts[self.at]
            if self.kind == BAD:
                raise self.tokens.error(self.offset, self.text)
        return left

    def ahead(self) -> str:
        """Return the text of the token after the current one."""
        return "" if self.kind == END else self.tokens.texts[self.at + 1]

    def skip_to(self, offset: int) -> None:
        """Go to the token after an offset, where the one before it must end."""
        begin = self.at
        while self.kind != END and self.offset < offset:
            self.step()
        if self.tokens.offsets[self.at - 1] + len(self.tokens.texts[self.at - 1]) > offset:
            name = self.tokens.source[self.tokens.offsets[begin] : offset]
            raise self.error(
                f"expected an operator after {cut(name)}, found {cut(self._rest(offset))}", begin
            )

    def _rest(self, offset: int) -> str:
        return self.tokens.source[
            offset : self.tokens.offsets[self.at - 1] + len(self.tokens.texts[self.at - 1])
        ]

    def take(self, text: str) -> bool:
        """Step over a token if it has this text; say whether."""
        if self.text != text or self.kind == END:
            return False
        self.step()
        return True

    def expect(self, text: str, why: str = "") -> None:
        """Step over a token that must have this text."""
        if not self.take(text):
            raise self.expected(f"'{text}'{why}", (text,) if text.isalpha() else ())

    def expect_kind(self, kind: str, what: str) -> str:
        """Step over a token of a kind and return its text; ``what`` is for the error."""
        if self.kind != kind:
            raise self.expected(what)
        return self.step()

    def sequence(self, begin: str, end: str, item: Callable[[], T]) -> list[T]:
        """Parse items between marks, separated by commas; a last comma is allowed."""
        self.expect(begin)
        found = []
        while not self.take(end):
            found.append(item())
            if not self.take(",") and self.text != end:
                raise self.expected(f"',' or '{end}'")
        return found

    def place(self, at: int = -1, name: str = "") -> Place:
        """Return the place of a token, by default of the current one."""
        return self.tokens.place(self.tokens.offsets[self.at if at < 0 else at], name)

    def error(self, message: str, at: int = -1) -> RelayError:
        """Return the error at a token, by default at the current one."""
        return self.tokens.error(self.tokens.offsets[self.at if at < 0 else at], message)

    def expected(self, what: str, known: Iterable[str] = ()) -> RelayError:
        """Return the error that the token is not ``what``; ``known`` are suggestions."""
        return self.error(f"expected {what}, found {self.found()}{suggestion(self.text, known)}")

    def found(self) -> str:
        """Return the current token as messages show it."""
        if self.kind == END:
            return "the end of the program"
        shown = cut(self.text)
        if self.kind == STRING:
            return f"the string {' '.join(shown.split())}"
        return f"'{shown}'" if self.kind == MARK else shown

    def enter(self) -> None:
        """Go one level deeper; too deep is an error."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep")

    def leave(self) -> None:
        """Go one level back."""
        self._depth -= 1


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or nothing."""
    return nearest(name, known) if len(name) <= _LONG else ""


def cut(text: str) -> str:
    """Return a text as messages show it."""
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
