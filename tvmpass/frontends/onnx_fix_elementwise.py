"""Elementwise ONNX operators, in their defining form and any float dtype."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax

op = relax.op


def dtype_of(expr) -> str:
    """Return the element type of a tensor expression."""
    return str(expr.ty.dtype)


def scalar(value: float, like) -> relax.Expr:
    """Return a rank-0 constant of another expression's dtype."""
    return relax.const(value, dtype_of(like))


def is_float(expr) -> bool:
    return dtype_of(expr).startswith(("float", "bfloat"))


def _elu(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    below = op.multiply(scalar(attrs.get("alpha", 1.0), x), op.subtract(op.exp(x), scalar(1, x)))
    return op.where(op.greater(x, scalar(0, x)), x, below)


def _celu(bb, inputs, attrs, opset, stock):
    x, alpha = inputs[0], attrs.get("alpha", 1.0)
    inner = op.subtract(op.exp(op.divide(x, scalar(alpha, x))), scalar(1, x))
    below = op.minimum(scalar(0, x), op.multiply(scalar(alpha, x), inner))
    return op.add(op.maximum(scalar(0, x), x), below)


def _selu(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    alpha, gamma = (
        attrs.get("alpha", 1.67326319217681884765625),
        attrs.get("gamma", 1.05070102214813232421875),
    )
    below = op.multiply(scalar(alpha, x), op.subtract(op.exp(x), scalar(1, x)))
    return op.multiply(scalar(gamma, x), op.where(op.greater(x, scalar(0, x)), x, below))


def _thresholded_relu(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    return op.where(op.greater(x, scalar(attrs.get("alpha", 1.0), x)), x, scalar(0, x))


def _hard_sigmoid(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    line = op.add(op.multiply(scalar(attrs.get("alpha", 0.2), x), x), scalar(attrs.get("beta", 0.5), x))
    return op.minimum(op.maximum(line, scalar(0, x)), scalar(1, x))


def _hard_swish(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    gate = op.minimum(op.maximum(op.add(x, scalar(3, x)), scalar(0, x)), scalar(6, x))
    return op.multiply(x, op.divide(gate, scalar(6, x)))


def _swish(bb, inputs, attrs, opset, stock):
    x, alpha = inputs[0], attrs.get("alpha", 1.0)
    return op.multiply(x, op.sigmoid(x if alpha == 1.0 else op.multiply(scalar(alpha, x), x)))


def _softplus(bb, inputs, attrs, opset, stock):
    """Return log(1 + exp(x)) in the form that overflows for no x."""
    x = inputs[0]
    tail = op.log(op.add(scalar(1, x), op.exp(op.negative(op.abs(x)))))
    return op.add(op.maximum(x, scalar(0, x)), tail)


def _mish(bb, inputs, attrs, opset, stock):
    # tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2), which keeps all digits
    # where e = exp(x) is small; from 20 on it is 1 in every dtype.
    x = inputs[0]
    e = bb.emit(op.exp(op.minimum(x, scalar(20 if dtype_of(x) != "float16" else 5, x))))
    n = bb.emit(op.multiply(e, op.add(e, scalar(2, x))))
    return op.multiply(x, op.divide(n, op.add(n, scalar(2, x))))


def _shrink(bb, inputs, attrs, opset, stock):
    x, limit, bias = inputs[0], attrs.get("lambd", 0.5), attrs.get("bias", 0.0)
    above = op.where(op.greater(x, scalar(limit, x)), op.subtract(x, scalar(bias, x)), scalar(0, x))
    return op.where(op.less(x, scalar(-limit, x)), op.add(x, scalar(bias, x)), above)


def _clip(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    low, high = (inputs[i] if len(inputs) > i else None for i in (1, 2))
    if opset < 11:
        low = scalar(attrs["min"], x) if "min" in attrs else None
        high = scalar(attrs["max"], x) if "max" in attrs else None
    if low is not None:
        x = bb.emit(op.maximum(x, _bound(low, -math.inf)))
    if high is not None:
        x = bb.emit(op.minimum(x, _bound(high, math.inf)))
    return x


def _bound(bound, without: float):
    """Return a Clip bound; a NaN bound is no bound, as in ONNX Runtime."""
    if not is_float(bound):
        return bound
    if isinstance(bound, tvm.ir.GenericConst):
        return scalar(without, bound) if np.isnan(bound.value.numpy()).any() else bound
    return op.where(op.isnan(bound), scalar(without, bound), bound)


def _is_inf(bb, inputs, attrs, opset, stock):
    x = inputs[0]
    positive, negative = attrs.get("detect_positive", 1), attrs.get("detect_negative", 1)
    if positive and negative:
        return op.isinf(x)
    if not positive and not negative:
        return op.astype(op.zeros_like(x), "bool")
    return op.equal(x, scalar(math.inf if positive else -math.inf, x))


def _mod(bb, inputs, attrs, opset, stock):
    a, b = inputs[:2]
    if attrs.get("fmod", 0):
        return op.mod(a, b)
    if not is_float(a):
        return op.floor_mod(a, b)
    # numpy's float remainder: exact, with the sign of the divisor.
    rest = op.mod(a, b)
    zero = scalar(0, a)
    other_sign = op.logical_xor(op.less(rest, zero), op.less(b, zero))
    moved = op.where(op.logical_and(op.not_equal(rest, zero), other_sign), op.add(rest, b), rest)
    return moved


def _div(bb, inputs, attrs, opset, stock):
    """Let whole numbers be divided by an array with a 0 in it: the quotient is 0 there."""
    a, b = inputs[:2]
    zero = isinstance(b, tvm.ir.GenericConst) and not is_float(b) and (b.value.numpy() == 0).any()
    if not zero or not isinstance(getattr(a, "ty", None), relax.TensorType):
        return stock()
    return op.divide(a, b)


def _chain(binary):
    """Return a converter that folds any number of inputs with a binary operator.

    The stock conversion stacks the broadcast inputs and reduces: no rule sees an
    elementwise operator in that, and a layout cannot pass through it.
    """

    def convert(bb, inputs, attrs, opset, stock):
        result = inputs[0]
        for other in inputs[1:]:
            result = bb.emit(binary(result, other))
        return result

    return convert


def _mean_of_inputs(bb, inputs, attrs, opset, stock):
    total = _chain(op.add)(bb, inputs, attrs, opset, stock)
    return op.divide(total, scalar(len(inputs), total)) if len(inputs) > 1 else total


ELEMENTWISE = {
    "Celu": _celu,
    "Clip": _clip,
    "Div": _div,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "IsInf": _is_inf,
    "Max": _chain(op.maximum),
    "Mean": _mean_of_inputs,
    "Min": _chain(op.minimum),
    "Mish": _mish,
    "Mod": _mod,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": _softplus,
    "Sum": _chain(op.add),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
}
