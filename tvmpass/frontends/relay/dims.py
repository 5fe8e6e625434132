"""Dims that an operator needs to be equal and that are known at run time only.

TVM deduces a product's type without them; its kernel would then read past the
end of the smaller operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import tvm
from tvm import relax, tirx

from .table import CannotConvert, Value
from .types import flat, symbols

_BROADCASTS = {
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
        *("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("left_shift", "right_shift", "where"),
    )
}

_LATE = (
    "; it needs sizes to agree that a loop, a branch or data give at run time: "
    "write sizes in place of ? in the program's types"
)

Words = Mapping[Any, list[str]]
"""Of each symbol the dims of inputs that it stands for."""


def advice(values: Iterable[Value], words: Words) -> str:
    """Say which open dims of inputs meet among the values, and how to state them; else nothing."""
    found: dict[Any, None] = {}
    for value in flat(tuple(values)):
        found.update(dict.fromkeys(symbols(getattr(value, "ty", None))))
    met = [var for var in found if var in words]
    if len(found) > max(len(met), 1):
        return _LATE
    if len(met) < 2:
        return ""
    dims = [words[var][0] for var in met]
    if len(dims) > 2:
        which = f"some of {', '.join(dims[:-1])} and {dims[-1]}"
        return f"; it needs {which} to agree: give them sizes, or equal ones the same name (--shape)"
    return f"; it needs {' and '.join(dims)} to agree: give both a size or the same name (--shape)"


def aligned(builder: relax.BlockBuilder, call: relax.Call, words: Words) -> relax.Call:
    """Return a product whose summed dims are one size: a size known of one operand is checked of the other.

    Raises `CannotConvert` where both are unknown and may differ, and where an
    open size is broadcast with a known one.  Other calls are returned as they are.
    """
    _refuse_open_broadcast(call, words)
    pair = _summed(call)
    if pair is None:
        return call
    args = list(call.args)
    sizes = [_dims(args[which])[axis] for which, axis in enumerate(pair)]
    known = [isinstance(size, tirx.IntImm) for size in sizes]
    if all(known) or tvm.sym.Analyzer().can_prove_equal(*sizes):
        return call
    if not any(known):
        raise CannotConvert(f"the sizes {sizes[0]} and {sizes[1]} may differ{advice(args, words)}")
    open_one = known.index(False)
    shape = _dims(args[open_one])
    shape[pair[open_one]] = sizes[1 - open_one]
    ty = relax.TensorType(shape, str(args[open_one].ty.dtype))
    args[open_one] = builder.match_cast(args[open_one], ty)
    return relax.Call(call.op, args, call.attrs, list(call.ty_args), call.span)


def _refuse_open_broadcast(call: relax.Call, words: Words) -> None:
    """Refuse an open size beside a known one other than 1: of the result's shape TVM makes no kernel."""
    name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
    if name not in _BROADCASTS:
        return
    types = [arg.ty for arg in call.args]
    if not all(isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in types):
        return
    for sizes in zip_longest(*(reversed(_dims(arg)) for arg in call.args)):
        known = [int(size) for size in sizes if isinstance(size, tirx.IntImm) and int(size) != 1]
        for size in sizes if known else ():
            if size is None or isinstance(size, tirx.IntImm):
                continue
            if tvm.sym.Analyzer().can_prove_equal(size, known[0]):
                continue
            if not (isinstance(size, tirx.Var) and size in words):
                raise CannotConvert(f"an open size meets the size {known[0]}{_LATE}")
            raise CannotConvert(
                f"{words[size][0]} is open and meets the size {known[0]}:"
                f" give it a size, {known[0]} or 1 (--shape)"
            )


def _dims(value) -> list[Any]:
    return list(value.ty.shape.values)


def _summed(call: relax.Call) -> tuple[int, int] | None:
    """Return the axes of the two operands that are summed over together, where their sizes are stated."""
    name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
    if name != "relax.matmul" and not name.startswith("relax.nn.conv"):
        return None
    if not all(isinstance(arg.ty, relax.TensorType) for arg in call.args[:2]):
        return None
    if not all(isinstance(arg.ty.shape, relax.ShapeExpr) for arg in call.args[:2]):
        return None
    if name == "relax.matmul":
        return call.args[0].ty.ndim - 1, max(call.args[1].ty.ndim - 2, 0)
    if int(call.attrs.groups) != 1:
        return None  # checked by TVM where the sizes are stated
    axes = str(call.attrs.data_layout).find("C"), str(call.attrs.kernel_layout).find("I")
    return axes if min(axes) >= 0 else None
