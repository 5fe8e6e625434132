"""Bind what converters make, under the name of the source's call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvmpass.core.constants import constant_array, evaluate, make_constant
from tvmpass.core.source import with_origin

from .dims import Words, aligned
from .table import Value

_WHOLE = 1 << 22
"""Bytes of a value up to which `RelaxEmitter.array` evaluates; larger ones are data, not shapes."""


class RelaxEmitter:
    """The `table.Emitter` of a conversion: bindings go to the block that is open in ``builder``."""

    def __init__(self, builder: relax.BlockBuilder):
        self.builder = builder
        self.origin = ""
        self.words: Words = {}
        self._bound: dict[Any, Any] = {}
        self._arrays: dict[Any, np.ndarray | None] = {}

    def __call__(self, expr, name: str = "") -> Any:
        """Bind ``expr`` and return the variable; variables and constants are returned as they are."""
        if isinstance(expr, (tvm.ir.Var, tvm.ir.GenericConst)):
            return expr
        if isinstance(expr, (tuple, list)):
            expr = relax.Tuple([self(item) for item in expr])
        if isinstance(expr, relax.Call):
            args = [
                self(arg) if isinstance(arg, (relax.Call, relax.TupleGetItem)) else arg for arg in expr.args
            ]
            if any(new is not old for new, old in zip(args, expr.args)):
                expr = relax.Call(expr.op, args, expr.attrs, list(expr.ty_args), expr.span)
            expr = aligned(self.builder, expr, self.words)
        var = self.builder.emit(with_origin(expr, [self.origin]), name)
        self._bound[var] = expr
        return var

    def te(self, function: Callable, *args, name: str) -> Any:
        """Bind a kernel: ``function`` gets the TE tensors of ``args`` and returns one or a list.

        Of several results a Python tuple is returned.  ``name`` names the kernel
        by its computation.
        """
        result = self(self.builder.call_te(function, *args, primfunc_name_hint=name), name)
        return self.items(result)

    def items(self, value) -> Value:
        """Return a bound tuple as a Python tuple of its items, anything else as it is."""
        if not isinstance(value.ty, relax.TupleType):
            return value
        return tuple(
            self.items(self(relax.TupleGetItem(value, index))) for index in range(len(value.ty.fields))
        )

    def const(self, value, dtype: str) -> Any:
        """Return a constant of exactly this dtype."""
        array = np.asarray(value).astype(_numpy_dtype(dtype), copy=False)
        if array.size == 0:  # TVM stores it, and cannot load it again
            return self(relax.op.zeros(array.shape, dtype))
        return make_constant(array)

    def array(self, expr) -> np.ndarray | None:
        """Return the value of an expression known now, else None.

        Known are constants, bound parameters and what small operators make of them.
        """
        stack = [expr]
        while stack:
            top = stack[-1]
            needed = [] if self._known(top) else [item for item in self._reads(top) if not self._known(item)]
            if needed:
                stack += needed
                continue
            stack.pop()
            if not self._known(top):
                self._arrays[top] = self._evaluate(top)
        return self._value(expr)

    def _known(self, expr) -> bool:
        return isinstance(expr, tvm.ir.GenericConst) or expr in self._arrays

    def _value(self, expr) -> np.ndarray | None:
        return constant_array(expr) if isinstance(expr, tvm.ir.GenericConst) else self._arrays[expr]

    def _reads(self, var) -> list[Any]:
        """Return the tensors whose values decide that of ``var``; none where it cannot be known."""
        call = self._operation(var)
        return [] if call is None else [item for arg in call.args for item in _tensors(arg)]

    def _operation(self, var) -> relax.Call | None:
        """Return the operator's call that ``var`` is bound to, where its result is small."""
        call = self._bound.get(var)
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op) or not _small(var):
            return None
        return call

    def _evaluate(self, var) -> np.ndarray | None:
        call = self._operation(var)
        if call is None or any(self._value(item) is None for item in self._reads(var)):
            return None
        arrays: list[Any] = []
        for arg in call.args:
            values = [self._value(item) for item in _tensors(arg)]
            arrays.append(values if isinstance(arg, relax.Tuple) else values[0] if values else None)
        typed = relax.Call(call.op, list(call.args), call.attrs, list(call.ty_args))
        relax.expr._update_type(typed, var.ty)
        return evaluate(typed, arrays)


def _tensors(arg) -> Iterable[Any]:
    if isinstance(arg, relax.Tuple):
        return [item for item in arg.fields if isinstance(item, (tvm.ir.Var, tvm.ir.GenericConst))]
    return [arg] if isinstance(arg, (tvm.ir.Var, tvm.ir.GenericConst)) else []


def _small(var) -> bool:
    """Say whether the value is a tensor of stated size that is worth knowing."""
    ty = var.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    size = 8
    for dim in ty.shape.values:
        if not isinstance(dim, tirx.IntImm):
            return False
        size *= int(dim)
    return size <= _WHOLE


def _numpy_dtype(dtype: str):
    if dtype == "bfloat16" or dtype.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)
