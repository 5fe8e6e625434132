"""Keep TVM's simplifier from treating floats as real numbers.

TVM simplifies ``(x + c) - c`` to ``x``, ``x - x`` and ``x * 0`` to 0, ``x + 0.0`` to
``x`` and ``not x < y`` to ``y <= x``, all of them wrong for rounded numbers, NaN,
infinities or -0.0.  `guard` hides such operations in calls that the simplifier does
not know and the vectoriser takes; TVM's LowerIntrin puts the operations back after
the last simplification.  LLVM itself keeps to IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Op
from tvm.ir.op import register_op_attr

GUARD_VERSION = 1
"""Counted up with each change of what `guard` hides: compiled kernels are kept by it."""

_PURE = 1
_HIDDEN: dict[type, str] = {
    kind: f"tirx.tvmpass_{kind.__name__.lower()}"
    for kind in (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.EQ, tirx.Not)
}
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def _register(kind: type, name: str) -> None:
    register_op_attr(name, "TVectorizable", True)
    register_op_attr(name, "TCallEffectKind", _PURE)
    register_op_attr(name, "TScriptPrinterName", name.removeprefix("tirx."))
    tirx.op.register_intrin_lowering(name, "default", f=lambda call: kind(*call.args))


for _kind, _name in _HIDDEN.items():
    _register(_kind, _name)


def _is_float(expr) -> bool:
    # bfloat16 and float8 are computed in float32, by a pass that knows its operations only.
    return str(expr.ty.dtype).startswith(("float16", "float32", "float64"))


def _is_zero(expr) -> bool:
    return isinstance(expr, tirx.FloatImm) and expr.value == 0


def _compares_floats(expr) -> bool:
    if isinstance(expr, (tirx.And, tirx.Or)):
        return _compares_floats(expr.a) or _compares_floats(expr.b)
    if isinstance(expr, tirx.Not):
        return _compares_floats(expr.a)
    if isinstance(expr, tvm.ir.Call):
        return any(expr.op.same_as(Op.get(_HIDDEN[kind])) for kind in (tirx.EQ, tirx.Not))
    return isinstance(expr, _COMPARISONS) and _is_float(expr.a)


_IN_DANGER: dict[type, Callable[..., bool]] = {
    tirx.Sub: _is_float,
    tirx.Add: lambda e: _is_float(e) and (_is_zero(e.a) or _is_zero(e.b)),
    tirx.Mul: lambda e: _is_float(e) and (_is_zero(e.a) or _is_zero(e.b)),
    tirx.Div: lambda e: _is_float(e) and _is_zero(e.a),
    tirx.EQ: lambda e: _is_float(e.a) and tvm_ffi.structural_equal(e.a, e.b),
    tirx.Not: lambda e: _compares_floats(e.a),
}


def _hide(expr):
    kind = type(expr)
    if not _IN_DANGER[kind](expr):
        return expr
    args = [expr.a] if kind is tirx.Not else [expr.a, expr.b]
    return tirx.call_intrin(str(expr.ty.dtype), _HIDDEN[kind], *args)


def guard(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel in a form that keeps its float arithmetic as written."""
    body = tvm_ffi.structural_map(function.body, [(kind, _hide) for kind in _HIDDEN], order="post")
    return function if body.same_as(function.body) else function.with_body(body)


def guard_module(mod: tvm.IRModule) -> tvm.IRModule:
    """Return ``mod`` with every kernel guarded."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            result.update_func(variable, guard(function))
    return result
