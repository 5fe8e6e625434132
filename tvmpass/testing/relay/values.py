"""What a random program knows of its values: type, range, and whether they are exact.

Two implementations of ``exp`` differ in the last digit; a comparison, a rounding
or a sort after it may then differ altogether.  So a program is built from values
that know whether every implementation computes the same bits: multiples of
``2**-bits`` that are small enough for their dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvmpass.frontends.relay import ast

DIGITS = {"float16": 11, "float32": 24, "float64": 53}
LIMIT = 512.0
"""No floating-point value of a program may be larger, so that errors stay small."""

INEXACT = -1


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, multiples of ``2**-bits`` unless that is `INEXACT`."""

    low: float
    high: float
    bits: int = 0

    @property
    def exact(self) -> bool:
        return self.bits != INEXACT

    @property
    def size(self) -> float:
        """Return the largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def fits(self, dtype: str) -> bool:
        """Return whether a value of this range can be held by ``dtype``; exact ones exactly."""
        if dtype == "bool":
            return self.low >= 0 and self.high <= 1
        if dtype not in DIGITS:
            info = np.iinfo(dtype)
            return info.min <= self.low and self.high <= info.max
        if self.size > LIMIT:
            return False
        return not self.exact or self.size * 2.0**self.bits < 2 ** DIGITS[dtype]

    def covers(self, other: Range) -> bool:
        """Return whether every value of the other range is one of this."""
        exact = not self.exact or (other.exact and other.bits <= self.bits)
        return exact and self.low <= other.low and other.high <= self.high

    def joined(self, other: Range) -> Range:
        """Return the range of values that come from either."""
        bits = max(self.bits, other.bits) if self.exact and other.exact else INEXACT
        return Range(min(self.low, other.low), max(self.high, other.high), bits)

    def inexact(self) -> Range:
        return Range(self.low, self.high, INEXACT)


@dataclass(frozen=True, eq=False)
class Value:
    """A node of the program with what is known of it.

    A tuple has ``items``; a function has ``params`` and ``result``, which are
    values too (of no node that may be used).
    """

    node: ast.Expression
    type: ast.Type
    range: Range = Range(0, 0)
    items: tuple[Value, ...] = ()
    params: tuple[Value, ...] = ()
    result: Value | None = None

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.type, ast.TensorType)

    @property
    def shape(self) -> tuple[int, ...]:
        assert isinstance(self.type, ast.TensorType)
        return tuple(int(dim or 0) for dim in self.type.shape)

    @property
    def dtype(self) -> str:
        assert isinstance(self.type, ast.TensorType)
        return self.type.dtype

    @property
    def is_float(self) -> bool:
        return self.is_tensor and self.dtype in DIGITS

    @property
    def is_integer(self) -> bool:
        return self.is_tensor and self.dtype not in DIGITS and self.dtype != "bool"

    def at(self, node: ast.Expression) -> Value:
        """Return the same knowledge of another node."""
        return Value(node, self.type, self.range, self.items, self.params, self.result)

    def covers(self, other: Value) -> bool:
        """Return whether the other value can stand where this was assumed."""
        if self.type != other.type:
            return False
        if self.items:
            return all(mine.covers(its) for mine, its in zip(self.items, other.items))
        return self.range.covers(other.range)


def product(a: Range, b: Range) -> Range:
    """Return the range of a product."""
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners), a.bits + b.bits if a.exact and b.exact else INEXACT)


def total(a: Range, b: Range) -> Range:
    """Return the range of a sum."""
    bits = max(a.bits, b.bits) if a.exact and b.exact else INEXACT
    return Range(a.low + b.low, a.high + b.high, bits)


def negated(a: Range) -> Range:
    """Return the range of the negative."""
    return Range(-a.high, -a.low, a.bits)


def repeated(a: Range, count: int) -> Range:
    """Return the range of a sum of ``count`` values (any partial sum stays in it)."""
    return Range(min(a.low * count, a.low, 0), max(a.high * count, a.high, 0), a.bits)


def tensor(shape: Any, dtype: str) -> ast.TensorType:
    """Return a tensor type."""
    return ast.TensorType(tuple(int(dim) for dim in shape), dtype)
