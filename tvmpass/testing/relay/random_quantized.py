"""Random calls of quantised operators; everything here is exact."""

from __future__ import annotations

import math

import numpy as np

from .building import Builder
from .random_networks import shaped
from .values import INEXACT, Range, Value

FULL = {"int8": Range(-128, 127), "uint8": Range(0, 255)}
SCALES = (0.05, 0.1, 0.2, 0.25, 0.31)


def _scale(b: Builder) -> Value:
    return b.scalar(b.pick(SCALES), "float32")


def _zero(b: Builder) -> Value:
    return b.scalar(b.number(-4, 5), "int32")


def quantised(b: Builder, x: Value) -> Value | None:
    """Quantise floats; the scale is a power of two, so that halves are decided alike."""
    if not (x.is_float and x.dtype == "float32" and x.range.exact):
        return None
    dtype = b.pick(["int8", "uint8"])
    scale = b.scalar(b.pick([0.25, 0.5]), "float32")
    return b.call("qnn.quantize", [x, scale, _zero(b)], FULL[dtype], {"out_dtype": dtype})


def dequantised(b: Builder, x: Value) -> Value | None:
    if x.dtype not in FULL:
        return None
    span = Range(-30, 30, INEXACT)
    return b.call("qnn.dequantize", [x, b.scalar(0.1, "float32"), _zero(b)], span, {"out_dtype": "float32"})


def requantised(b: Builder, x: Value) -> Value | None:
    if x.dtype not in ("int32", *FULL) or not x.shape or x.range.size > 1e8:
        return None
    dtype = b.pick(["int8", "uint8"])
    attrs: dict = {"out_dtype": dtype}
    scale, zero = _scale(b), _zero(b)
    if x.dtype == "int32" and b.chance():
        axis = b.number(0, len(x.shape) - 1)
        numbers = [b.pick(SCALES) for _ in range(x.shape[axis])]
        scale = b.constant(np.array(numbers, "float32"), Range(0, 1, INEXACT))
        zero = b.scalar(0, "int32")
        attrs["axis"] = axis
    elif b.chance(3):
        attrs["rounding"] = "TONEAREST"
    return b.call("qnn.requantize", [x, scale, zero, _scale(b), _zero(b)], FULL[dtype], attrs)


def combined(b: Builder, x: Value) -> Value | None:
    if x.dtype not in FULL:
        return None
    y = b.find(lambda v: v.is_tensor and v.type == x.type) or x
    if b.chance(3) and x.shape:
        axis = b.number(0, len(x.shape) - 1)
        scales, zeros = b.tuple([_scale(b), _scale(b)]), b.tuple([_zero(b), _zero(b)])
        args = [b.tuple([x, y]), scales, zeros, _scale(b), _zero(b)]
        return b.call("qnn.concatenate", args, FULL[x.dtype], {"axis": axis})
    args = [x, y, _scale(b), _zero(b), _scale(b), _zero(b), _scale(b), _zero(b)]
    return b.call(b.pick(["qnn.add", "qnn.mul"]), args, FULL[x.dtype])


def _weighted(b: Builder, weight: Value) -> list[Value]:
    return [weight, _zero(b), b.scalar(b.number(-3, 3), "int32"), _scale(b), _scale(b)]


def products(b: Builder, x: Value) -> Value | None:
    if x.dtype not in FULL or len(x.shape) not in (2, 4):
        source = shaped(b, x, b.pick([2, 4]))
        made = quantised(b, source) if source is not None else None
        if made is None:
            return None
        x = b.add(made)
    if len(x.shape) == 2:
        rows = b.number(1, 5)
        weight = b.filled([rows, x.shape[1]], "int8", Range(-100, 100))
        span = Range(-40_000 * x.shape[1], 40_000 * x.shape[1])
        return b.call("qnn.dense", [x, *_weighted(b, weight)], span, {"units": rows, "out_dtype": "int32"})
    _, channels, height, width = x.shape
    outputs, kernel = b.number(1, 4), [min(3, height), min(3, width)]
    weight = b.filled([outputs, channels, *kernel], "int8", Range(-100, 100))
    attrs: dict = {"channels": outputs, "kernel_size": kernel, "out_dtype": "int32"}
    attrs["padding"] = b.pick([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
    if b.chance():
        attrs["strides"] = [2, 2]
    bound = 40_000 * channels * math.prod(kernel)
    return b.call("qnn.conv2d", [x, *_weighted(b, weight)], Range(-bound, bound), attrs)


MAKERS = (products, products, requantised, combined, quantised, dequantised)
