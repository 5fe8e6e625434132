"""Integer convolution and matrix product of quantised ONNX models.

The products are summed in int32 on operands from which the zero point is
already taken, so that padding with 0 pads with the zero point.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from .onnx_fix_elementwise import dtype_of

op = relax.op


def _centred(bb, x, zero, shape=None):
    """Return int32 ``x - zero``; ``shape`` spreads a zero point per channel."""
    x = bb.emit(op.astype(x, "int32"))
    if zero is None:
        return x
    zero = bb.emit(op.astype(zero, "int32"))
    if zero.ty.ndim == 1 and shape is not None:
        zero = bb.emit(op.reshape(zero, shape))
    return bb.emit(op.subtract(x, zero))


def _convolution(bb, x, weight, attrs, opset):
    """Return the convolution of int32 operands, with the node's strides and pads."""
    inputs = onnx_frontend.onnx_input([x, weight])
    return bb.normalize(onnx_frontend.Conv.get_converter(opset)(bb, inputs, attrs, [{}, {}]))


def _requantised(bb, total, factor, scale, zero):
    """Return ``total * factor / scale + zero`` rounded half to even and saturated."""
    dtype = dtype_of(zero)
    factor, scale = (v if dtype_of(v) == "float32" else op.astype(v, "float32") for v in (factor, scale))
    value = op.divide(op.multiply(op.astype(total, "float32"), factor), scale)
    value = bb.emit(op.add(op.round(value), op.astype(zero, "float32")))
    limits = np.iinfo(dtype)
    value = op.maximum(value, relax.const(float(limits.min), "float32"))
    value = op.minimum(value, relax.const(float(limits.max), "float32"))
    return op.astype(value, dtype)


def _per_channel(expr, rank: int):
    """Return a scale per output channel in the shape that broadcasts over ``[N, C, ...]``."""
    return op.reshape(expr, [-1] + [1] * (rank - 2)) if expr.ty.ndim == 1 else expr


def _conv_integer(bb, inputs, attrs, opset, stock):
    zeros = [inputs[i] if len(inputs) > i else None for i in (2, 3)]
    rank = inputs[0].ty.ndim
    x = _centred(bb, inputs[0], zeros[0], [])
    weight = _centred(bb, inputs[1], zeros[1], [-1] + [1] * (rank - 1))
    return _convolution(bb, x, weight, attrs, opset)


def _qlinear_conv(bb, inputs, attrs, opset, stock):
    x, x_scale, x_zero, weight, w_scale, w_zero, scale, zero = inputs[:8]
    bias = inputs[8] if len(inputs) > 8 else None
    rank = x.ty.ndim
    total = _convolution(
        bb,
        _centred(bb, x, x_zero, []),
        _centred(bb, weight, w_zero, [-1] + [1] * (rank - 1)),
        attrs,
        opset,
    )
    if bias is not None:
        total = bb.emit(op.add(total, op.reshape(bias, [-1] + [1] * (rank - 2))))
    factor = bb.emit(op.multiply(_scalar(x_scale), _per_channel(w_scale, rank)))
    return _requantised(bb, total, factor, _scalar(scale), _scalar(zero))


def _scalar(expr):
    return op.reshape(expr, []) if expr.ty.ndim else expr


def _qlinear_matmul(bb, inputs, attrs, opset, stock):
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs[:8]
    left, right = _centred(bb, a, a_zero, [-1, 1]), _centred(bb, b, b_zero)
    total = bb.emit(op.matmul(left, right, out_dtype="int32"))
    if a_scale.ty.ndim == 1:
        a_scale = op.reshape(a_scale, [-1, 1])
    factor = bb.emit(op.multiply(a_scale, b_scale))
    return _requantised(bb, total, factor, scale, zero)


QUANTISED = {
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}
