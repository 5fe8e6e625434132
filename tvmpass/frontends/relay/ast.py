"""The tree of a Relay program: what the text parser and the JSON reader make.

Expressions form a graph: a node that Relay shares (``%3`` in text, one node
index in JSON) is one object here, reached along several edges.  Nothing may
walk it by recursion alone: chains of 100,000 nodes occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TensorType:
    """A tensor of ``shape`` (None is an unknown dim, printed ``?``) and Relay dtype."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class TupleType:
    """A tuple type."""

    fields: tuple[Type | None, ...]


@dataclass(frozen=True)
class FunctionType:
    """The type of a function or closure."""

    params: tuple[Type | None, ...]
    result: Type | None


@dataclass(frozen=True)
class NamedType:
    """A type by name: of an algebraic data type, a type variable or ``ref``; never converted."""

    name: str
    arguments: tuple[Type | None, ...] = ()


Type = TensorType | TupleType | FunctionType | NamedType
"""Where a type may be left out (``_``, or nothing) it is None."""


@dataclass(frozen=True)
class Place:
    """Where a node stands in its file, and what to call it.

    ``line`` and ``column`` count from 1 and are 0 where unknown (JSON); ``name``
    is what the program calls the value (``%12``, ``%conv1``), or empty.
    """

    line: int = 0
    column: int = 0
    name: str = ""


NOWHERE = Place()


@dataclass(eq=False)
class Expression:
    """A node; two nodes are equal only if they are the same object."""

    place: Place = field(default=NOWHERE, kw_only=True)

    def children(self) -> Iterator[Expression]:
        """Yield the operands in the order of evaluation."""
        return iter(())


@dataclass(eq=False)
class Var(Expression):
    """A parameter or a let-bound variable; scopes are resolved: the object is the variable."""

    name: str
    type: Type | None = None


@dataclass(eq=False)
class Constant(Expression):
    """A tensor, scalars too, in its exact dtype (bfloat16 by ml_dtypes)."""

    value: np.ndarray


@dataclass(eq=False)
class Operator(Expression):
    """An operator, by its Relay name."""

    name: str


@dataclass(eq=False)
class Global(Expression):
    """A global function, by its name without the ``@``."""

    name: str


@dataclass(eq=False)
class Tuple(Expression):
    """A tuple."""

    fields: list[Expression]

    def children(self) -> Iterator[Expression]:
        return iter(self.fields)


@dataclass(eq=False)
class TupleGetItem(Expression):
    """One item of a tuple."""

    value: Expression
    index: int

    def children(self) -> Iterator[Expression]:
        yield self.value


@dataclass(eq=False)
class Call(Expression):
    """A call of an operator, a global function or any expression that is a function.

    ``attrs`` holds what the program states, with plain values: int, float, bool,
    str, None, lists of these, and for attributes that are expressions a
    `Constant`.  Defaults are not filled in: `table.Attrs` does.
    """

    function: Expression
    args: list[Expression]
    attrs: dict[str, Any] = field(default_factory=dict)

    def children(self) -> Iterator[Expression]:
        yield self.function
        yield from self.args


@dataclass(eq=False)
class If(Expression):
    """A branch on a scalar of dtype bool (or an integer, where it is not 0)."""

    condition: Expression
    then: Expression
    otherwise: Expression

    def children(self) -> Iterator[Expression]:
        yield self.condition
        yield self.then
        yield self.otherwise


@dataclass(eq=False)
class Let(Expression):
    """A chain of lets in order; a variable is visible in its own value where that is a Function.

    ``e1; e2`` in text is a binding of a fresh variable that nobody reads.
    """

    bindings: list[tuple[Var, Expression]]
    body: Expression

    def children(self) -> Iterator[Expression]:
        for _, value in self.bindings:
            yield value
        yield self.body


@dataclass(eq=False)
class Function(Expression):
    """A function: global, or a value (a closure)."""

    params: list[Var]
    body: Expression
    result: Type | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    type_params: list[str] = field(default_factory=list)

    def children(self) -> Iterator[Expression]:
        yield self.body


@dataclass(eq=False)
class Unsupported(Expression):
    """A construct that is read but has no Relax form; ``what`` says which, for the error.

    Its operands are kept, so that everything else unsupported is found as well.
    """

    what: str
    operands: list[Expression] = field(default_factory=list)

    def children(self) -> Iterator[Expression]:
        return iter(self.operands)


@dataclass(eq=False)
class Module:
    """A program: global functions in the order of the file.

    ``where`` names the file for messages; ``source`` is its text where it was
    text, for messages that show a line.
    """

    functions: dict[str, Function]
    where: str = "relay"
    source: str | None = None
