"""Quantised curves (tanh, exp, ...): one table of 256 results."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ..table import CannotConvert, Table
from .facts import dtype_of
from .qnn_parameters import limits, scalar
from .shapes import cast

TABLE = Table()

Curve = Callable[[np.ndarray], np.ndarray]


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(float(value)) for value in x], "float32")


def _hard_swish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x + np.float32(3), np.float32(0), np.float32(6)) / np.float32(6)


_CURVES: dict[str, Curve] = {
    "qnn.tanh": np.tanh,
    "qnn.exp": np.exp,
    "qnn.sqrt": np.sqrt,
    "qnn.rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "qnn.erf": _erf,
    "qnn.sigmoid": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
    "qnn.hardswish": _hard_swish,
    "qnn.log": np.log,
    "qnn.abs": np.abs,
}
"""float32 in, float32 out, as Relay fills its own tables."""


def results(curve: Curve, dtype: str, source: tuple[float, int], target: tuple[float, int]) -> np.ndarray:
    """Return the quantised result of each value of ``dtype``, from the least to the greatest.

    ``source`` and ``target`` are scale and zero point.  NaN becomes the greatest value.
    """
    low, high = limits(dtype)
    steps = np.arange(low, high + 1, dtype="int32") - np.int32(source[1])
    with np.errstate(all="ignore"):
        real = curve(steps.astype("float32") * np.float32(source[0])).astype("float32")
        scaled = real / np.float32(target[0])
        whole = np.trunc(scaled)
        whole = np.where(np.abs(scaled - whole) >= 0.5, whole + np.sign(scaled), whole)
        value = whole + np.float32(target[1])
    value = np.where(value < high, value, np.float32(high))
    return np.where(value > low, value, np.float32(low)).astype(dtype)


def _convert(name: str, curve: Curve) -> None:
    @TABLE.operator(name)
    def lookup(emit, attrs, data, in_scale, in_point, out_scale, out_point):
        dtype = dtype_of(data)
        if dtype not in ("int8", "uint8"):
            raise CannotConvert(f"{name} takes int8 or uint8, not {dtype}")
        source = (scalar(emit, in_scale, "scale"), int(scalar(emit, in_point, "zero_point")))
        target = (scalar(emit, out_scale, "output_scale"), int(scalar(emit, out_point, "output_zero_point")))
        table = emit.const(results(curve, dtype, source, target), dtype)
        index = cast(emit, data, "int32")
        if (low := limits(dtype)[0]) != 0:
            index = emit(relax.op.subtract(index, emit.const(low, "int32")))
        return relax.op.take(table, index, axis=0, mode="fast")


for _name, _curve in _CURVES.items():
    _convert(_name, _curve)
