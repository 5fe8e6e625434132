"""Numpy forms of the quantised operators, bit for bit."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from .numpy_elementwise import along, away_from_zero
from .numpy_networks import convolve
from .numpy_table import Attributes, operator

SCALE_BITS = 31


def _narrowed(x: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


def _along(value: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Spread one value, or one per channel."""
    return value.reshape(()) if value.size == 1 else along(value, rank, axis)


@operator("qnn.quantize")
def quantize(attrs: Attributes, x, scale, zero):
    scale, zero = (_along(value, x.ndim, attrs.axis) for value in (scale, zero))
    return _narrowed(away_from_zero(x / scale) + zero, attrs.out_dtype or "int8")


@operator("qnn.dequantize")
def dequantize(attrs: Attributes, x, scale, zero):
    scale, zero = (_along(value, x.ndim, attrs.axis) for value in (scale, zero))
    return ((x.astype("int32") - zero.astype("int32")) * scale).astype(attrs.out_dtype or "float32")


def _scaled(x: np.ndarray, ratio: np.ndarray, rounding: str) -> np.ndarray:
    """Multiply integers by a ratio, held as 31 bits and a shift."""
    fraction, exponent = np.frexp(ratio.astype("float64"))
    factor = away_from_zero(fraction * 2.0**SCALE_BITS).astype("int64")
    overflow = factor == 1 << SCALE_BITS
    factor = np.where(overflow, factor // 2, factor)
    exponent = exponent.astype("int64") + overflow
    shift = np.maximum(-exponent, 0) + SCALE_BITS
    product = (x.astype("int64") << np.maximum(exponent, 0)) * factor
    half = np.int64(1) << (shift - 1)
    if rounding == "TONEAREST":
        half = np.where(product >= 0, half, half - 1)
    return ((product + half) >> shift).astype("int32")


def requantized(x, scale, zero, out_scale, out_zero, dtype, axis=-1, rounding="UPWARD") -> np.ndarray:
    """Bring integers of one scale and zero point to another."""
    moved = x.astype("int32") - _along(zero, x.ndim, axis).astype("int32")
    if not (scale.size == 1 and scale == out_scale):
        ratio = scale.astype("float64") / out_scale.astype("float64")
        moved = _scaled(moved, _along(ratio, x.ndim, axis), rounding)
    return _narrowed(moved.astype("int64") + int(out_zero), dtype)


@operator("qnn.requantize")
def requantize(attrs: Attributes, x, scale, zero, out_scale, out_zero):
    if attrs.compute_dtype not in ("None", "int64"):
        raise NotImplementedError("requantize in floating point")
    rounding = "UPWARD" if attrs.rounding == "None" else attrs.rounding
    return requantized(x, scale, zero, out_scale, out_zero, attrs.out_dtype or "int8", attrs.axis, rounding)


def _to_output(x, scale, zero, out_scale, out_zero) -> np.ndarray:
    if scale == out_scale and zero == out_zero:
        return x.astype("int32")
    return requantized(x, scale, zero, out_scale, out_zero, "int32")


@operator("qnn.add")
def add(attrs: Attributes, a, b, a_scale, a_zero, b_scale, b_zero, out_scale, out_zero):
    total = _to_output(a, a_scale, a_zero, out_scale, out_zero) + _to_output(
        b, b_scale, b_zero, out_scale, out_zero
    )
    return _narrowed(total - out_zero, a.dtype.name)


@operator("qnn.mul")
def mul(attrs: Attributes, a, b, a_scale, a_zero, b_scale, b_zero, out_scale, out_zero):
    product = (a.astype("int32") - a_zero) * (b.astype("int32") - b_zero)
    scale = (a_scale * b_scale).astype("float32")
    return requantized(product, scale, np.zeros((), "int32"), out_scale, out_zero, a.dtype.name)


@operator("qnn.concatenate")
def concatenate(attrs: Attributes, items, scales, zeros, out_scale, out_zero):
    moved = [
        x if s == out_scale and z == out_zero else requantized(x, s, z, out_scale, out_zero, x.dtype.name)
        for x, s, z in zip(items, scales, zeros)
    ]
    return np.concatenate(moved, attrs.axis)


@operator("qnn.dense")
def dense(attrs: Attributes, x, weight, x_zero, weight_zero, x_scale, weight_scale):
    left = x.astype("int32") - x_zero.astype("int32")
    right = weight.astype("int32") - _along(weight_zero, 2, 0).astype("int32")
    return left @ right.T


@operator("qnn.conv2d")
def conv2d(attrs: Attributes, x, weight, x_zero, weight_zero, x_scale, weight_scale):
    if weight_zero.size > 1:
        raise NotImplementedError("one zero point per channel")
    left = x.astype("int32") - x_zero.astype("int32")
    plain = SimpleNamespace(**{**vars(attrs), "out_dtype": "int32"})
    result = convolve(plain, left, weight.astype("int32") - weight_zero.astype("int32"), 2)
    return result.astype(attrs.out_dtype or "int32")
