"""The table of operations that may return an operand unchanged, with their conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.operands import axes_of_transpose, call_of, either_order, uniform_of
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.site import dtype_of, op_name, same_shape, shape_of

NEGATIVE_ZERO = RefusalKind("negative-zero", "{operator} with {constant} turns {lost} into {gained}")

_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_EXPONENT = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}


@dataclass(frozen=True)
class Identity:
    """``operand`` is what the call returns, unless ``refusal``.

    ``through`` names the dtype of a cast there and back.
    """

    operand: Any
    refusal: Refusal | None = None
    through: str | None = None


def is_lossless(start: str, through: str) -> bool:
    """Return True where every value of dtype ``start`` survives a cast to ``through``."""
    if start == through or start == "bool":
        return True
    if start in _MANTISSA:
        return (
            through in _MANTISSA
            and _MANTISSA[start] <= _MANTISSA[through]
            and _EXPONENT[start] <= _EXPONENT[through]
        )
    own = _integer_range(start)
    if own is None:
        return False
    low, high = own
    if through in _MANTISSA:
        reach = 2 ** _MANTISSA[through]
        return -reach <= low and high <= reach
    other = _integer_range(through)
    return other is not None and other[0] <= low and high <= other[1]


def _integer_range(dtype: str) -> tuple[int, int] | None:
    if not dtype.startswith(("int", "uint")):
        return (0, 0) if dtype == "bool" else None
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _add(view, call) -> Identity | None:
    for operand, constant in either_order(call):
        zero = uniform_of(view, constant)
        if zero is not None and zero == 0:
            return Identity(operand, _zero_sign(call, zero, wanted_negative=True))
    return None


def _subtract(view, call) -> Identity | None:
    zero = uniform_of(view, call.args[1])
    if zero is None or zero != 0:
        return None
    return Identity(call.args[0], _zero_sign(call, zero, wanted_negative=False))


def _zero_sign(call, zero, wanted_negative: bool) -> Refusal | None:
    if not _is_float(dtype_of(call)) or bool(np.signbit(np.float64(zero))) == wanted_negative:
        return None
    return NEGATIVE_ZERO(operator=op_name(call), constant=str(float(zero)), lost="-0.0", gained="0.0")


def _one(positions: tuple[int, ...], integers_only: bool = False) -> Callable:
    """Make a finder for a call with a constant one at one of ``positions``."""

    def find(view, call) -> Identity | None:
        if integers_only and _is_float(dtype_of(call)):
            return None
        for position in positions:
            one = uniform_of(view, call.args[position])
            if one is not None and one == 1:
                return Identity(call.args[1 - position])
        return None

    return find


def _neutral(lowest: bool) -> Callable:
    """Make a finder for maximum with the lowest value, or minimum with the highest."""

    def find(view, call) -> Identity | None:
        for operand, constant in either_order(call):
            value = uniform_of(view, constant)
            if value is None:
                continue
            dtype = dtype_of(call)
            if _is_float(dtype):
                bound = -np.inf if lowest else np.inf
            else:
                limits = _integer_range(dtype) if dtype != "bool" else (0, 1)
                bound = limits[0 if lowest else 1]
            if value == bound:
                return Identity(operand)
        return None

    return find


def _twice(view, call) -> Identity | None:
    inner = call_of(view, call.args[0], op_name(call))
    return None if inner is None else Identity(inner.args[0])


def _idempotent(view, call) -> Identity | None:
    return None if call_of(view, call.args[0], op_name(call)) is None else Identity(call.args[0])


def _cast(view, call) -> Identity | None:
    if dtype_of(call) == dtype_of(call.args[0]):
        return Identity(call.args[0])
    inner = call_of(view, call.args[0], "relax.astype")
    if inner is None or dtype_of(inner.args[0]) != dtype_of(call):
        return None
    return Identity(inner.args[0], through=dtype_of(inner))


def _unmoved(view, call) -> Identity | None:
    """A reshape, broadcast, tile or repeat to the shape that is there already."""
    shape = shape_of(call)
    return Identity(call.args[0]) if same_shape(shape, shape_of(call.args[0])) else None


def _transpose(view, call) -> Identity | None:
    order = axes_of_transpose(call)
    return Identity(call.args[0]) if order == sorted(order) else None


def _concat(view, call) -> Identity | None:
    parts = view.value(call.args[0])
    return Identity(parts.fields[0]) if isinstance(parts, relax.Tuple) and len(parts.fields) == 1 else None


def _pad(view, call) -> Identity | None:
    return None if any(int(w) for w in call.attrs.pad_width) else Identity(call.args[0])


def _where(view, call) -> Identity | None:
    return Identity(call.args[1]) if call.args[1].same_as(call.args[2]) else None


IDENTITIES: dict[str, Callable] = {
    "relax.add": _add,
    "relax.subtract": _subtract,
    "relax.multiply": _one((0, 1)),
    "relax.divide": _one((1,)),
    "relax.floor_divide": _one((1,), integers_only=True),
    "relax.power": _one((1,)),
    "relax.maximum": _neutral(lowest=True),
    "relax.minimum": _neutral(lowest=False),
    "relax.negative": _twice,
    "relax.logical_not": _twice,
    "relax.bitwise_not": _twice,
    "relax.nn.relu": _idempotent,
    "relax.abs": _idempotent,
    "relax.ceil": _idempotent,
    "relax.floor": _idempotent,
    "relax.round": _idempotent,
    "relax.trunc": _idempotent,
    "relax.astype": _cast,
    "relax.reshape": _unmoved,
    "relax.squeeze": _unmoved,
    "relax.expand_dims": _unmoved,
    "relax.flatten": _unmoved,
    "relax.broadcast_to": _unmoved,
    "relax.tile": _unmoved,
    "relax.repeat": _unmoved,
    "relax.permute_dims": _transpose,
    "relax.concat": _concat,
    "relax.nn.pad": _pad,
    "relax.where": _where,
}
