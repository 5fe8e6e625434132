"""Quantised sums, products, concatenation, leaky ReLU, softmax and average pooling."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from ..table import CannotConvert, Table
from . import pool
from .facts import dtype_of, rank_of
from .qnn_parameters import along, axis_in, limits, same, saturated, scalar, scales, shifted
from .qnn_quantize import fixed_point_multiply, requantize
from .shapes import cast

TABLE = Table()


@TABLE.operator("qnn.add")
def add(emit, attrs, lhs, rhs, *parameters):
    """Add in the quantisation of the result."""
    left, right, point = _in_result(emit, attrs, lhs, rhs, *parameters)
    total = emit(relax.op.subtract(emit(relax.op.add(left, right)), point))
    return saturated(emit, total, dtype_of(lhs))


@TABLE.operator("qnn.subtract")
def subtract(emit, attrs, lhs, rhs, *parameters):
    """Subtract in the quantisation of the result."""
    left, right, point = _in_result(emit, attrs, lhs, rhs, *parameters)
    total = emit(relax.op.add(emit(relax.op.subtract(left, right)), point))
    return saturated(emit, total, dtype_of(lhs))


def _in_result(emit, attrs, lhs, rhs, lhs_scale, lhs_point, rhs_scale, rhs_point, out_scale, out_point):
    """Return both operands in the result's quantisation in int32, and its zero point."""
    target = (scalar(emit, out_scale, "output_scale"), out_point)

    def converted(data, scale, point, axis, name):
        source = (scales(emit, scale, f"{name}_scale"), point)
        return requantize(emit, data, source, target, "int32", axis)

    left = converted(lhs, lhs_scale, lhs_point, attrs.lhs_axis, "lhs")
    right = converted(rhs, rhs_scale, rhs_point, attrs.rhs_axis, "rhs")
    return left, right, cast(emit, along(emit, out_point, 0, 0), "int32")


@TABLE.operator("qnn.mul")
def mul(emit, attrs, lhs, rhs, lhs_scale, lhs_point, rhs_scale, rhs_point, out_scale, out_point):
    """Multiply in int32; the product has the product of the scales, in float32."""
    left_scales = scales(emit, lhs_scale, "lhs_scale")
    right_scales = scales(emit, rhs_scale, "rhs_scale")
    if left_scales.shape != right_scales.shape:
        raise CannotConvert("lhs_scale and rhs_scale are both scalars or both one value per channel")
    if left_scales.ndim and attrs.lhs_axis != attrs.rhs_axis:
        raise CannotConvert("lhs_axis and rhs_axis differ")
    left = shifted(emit, lhs, lhs_point, "int32", attrs.lhs_axis)
    right = shifted(emit, rhs, rhs_point, "int32", attrs.rhs_axis)
    source = (np.asarray(left_scales * right_scales, "float32"), emit.const(0, "int32"))
    target = (scalar(emit, out_scale, "output_scale"), out_point)
    product = emit(relax.op.multiply(left, right))
    axis = attrs.lhs_axis if left_scales.ndim else -1
    return requantize(emit, product, source, target, dtype_of(lhs), axis)


@TABLE.operator("qnn.concatenate")
def concatenate(emit, attrs, data, in_scales, in_points, out_scale, out_point):
    """Convert each tensor to the result's quantisation, then concatenate."""
    if not (len(data) == len(in_scales) == len(in_points)):
        raise CannotConvert("there must be one scale and one zero point per tensor")
    target = (scalar(emit, out_scale, "output_scale"), out_point)
    parts = []
    for tensor, scale, point in zip(data, in_scales, in_points, strict=True):
        if not same(emit, [(scale, out_scale), (point, out_point)]):
            source = (scales(emit, scale, "input_scales"), point)
            tensor = requantize(emit, tensor, source, target, dtype_of(tensor))
        parts.append(tensor)
    return relax.op.concat(parts, axis=attrs.axis)


