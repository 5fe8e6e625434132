"""Between floats and quantised values, and between two quantisations.

``real = scale * (quantised - zero_point)``.  The arithmetic is that of Relay's
own lowering on a plain CPU target: fixed point in 64 bits unless the program
asks for a float computation.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from ..table import CannotConvert, Table
from .facts import dtype_of, rank_of
from .qnn_parameters import (
    along,
    axis_in,
    elements,
    limits,
    rounded,
    saturated,
    saturated_float,
    scalar,
    scales,
    shifted,
)
from .shapes import cast

TABLE = Table()

_FRACTION_BITS = 31
_CODES = {"int8": 1, "uint8": 2, "int32": 3}


@TABLE.operator("qnn.quantize")
def quantize(emit, attrs, data, scale, zero_point):
    """Convert to whole steps of the scale, rounded half away from zero, and saturate."""
    rank, dtype = rank_of(data), dtype_of(data)
    if dtype != "float32":
        raise CannotConvert(f"qnn.quantize takes float32, not {dtype}")
    axis = axis_in(attrs.axis, rank) if _by_channel(scale, zero_point) else 0
    steps = rounded(emit, emit(relax.op.divide(data, along(emit, scale, rank, axis))))
    point = cast(emit, along(emit, zero_point, rank, axis), "float32")
    return saturated_float(emit, emit(relax.op.add(steps, point)), _out_dtype(attrs))


@TABLE.operator("qnn.dequantize")
def dequantize(emit, attrs, data, scale, zero_point):
    """Convert to floats: the difference from the zero point in int32, times the scale."""
    rank, dtype = rank_of(data), attrs.word("out_dtype") or "float32"
    limits(dtype_of(data))
    axis = axis_in(attrs.axis, rank) if _by_channel(scale, zero_point) else 0
    steps = cast(emit, shifted(emit, data, zero_point, "int32", axis), "float32")
    real = emit(relax.op.multiply(steps, along(emit, scale, rank, axis)))
    if dtype == "float32":
        return real
    if dtype != "float16":
        raise CannotConvert(f"qnn.dequantize gives float32 or float16, not {dtype}")
    greatest = emit.const(np.finfo("float16").max, "float32")
    least = emit.const(np.finfo("float16").min, "float32")
    return cast(emit, emit(relax.op.maximum(emit(relax.op.minimum(real, greatest)), least)), dtype)


@TABLE.operator("qnn.requantize")
def requantize_call(emit, attrs, data, in_scale, in_zero_point, out_scale, out_zero_point):
    """Convert between two quantisations."""
    return requantize(
        emit,
        data,
        (scales(emit, in_scale, "input_scale"), in_zero_point),
        (scalar(emit, out_scale, "output_scale"), out_zero_point),
        _out_dtype(attrs),
        axis=attrs.axis,
        rounding=_choice(attrs, "rounding", "UPWARD"),
        compute=_choice(attrs, "compute_dtype", "int64"),
    )


def requantize(emit, data, source, target, dtype, axis=-1, rounding="UPWARD", compute="int64"):
    """Return ``data`` of quantisation ``source`` in quantisation ``target`` and ``dtype``.

    ``source`` is a float32 array of one scale or one per channel along ``axis``
    and a zero point (an expression); ``target`` is one scale and a zero point.
    """
    (in_scales, in_zero_point), (out_scale, out_zero_point) = source, target
    limits(dtype)
    if out_scale == 0:
        raise CannotConvert("output_scale is 0")
    if rounding not in ("UPWARD", "TONEAREST"):
        raise CannotConvert(f"rounding {rounding!r} is not known; UPWARD and TONEAREST are")
    ratios = in_scales.astype("float64") / np.float64(out_scale)
    rank = rank_of(data)
    place = axis_in(axis, rank)
    if compute == "int64":
        value = shifted(emit, cast(emit, data, "int32"), in_zero_point, "int32", axis)
        if (ratios != 1).any():
            value = fixed_point_multiply(emit, value, ratios, place, rounding)
        point = out_zero_point
        value = value if _is_zero_scalar(emit, point) else emit(relax.op.add(_int32(emit, point), value))
        return saturated(emit, value, dtype)
    if compute not in ("float32", "float64"):
        raise CannotConvert(f"compute_dtype {compute!r} is not known; int64, float32 and float64 are")
    value = shifted(emit, data, in_zero_point, compute, axis)
    if (ratios != 1).any():
        factor = along(emit, emit.const(ratios, compute), rank, place)
        value = _rounded_product(emit, value, factor)
    if not _is_zero_scalar(emit, out_zero_point):
        point = cast(emit, _int32(emit, out_zero_point), compute)
        value = emit(relax.op.add(value, point))
    half = emit.const(0.5, compute)
    if rounding == "UPWARD":
        value = emit(relax.op.floor(emit(relax.op.add(value, half))))
    else:
        # Half a step away from zero, then truncated, in this very order: near 0.5 the sum rounds.
        below = emit(relax.op.less(value, emit.const(0, compute)))
        value = emit(relax.op.add(value, emit(relax.op.where(below, emit.const(-0.5, compute), half))))
    return saturated(emit, cast(emit, value, "int32"), dtype)


def _rounded_product(emit, value, factor):
    """Return a product that is rounded before anything is added to it.

    A product under a sum becomes one fused multiply-add on CPUs that have it, which
    rounds once; a plain CPU target, by which Relay's results are defined, rounds twice.
    The maximum with the least number changes nothing and stands between the two.
    """
    dtype = dtype_of(value)
    product = emit(relax.op.multiply(value, factor))
    return emit(relax.op.maximum(product, emit.const(np.finfo(dtype).min, dtype)))


def fixed_point(ratio: float) -> tuple[int, int]:
    """Return ``(m, s)`` with ``ratio`` nearly ``m * 2**(s - 31)`` and m of 31 bits."""
    if ratio == 0:
        return 0, 0
    mantissa, exponent = math.frexp(ratio)
    # Half away from zero; exact, since the mantissa has 53 bits.
    scaled = abs(mantissa) * (1 << _FRACTION_BITS)
    whole = int(math.copysign(math.floor(scaled + 0.5), mantissa))
    if abs(whole) == 1 << _FRACTION_BITS:
        return whole // 2, exponent + 1
    return whole, exponent


def fixed_point_multiply(emit, data, ratios: np.ndarray, axis: int = 0, rounding: str = "UPWARD"):
    """Return an int32 tensor times one ratio or one per channel along ``axis``, as int32.

    The product has 64 bits; halves are rounded up (``UPWARD``) or away from zero
    (``TONEAREST``).
    """
    pairs = [fixed_point(float(ratio)) for ratio in ratios.reshape(-1)]
    # A left shift of the operand is one of the factor: both are products modulo 2**64.
    factors = [whole << max(shift, 0) for whole, shift in pairs]
    amounts = [_FRACTION_BITS + max(-shift, 0) for _, shift in pairs]
    if max(amounts) > 63 or max(abs(f) for f in factors) >= 1 << 63:
        raise CannotConvert("the ratio of two scales is out of the range of 64-bit fixed point")

    rank = rank_of(data)

    def wide(values: list[int]):
        array = np.array(values, "int64").reshape(ratios.shape)
        return along(emit, emit.const(array, "int64"), rank, axis)

    up = wide([1 << (amount - 1) for amount in amounts])
    product = emit(relax.op.multiply(cast(emit, data, "int64"), wide(factors)))
    if rounding == "TONEAREST":
        down = wide([(1 << (amount - 1)) - 1 for amount in amounts])
        positive = emit(relax.op.greater_equal(product, emit.const(0, "int64")))
        up = emit(relax.op.where(positive, up, down))
    total = emit(relax.op.right_shift(emit(relax.op.add(product, up)), wide(amounts)))
    return cast(emit, total, "int32")


@TABLE.operator("qnn.simulated_quantize")
def simulated_quantize(emit, attrs, data, code, scale, zero_point):
    """Quantise in the data's own float dtype; ``code`` says to which dtype, 0 to none."""
    rank, dtype = rank_of(data), dtype_of(data)
    axis = axis_in(attrs.axis, rank)
    _check_channels(data, axis, scale, zero_point)
    factor = cast(emit, along(emit, scale, rank, axis), dtype)
    point = cast(emit, along(emit, zero_point, rank, axis), dtype)

    def quantised(name: str):
        low, high = (emit.const(value, dtype) for value in limits(name))
        steps = emit(relax.op.add(rounded(emit, emit(relax.op.divide(data, factor))), point))
        return emit(relax.op.maximum(emit(relax.op.minimum(steps, high)), low))

    return _by_code(emit, code, data, quantised)


