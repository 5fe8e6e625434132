"""Grow one random program: scopes, constants, calls that keep track of types and ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tvmpass.frontends.relay import ast

from . import attributes
from .interpreter import type_of
from .numpy_table import TABLE
from .values import INEXACT, Range, Value, tensor

T = TypeVar("T")

MAX_ELEMENTS = 600
NAMES = ("a", "b", "x", "h", "data", "weight", "bias", "gate_0", "next_c", "i2h", "out")
GRID = Range(-2, 2, 2)
"""What inputs and constants are made of: quarters from -2 to 2, exact in every dtype."""


@dataclass
class Scope:
    """What an open block may use, and the lets made in it so far."""

    values: list[Value]
    bindings: list[tuple[ast.Var, ast.Expression]] = field(default_factory=list)
    made: list[Value] = field(default_factory=list)


class Builder:
    """The program under construction; ``pick`` chooses from a sequence.

    A block may use what is named outside of it.  With ``shared`` it may use
    every node outside; such a program has no text that can be read, because
    Relay writes a node where it is first used.
    """

    def __init__(self, pick: Callable[[Sequence[Any]], Any], shared: bool = False):
        self._pick = pick
        self._shared = shared
        self.types: dict[ast.Expression, ast.Type] = {}
        self.functions: dict[str, ast.Function] = {}
        self.params: list[Value] = []
        self.scopes: list[Scope] = [Scope([])]
        self.used: set[ast.Expression] = set()
        self._operators: dict[str, ast.Operator] = {}

    # -- choices

    def pick(self, options: Sequence[T]) -> T:
        """Choose one; the first is the simplest."""
        return self._pick(options) if len(options) > 1 else options[0]

    def number(self, low: int, high: int) -> int:
        """Choose an integer, both ends included."""
        return self.pick(range(low, high + 1))

    def chance(self, one_in: int = 2) -> bool:
        """Say yes once in ``one_in`` times."""
        return self.pick(range(one_in)) == one_in - 1

    def find(self, wanted: Callable[[Value], bool]) -> Value | None:
        """Choose a visible value, later ones first; None where there is none."""
        found = [value for value in reversed(self.scope.values) if wanted(value)]
        return self.pick(found[:8]) if found else None

    # -- scopes and nodes

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def add(self, value: Value) -> Value:
        """Enter a value into the open scope."""
        self.types.setdefault(value.node, value.type)
        self.scope.values.append(value)
        self.scope.made.append(value)
        return value

    def visible(self) -> list[Value]:
        """Return what a block inside the open scope may use."""
        named = (ast.Var, ast.Global)
        return [value for value in self.scope.values if self._shared or isinstance(value.node, named)]

    def variable(self, like: Value, name: str = "") -> Value:
        """Return a new variable of the type of ``like``."""
        return like.at(ast.Var(name or self.pick(NAMES), like.type))

    def parameter(self, shape: Sequence[int], dtype: str, span: Range = GRID) -> Value:
        """Add a parameter of ``@main``, visible everywhere below it."""
        value = self.variable(Value(ast.Var(""), tensor(shape, dtype), span))
        self.params.append(value)
        self.types[value.node] = value.type
        self.scopes[0].values.insert(0, value)
        return value

    def bind(self, value: Value) -> Value:
        """Give a value a name with a let."""
        bound = self.variable(value)
        self.use(value)
        self.scope.bindings.append((bound.node, value.node))  # type: ignore[arg-type]
        return self.add(bound)

    def close(self, result: ast.Expression) -> ast.Expression:
        """Close the open scope; return its lets around the result."""
        scope = self.scopes.pop()
        return ast.Let(scope.bindings, result) if scope.bindings else result

    def use(self, *values: Value) -> None:
        """Note that something reads these."""
        self.used.update(value.node for value in values)

    def tuple(self, items: Sequence[Value]) -> Value:
        """Return a tuple of values."""
        self.use(*items)
        kind = ast.TupleType(tuple(item.type for item in items))
        node = ast.Tuple([item.node for item in items])
        self.types[node] = kind
        return Value(node, kind, items=tuple(items))

    def item(self, value: Value, index: int) -> Value:
        """Return one item of a tuple."""
        self.use(value)
        picked = value.items[index].at(ast.TupleGetItem(value.node, index))
        self.types[picked.node] = picked.type
        return picked

    # -- constants

    def scalar(self, number: float, dtype: str) -> Value:
        """Return a scalar constant; floating-point ones must survive six digits."""
        array = np.asarray(number, dtype)
        value = float(array)
        bits = 0 if value.is_integer() else 2 if (value * 4).is_integer() else INEXACT
        return self.constant(array, Range(value, value, bits))

    def constant(self, array: np.ndarray, span: Range) -> Value:
        """Return a constant of an array."""
        node = ast.Constant(array)
        self.types[node] = tensor(array.shape, array.dtype.name)
        return Value(node, self.types[node], span)

    def filled(self, shape: Sequence[int], dtype: str, span: Range = GRID) -> Value:
        """Return a constant tensor of random content."""
        return self.constant(content(np.random.default_rng(self.number(0, 999)), shape, dtype, span), span)

    # -- calls

    def call(
        self,
        operator: str,
        args: Sequence[Value],
        span: Range | Sequence[Range],
        attrs: Mapping[str, Any] | None = None,
    ) -> Value | None:
        """Return a call; None where a result would be too large or out of range.

        The type is that of the interpreter's result on zeros.  A result that is
        a tuple takes one range per item.
        """
        stated = dict(attrs or {})
        plain = {k: v.value if isinstance(v, ast.Constant) else v for k, v in stated.items()}
        with np.errstate(all="ignore"):
            result = TABLE[operator](attributes.filled(operator, plain), *map(_sample, args))
        kind = type_of(result if isinstance(result, tuple) else np.asarray(result))
        spans = [span] if isinstance(span, Range) else list(span)
        parts = list(kind.fields) if isinstance(kind, ast.TupleType) else [kind]
        for part, its in zip(parts, spans):
            assert isinstance(part, ast.TensorType)
            if not allowed(part, its):
                return None
        self.use(*args)
        shared = self._operators.setdefault(operator, ast.Operator(operator))
        node = ast.Call(shared, [arg.node for arg in args], stated)
        assert kind is not None
        self.types[node] = kind
        if isinstance(kind, ast.TupleType):
            items = tuple(Value(node, part, its) for part, its in zip(parts, spans) if part is not None)
            return Value(node, kind, items=items)
        return Value(node, kind, spans[0])


def allowed(kind: ast.TensorType, span: Range) -> bool:
    """Return True where a call may have such a result: small, and exact or in a wide dtype."""
    if int(np.prod([dim or 0 for dim in kind.shape])) > MAX_ELEMENTS or len(kind.shape) > 6:
        return False
    # Halves are computed in other precisions on the way; only exact ones are sure.
    return span.fits(kind.dtype) and (span.exact or kind.dtype != "float16")


def _sample(value: Value) -> Any:
    if value.items:
        return tuple(_sample(item) for item in value.items)
    if isinstance(value.node, ast.Constant):
        return value.node.value
    return np.zeros(value.shape, value.dtype)


def content(random: np.random.Generator, shape: Sequence[int], dtype: str, span: Range) -> np.ndarray:
    """Return a random array of numbers of a range."""
    if not span.exact:
        return np.asarray(random.uniform(span.low, span.high, tuple(shape))).astype(dtype)
    step = 2.0**-span.bits
    low, high = round(span.low / step), round(span.high / step)
    return np.asarray(random.integers(low, high, tuple(shape), endpoint=True) * step).astype(dtype)