@TABLE.operator("qnn.leaky_relu")
def leaky_relu(emit, attrs, data, in_scale, in_point, out_scale, out_point):
    """Convert to the result's quantisation; below zero times alpha, in fixed point."""
    source = (scales(emit, in_scale, "input_scale"), in_point)
    target = (scalar(emit, out_scale, "output_scale"), out_point)
    value = requantize(emit, data, source, target, "int32")
    alpha = float(attrs.alpha)
    point = cast(emit, along(emit, out_point, 0, 0), "int32")
    scaled = fixed_point_multiply(emit, value, np.float64(alpha))
    rest = fixed_point_multiply(emit, point, np.float64(1 - alpha))
    border = cast(emit, along(emit, in_point, 0, 0), "int32")
    negative = emit(relax.op.less(cast(emit, data, "int32"), border))
    below = emit(relax.op.add(scaled, rest))
    return saturated(emit, emit(relax.op.where(negative, below, value)), dtype_of(data))


@TABLE.operator("qnn.softmax")
def softmax(emit, attrs, data, in_scale, in_point, out_scale, out_point):
    """Compute softmax in int32, with powers of two for exponentials (arXiv 2207.01405, algorithm 1)."""
    if dtype_of(data) != "int8":
        raise CannotConvert(f"qnn.softmax takes int8, not {dtype_of(data)}")
    scale = np.float32(scalar(emit, in_scale, "scale"))
    if not 0 < scale <= 1:
        raise CannotConvert("the input scale of qnn.softmax must be in (0, 1]")
    axis = axis_in(attrs.axis, rank_of(data))
    one_step = min(math.floor(float(np.float32(1) / scale) + 0.5), limits("int32")[1])
    fraction, bits = 30, 8

    def number(value: int):
        return emit.const(value, "int32")

    def binary(operator, a, b):
        return emit(operator(a, b))

    def right(value, amount: int):
        return binary(relax.op.right_shift, value, number(amount))

    op = relax.op
    steps = shifted(emit, data, in_point, "int32")
    below = binary(op.subtract, steps, emit(op.max(steps, axis=[axis], keepdims=True)))
    # x * log2(e), with log2(e) taken as 1 + 1/2 - 1/16.
    logs = binary(op.subtract, binary(op.add, below, right(below, 1)), right(below, 4))
    # Neither operand of the division is positive: truncation and floor agree.
    whole = binary(op.floor_divide, logs, number(-one_step))
    powers = binary(op.minimum, binary(op.maximum, whole, number(0)), number(20))
    greatest = emit(op.max(powers, axis=[axis], keepdims=True))
    rest = binary(op.subtract, logs, binary(op.multiply, powers, number(-one_step)))
    base = binary(op.add, right(rest, 1), number(one_step))
    terms = binary(op.left_shift, base, binary(op.subtract, greatest, powers))
    total = emit(op.sum(terms, axis=[axis], keepdims=True))
    inverse = binary(op.floor_divide, number(1 << fraction), total)
    result = right(binary(op.multiply, inverse, terms), fraction - (bits - 1))
    source = (np.asarray(1 / (1 << (bits - 1)), "float32"), number(0))
    target = (scalar(emit, out_scale, "output_scale"), out_point)
    return requantize(emit, result, source, target, "int8")


@TABLE.operator("qnn.avg_pool2d")
def avg_pool2d(emit, attrs, data, in_scale, in_point, out_scale, out_point):
    """Convert to the result's quantisation, then average in int32."""
    source = (np.asarray(scalar(emit, in_scale, "input_scale"), "float32"), in_point)
    target = (scalar(emit, out_scale, "output_scale"), out_point)
    if same(emit, [(in_scale, out_scale), (in_point, out_point)]):
        value = cast(emit, data, "int32")
    else:
        value = requantize(emit, data, source, target, "int32")
    mean = emit(pool.TABLE["nn.avg_pool2d"](emit, attrs, value))
    return saturated(emit, mean, dtype_of(data))
