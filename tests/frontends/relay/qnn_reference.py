"""Quantised operators in numpy and Python integers, written from Relay's definitions.

Shares nothing with the converters: whole numbers are Python's, of any size, and
cut to a width where Relay cuts them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def along(value, rank: int, axis: int) -> np.ndarray:
    """Return a scalar or vector in a shape that broadcasts along ``axis``."""
    value = np.asarray(value)
    if value.ndim == 0:
        return value
    shape = [1] * rank
    shape[axis] = -1
    return value.reshape(shape)


def saturate(values: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(values, info.min, info.max).astype(dtype)


def round_away(values: np.ndarray) -> np.ndarray:
    exact = values.astype("float64")
    return (np.sign(exact) * np.floor(np.abs(exact) + 0.5)).astype(values.dtype)


def quantize(x, scale, zero_point, dtype, axis=-1) -> np.ndarray:
    scale = along(np.float32(scale), x.ndim, axis)
    steps = round_away((x / scale).astype("float32")) + along(zero_point, x.ndim, axis).astype("float32")
    steps = np.where(np.isnan(steps), np.inf, steps)
    info = np.iinfo(dtype)
    return np.clip(steps, np.float32(info.min), np.float32(info.max)).astype("int64").astype(dtype)


def dequantize(x, scale, zero_point, axis=-1) -> np.ndarray:
    steps = x.astype("int64") - along(zero_point, x.ndim, axis)
    return steps.astype("int32").astype("float32") * along(np.float32(scale), x.ndim, axis)


def q31(ratio: float) -> tuple[int, int]:
    """Return the mantissa as a number of 31 bits, rounded half up, and the exponent."""
    exact = Fraction(ratio)
    if not exact:
        return 0, 0
    exponent = 0
    while exact >= 1:
        exact, exponent = exact / 2, exponent + 1
    while exact < Fraction(1, 2):
        exact, exponent = exact * 2, exponent - 1
    mantissa = (exact * (1 << 31) * 2 + 1) // 2
    return (int(mantissa), exponent) if mantissa < 1 << 31 else (1 << 30, exponent + 1)


def fixed_point(value: int, ratio: float, rounding: str) -> int:
    """Multiply one whole number by a ratio in fixed point, as 32 bits."""
    mantissa, exponent = q31(ratio)
    product = value * (1 << max(exponent, 0)) * mantissa
    shift = 31 + max(-exponent, 0)
    half = 1 << (shift - 1)
    if rounding == "TONEAREST" and product < 0:
        half -= 1
    result = (product + half) >> shift
    return (result + (1 << 31)) % (1 << 32) - (1 << 31)


def fixed_point_array(values: np.ndarray, ratio, rounding="UPWARD") -> np.ndarray:
    pairs = zip(values.reshape(-1), np.broadcast_to(ratio, values.shape).reshape(-1), strict=True)
    found = [fixed_point(int(value), float(factor), rounding) for value, factor in pairs]
    return np.array(found, "int32").reshape(values.shape)


def requantize(x, source, target, dtype, axis=-1, rounding="UPWARD", compute="int64") -> np.ndarray:
    """``source`` and ``target`` are scale and zero point."""
    scale, zero_point = source
    ratio = np.float64(np.float32(scale)) if np.ndim(scale) == 0 else np.asarray(scale, "f4").astype("f8")
    ratio = along(ratio / np.float64(np.float32(target[0])), x.ndim, axis)
    steps = x.astype("int64") - along(zero_point, x.ndim, axis)
    if compute == "int64":
        value = fixed_point_array(steps, ratio, rounding).astype("int64") + int(target[1])
    else:
        real = x.astype(compute) - along(zero_point, x.ndim, axis).astype(compute)
        real = real * ratio.astype(compute) + np.dtype(compute).type(target[1])
        half = np.dtype(compute).type(0.5)
        real = (
            np.floor(real + half)
            if rounding == "UPWARD"
            else np.trunc(real + np.where(real < 0, -half, half))
        )
        value = real.astype("int64")
    return saturate(value, dtype)


def binary(operator, a, b, left, right, target, axis=-1) -> np.ndarray:
    """``left``, ``right`` and ``target`` are scale and zero point."""
    dtype = str(a.dtype)
    if operator == "mul":
        scale = np.asarray(left[0], "f4") * np.asarray(right[0], "f4")
        product = (a.astype("int64") - along(left[1], a.ndim, axis)) * (
            b.astype("int64") - along(right[1], a.ndim, axis)
        )
        return requantize(product.astype("int32"), (scale, np.int32(0)), target, dtype, axis)
    x = requantize(a, left, target, "int32", axis).astype("int64")
    y = requantize(b, right, target, "int32", axis).astype("int64")
    return saturate(x + y - target[1] if operator == "add" else x - y + target[1], dtype)


def leaky_relu(x, alpha, source, target) -> np.ndarray:
    value = requantize(x, source, target, "int32")
    rest = fixed_point(int(target[1]), 1 - alpha, "UPWARD")
    below = fixed_point_array(value, alpha).astype("int64") + rest
    return saturate(np.where(x.astype("int64") < source[1], below, value), str(x.dtype))


def softmax(x, source, target, axis) -> np.ndarray:
    steps = x.astype("int64") - source[1]
    steps = steps - steps.max(axis=axis, keepdims=True)
    unit = int(round_away(np.float32(1) / np.float32(source[0])))
    logs = steps + (steps >> 1) - (steps >> 4)
    whole = np.clip(-logs // unit, 0, 20)
    rest = logs + whole * unit
    terms = ((rest >> 1) + unit) << (whole.max(axis=axis, keepdims=True) - whole)
    result = ((1 << 30) // terms.sum(axis=axis, keepdims=True) * terms) >> 23
    return requantize(result.astype("int32"), (np.float32(1 / 128), np.int32(0)), target, "int8")


def conv2d(
    x, w, zero_point, weight_zero_point, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1
):
    """NCHW and OIHW; ``weight_zero_point`` broadcasts to the weight."""
    top, left, bottom, right = padding
    x = np.pad(x.astype("int64") - zero_point, ((0, 0), (0, 0), (top, bottom), (left, right)))
    w = w.astype("int64") - weight_zero_point
    outputs, per_group, high, wide = w.shape
    rows = (x.shape[2] - (high - 1) * dilation[0] - 1) // strides[0] + 1
    columns = (x.shape[3] - (wide - 1) * dilation[1] - 1) // strides[1] + 1
    result = np.zeros((x.shape[0], outputs, rows, columns), "int64")
    for i in range(high):
        for j in range(wide):
            top, left = i * dilation[0], j * dilation[1]
            part = x[
                :,
                :,
                top : top + rows * strides[0] : strides[0],
                left : left + columns * strides[1] : strides[1],
            ]
            for o in range(outputs):
                first = o // (outputs // groups) * per_group
                result[:, o] += np.einsum("nihw,i->nhw", part[:, first : first + per_group], w[o, :, i, j])
    return result
