"""Compute equal values once.

before: ``a = add(x, y); b = add(y, x); c = multiply(a, b)``
after:  ``a = add(x, y); c = multiply(a, a)``

Always pays.  Two bindings are equal where operator, attributes, result type and
operands agree; operands of a commutative operator may come in either order, and
constants are compared by dtype, shape and bytes, so that +0.0 and -0.0 differ
and NaNs with equal bits do not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvmpass.core.analysis.purity import is_repeatable
from tvmpass.core.legality import CROSSES_DATAFLOW_BLOCK, IMPURE
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, op_name

COMMUTATIVE = frozenset(
    "relax." + name
    for name in (
        "add",
        "multiply",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    )
)
"""With NaN too: both orders give NaN (which NaN's bits come out is not promised)."""


@dataclass(frozen=True)
class CommonSubexpressions(SimplifyRule):
    """Compute equal values once."""

    refusals: ClassVar = (IMPURE, CROSSES_DATAFLOW_BLOCK)

    def match(self, view):
        """Yield every binding that repeats an earlier one (``first``)."""
        numbers = _Numbers(view)
        for var, value in view.bindings.items():
            if var in view.match_casts or not isinstance(
                value, (relax.Call, relax.TupleGetItem, relax.Tuple)
            ):
                continue
            first = numbers.first_equal(var, value)
            if first is None:
                continue
            site = Site.make(self, view, var, {var}, {"first": first, "again": var})
            yield site
            if self.check(site) is None:
                numbers.same[var] = numbers.same.get(first, first)

    def check(self, site):
        view, value = site.view, site.view.bindings[site.root]
        if not is_repeatable(value):
            return IMPURE(operator=op_name(value) or "a call")
        first = site["first"]
        if isinstance(first, relax.DataflowVar) and view.block_of[first] != view.block_of[site.root]:
            return CROSSES_DATAFLOW_BLOCK(value=site.name("first"), other=site.name("again"))
        return None

    def rewrite(self, site):
        return site["first"]


class _Numbers:
    """Finds the first binding equal to a given one, seeing through accepted repeats."""

    def __init__(self, view):
        self.view = view
        self.same: dict[relax.Var, relax.Var] = {}
        self._seen: dict[str, list[relax.Var]] = {}
        self._constants: dict[object, str] = {}
        self._params = {p: f"param{i}" for i, p in enumerate(view.function.params)}

    def first_equal(self, var, value):
        """Return the earlier variable with an equal value, else remember this one."""
        group = self._seen.setdefault(self._key(value), [])
        for earlier in group:
            if self._equal(self.view.bindings[earlier], value) and _types_equal(earlier, var):
                return earlier
        group.append(var)
        return None

    def _key(self, value) -> str:
        if isinstance(value, relax.Call):
            tokens = [self._token(a) for a in value.args]
            if op_name(value) in COMMUTATIVE:
                tokens.sort()
            return f"{op_name(value) or self._token(value.op)}({';'.join(tokens)})"
        if isinstance(value, relax.TupleGetItem):
            return f"{self._token(value.tuple_value)}[{value.index}]"
        return self._token(value)

    def _token(self, expr) -> str:
        if isinstance(expr, relax.Var):
            expr = self.same.get(expr, expr)
            return self._params.get(expr) or f"%{self.view.order.get(expr, expr.name)}"
        if isinstance(expr, tvm.ir.GenericConst):
            if expr not in self._constants:
                array = expr.value.numpy()
                digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
                self._constants[expr] = f"{array.dtype}{array.shape}{digest}"
            return self._constants[expr]
        if isinstance(expr, relax.Tuple):
            return "(" + ",".join(self._token(e) for e in expr.fields) + ")"
        return str(expr)

    @staticmethod
    def _equal(a, b) -> bool:
        if not isinstance(a, relax.Call):
            return True
        if (a.attrs is None) != (b.attrs is None):
            return False
        return (a.attrs is None or tvm_ffi.structural_equal(a.attrs, b.attrs)) and all(
            tvm_ffi.structural_equal(x, y) for x, y in zip(a.ty_args, b.ty_args)
        )


def _types_equal(a, b) -> bool:
    return tvm_ffi.structural_equal(a.ty, b.ty)