@TABLE.operator("qnn.simulated_dequantize")
def simulated_dequantize(emit, attrs, data, code, scale, zero_point):
    """Undo `simulated_quantize` in the data's own float dtype."""
    rank, dtype = rank_of(data), dtype_of(data)
    axis = axis_in(attrs.axis, rank)
    _check_channels(data, axis, scale, zero_point)

    def real(name: str):
        point = cast(emit, along(emit, zero_point, rank, axis), dtype)
        factor = cast(emit, along(emit, scale, rank, axis), dtype)
        return emit(relax.op.multiply(emit(relax.op.subtract(data, point)), factor))

    return _by_code(emit, code, data, real)


def _by_code(emit, code, data, compute):
    known = emit.array(code)
    if known is not None:
        names = [name for name, number in _CODES.items() if number == int(known.reshape(()))]
        return compute(names[0]) if names else data
    single = code if rank_of(code) == 0 else emit(relax.op.reshape(code, []))
    result = data
    for name, number in _CODES.items():
        chosen = emit(relax.op.equal(single, emit.const(number, dtype_of(single))))
        result = emit(relax.op.where(chosen, compute(name), result))
    return result


def _check_channels(data, axis: int, *parameters) -> None:
    for parameter in parameters:
        if rank_of(parameter) > 1:
            raise CannotConvert("a scale or zero point is neither a scalar nor a vector of channels")
        if rank_of(parameter) == 1 and (length := parameter.ty.shape[0]) != 1:
            if not _same_dim(length, data.ty.shape[axis]):
                raise CannotConvert(f"{length} scales or zero points do not fit the channels")


def _same_dim(a, b) -> bool:
    return a.same_as(b) or (hasattr(a, "value") and hasattr(b, "value") and int(a) == int(b))


def _by_channel(*parameters) -> bool:
    return any(elements(parameter) != 1 for parameter in parameters)


def _int32(emit, point):
    return cast(emit, along(emit, point, 0, 0), "int32")


def _is_zero_scalar(emit, point) -> bool:
    value = emit.array(point)
    return value is not None and value.size == 1 and not value.any()


def _out_dtype(attrs) -> str:
    dtype = attrs.word("out_dtype")
    if dtype is None:
        raise CannotConvert("out_dtype is missing")
    return dtype


def _choice(attrs, name: str, default: str) -> str:
    value = attrs.word(name)
    return default if value in (None, "None") else value
