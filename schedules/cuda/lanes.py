"""Vector copies: which parts of an expression one thread loads as whole vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import as_int, loads, substitute, variables

from .contraction import flat_offset

VECTOR_BYTES = 16
_EXPR = tvm.ir.prim.expr
_LIMITS = {_EXPR.LT: (0, 1), _EXPR.GE: (0, 1), _EXPR.LE: (1, 0), _EXPR.GT: (1, 0)}
"""By how much a comparison's limit moves to stand before the first element of its other half,
for a limit on the right and on the left."""


MAX_BYTES = 16
"""The widest load and store of one thread."""


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element."""
    return max(1, tvm_ffi.dtype(dtype).bits // 8)


@dataclass
class Lanes:
    """A vector of ``width`` elements, its element number in the variable ``lane``."""

    lane: Any
    width: int
    analyzer: Any = field(default_factory=tvm.sym.Analyzer)

    def __post_init__(self):
        dtype = str(self.lane.ty.dtype)
        self.analyzer.bind(self.lane, tvm.ir.Range(tirx.const(0, dtype), tirx.const(self.width, dtype)))

    def first(self, expr):
        """Return an expression at the vector's first element."""
        return substitute(expr, {self.lane: tirx.const(0, str(self.lane.ty.dtype))})

    def is_contiguous(self, load) -> bool:
        """Are the elements of an access neighbours, the first at a multiple of the width?

        TVM's CUDA printer has vectors of 16 bits per truth value: these stay scalar, as
        does what is wider than a thread can load at once.
        """
        dtype = str(load.ty.dtype)
        if dtype == "bool" or self.width * item_bytes(dtype) > MAX_BYTES:
            return False
        if as_int(getattr(load.source.ty, "elem_offset", 0) or 0) != 0:
            return False
        offset = flat_offset(load)
        start = self.first(offset)
        step = self.analyzer.simplify(offset - start - self.lane)
        return as_int(step) == 0 and self._is_multiple(start)

    def is_uniform(self, condition) -> bool:
        """Is a condition the same for all elements of the vector?"""
        condition = self.analyzer.simplify(condition)
        if self.lane not in variables(condition):
            return True
        if isinstance(condition, (_EXPR.And, _EXPR.Or)):
            return self.is_uniform(condition.a) and self.is_uniform(condition.b)
        if isinstance(condition, _EXPR.Not):
            return self.is_uniform(condition.a)
        if isinstance(condition, tvm.ir.Call) and condition.op.name.rpartition(".")[2] == "likely":
            return self.is_uniform(condition.args[0])
        shift = _LIMITS.get(type(condition))
        if shift is None:
            return False
        for moving, limit, by in ((condition.a, condition.b, shift[0]), (condition.b, condition.a, shift[1])):
            if self.lane in variables(limit):
                continue
            start = self.first(moving)
            step = self.analyzer.simplify(moving - start - self.lane)
            return as_int(step) == 0 and self._is_multiple(start - limit - by)
        return False

    def _is_multiple(self, expr) -> bool:
        known = self.analyzer.modular_set(self.analyzer.simplify(expr))
        return known.coeff % self.width == 0 and known.base % self.width == 0

    def is_copy(self, expr) -> bool:
        """Can one vector load bring all elements of ``expr`` (or one choice among such)?"""
        if isinstance(expr, tvm.ir.TensorLoad):
            return self.is_contiguous(expr)
        if is_choice(expr):
            condition, *options = expr.args
            if not self.is_uniform(condition):
                return False
            return all(self.is_copy(o) or (self.lane not in variables(o) and not _calls(o)) for o in options)
        return False

    def has_scalar_load(self, value) -> bool:
        """Does every element of the vector load its own element of global memory in ``value``?"""
        return any(
            str(load.source.scope()) == "global"
            and str(load.ty.dtype) != "bool"
            and any(self.lane in variables(index) for index in load.indices)
            for load in loads(value)
        )

    def take_out(self, value, temporary: Callable[[Any], Any]):
        """Replace what is a vector copy by ``temporary(expression)``, whose element is then used.

        What stands inside of a choice that is no copy itself stays, because it
        may lie out of bounds where it is not chosen.
        """
        if self.width == 1:
            return value
        return self._take(value, temporary)

    def _take(self, node, temporary):
        if isinstance(node, tvm.ir.TensorLoad):
            if str(node.source.scope()) != "global":
                return node
            moves = any(self.lane in variables(i) for i in node.indices)
            return temporary(node) if moves and self.is_copy(node) else node
        if is_choice(node):
            return temporary(node) if self.lane in variables(node) and self.is_copy(node) else node
        return self._children(node, temporary)

    def _children(self, node, temporary):
        if isinstance(node, _EXPR.Cast):
            return tirx.Cast(str(node.ty.dtype), self._take(node.value, temporary))
        if isinstance(node, tirx.Select):
            parts = (node.condition, node.true_value, node.false_value)
            return tirx.Select(*(self._take(part, temporary) for part in parts))
        if isinstance(node, tvm.ir.Call):
            args = [self._take(arg, temporary) for arg in node.args]
            same = all(a.same_as(b) for a, b in zip(args, node.args))
            return node if same else tvm.ir.Call(node.op, args, node.attrs, ret_ty=node.ty)
        if hasattr(node, "a") and hasattr(node, "b"):
            return type(node)(self._take(node.a, temporary), self._take(node.b, temporary))
        if isinstance(node, _EXPR.Not):
            return tirx.Not(self._take(node.a, temporary))
        return node


def is_choice(node) -> bool:
    """Return True for ``if_then_else``, whose options are evaluated only where they are chosen."""
    return isinstance(node, tvm.ir.Call) and node.op.name.rpartition(".")[2] == "if_then_else"


def _calls(node) -> bool:
    return isinstance(node, tvm.ir.Call)


def uniform_choices(expr, lanes: Lanes):
    """Return a copy with the conditions of its choices taken at the first element."""

    def at_first(node):
        if not is_choice(node):
            return node
        condition, *options = node.args
        return tirx.if_then_else(lanes.first(condition), *options)

    return tvm_ffi.structural_map(expr, [(tvm.ir.Call, at_first)], order="post")
