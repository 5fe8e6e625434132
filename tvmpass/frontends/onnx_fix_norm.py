"""Normalisation operators of ONNX whose stock conversion lacks outputs, modes or dtypes."""

from __future__ import annotations

from tvm import relax

from .onnx_fix_elementwise import dtype_of, is_float, scalar
from .onnx_fix_shape import constant

op = relax.op


def _rank(expr) -> int:
    return expr.ty.ndim


def _layer_norm(bb, inputs, attrs, opset, stock):
    """Layer norm with its three outputs: the result, the mean, 1 / deviation."""
    x, scale = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    rank, epsilon = _rank(x), attrs.get("epsilon", 1e-5)
    first = attrs.get("axis", -1) % rank
    axes = list(range(first, rank))
    outputs = attrs["tvm_custom"]["num_outputs"]
    full = [int(d) if isinstance(d, int) or hasattr(d, "value") else d for d in list(x.ty.shape)[first:]]
    same = _rank(scale) == len(axes) and [str(d) for d in scale.ty.shape] == [str(d) for d in full]
    if outputs == 1 and same and (bias is None or _rank(bias) == len(axes)):
        if bias is None:
            bias = op.zeros_like(scale)
        return op.nn.layer_norm(x, scale, bias, axes, epsilon)
    value = x if dtype_of(x) in ("float32", "float64") else bb.emit(op.astype(x, "float32"))
    mean = bb.emit(op.mean(value, axes, keepdims=True))
    centred = bb.emit(op.subtract(value, mean))
    variance = bb.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    factor = bb.emit(op.divide(scalar(1, value), op.sqrt(op.add(variance, scalar(epsilon, value)))))
    result = op.multiply(op.astype(op.multiply(centred, factor), dtype_of(x)), scale)
    if bias is not None:
        result = op.add(result, bias)
    return relax.Tuple([result, mean, factor]) if outputs > 1 else result


def _batch_norm(bb, inputs, attrs, opset, stock):
    """Batch norm; in training mode with the statistics of the batch, as ONNX defines it."""
    x, scale, bias, mean, variance = inputs[:5]
    if not attrs.get("training_mode", 0):
        outputs = attrs["tvm_custom"]["num_outputs"]
        one_dtype = dtype_of(x) != "float16" and len({dtype_of(v) for v in inputs[:5]}) == 1
        if one_dtype or outputs > 1:
            return stock()
        wide = [v if dtype_of(v) == "float32" else bb.emit(op.astype(v, "float32")) for v in inputs[:5]]
        epsilon = attrs.get("epsilon", 1e-5)
        normed = bb.emit(op.nn.batch_norm(*wide, axis=1, epsilon=epsilon, training=False))
        return op.astype(relax.TupleGetItem(normed, 0), dtype_of(x))
    momentum = attrs.get("momentum", 0.9)
    value = x if dtype_of(x) in ("float32", "float64") else bb.emit(op.astype(x, "float32"))
    axes = [axis for axis in range(_rank(x)) if axis != 1]
    batch_mean = bb.emit(op.mean(value, axes, keepdims=True))
    centred = bb.emit(op.subtract(value, batch_mean))
    batch_variance = bb.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    shape = [-1] + [1] * (_rank(x) - 2)

    def per_channel(v):
        return op.reshape(v if dtype_of(v) == dtype_of(value) else op.astype(v, dtype_of(value)), shape)

    deviation = op.sqrt(op.add(batch_variance, scalar(attrs.get("epsilon", 1e-5), value)))
    normed = op.multiply(op.divide(centred, deviation), per_channel(scale))
    result = op.astype(op.add(normed, per_channel(bias)), dtype_of(x))

    def running(old, new):
        new = op.astype(op.reshape(new, [-1]), dtype_of(old))
        return op.add(op.multiply(old, scalar(momentum, old)), op.multiply(new, scalar(1 - momentum, old)))

    return relax.Tuple([result, running(mean, batch_mean), running(variance, batch_variance)])


def _lp_normalization(bb, inputs, attrs, opset, stock):
    x, axis, order = inputs[0], attrs.get("axis", -1), attrs.get("p", 2)
    if order == 1:
        norm = op.sum(op.abs(x), [axis], keepdims=True)
    else:
        norm = op.sqrt(op.sum(op.multiply(x, x), [axis], keepdims=True))
    norm = bb.emit(norm)
    # A slice of zeros stays zero.
    return op.where(op.equal(norm, scalar(0, x)), scalar(0, x), op.divide(x, norm))


def _mean_variance_normalization(bb, inputs, attrs, opset, stock):
    x, axes = inputs[0], list(attrs.get("axes", (0, 2, 3)))
    centred = bb.emit(op.subtract(x, op.mean(x, axes, keepdims=True)))
    deviation = op.sqrt(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    return op.divide(centred, op.add(deviation, scalar(1e-9, x)))


def _reduce_log_sum_exp(bb, inputs, attrs, opset, stock):
    """Shift by the largest element, but not where it is infinite: inf - inf is NaN."""
    x, axes, keepdims = inputs[0], attrs.get("axes"), bool(attrs.get("keepdims", 1))
    if len(inputs) > 1 and inputs[1] is not None:
        given = constant(inputs[1])
        if given is None:
            raise ValueError("ReduceLogSumExp along run-time axes is not supported")
        axes = given.tolist()
    if not axes:
        if attrs.get("noop_with_empty_axes", 0):
            return x
        axes = list(range(_rank(x)))
    if not is_float(x):
        return stock()
    top = bb.emit(op.max(x, axes, keepdims=True))
    shift = bb.emit(op.where(op.isfinite(top), top, scalar(0, x)))
    total = bb.emit(op.sum(op.exp(op.subtract(x, shift)), axes, keepdims=True))
    result = op.add(op.log(total), shift)
    return result if keepdims else op.squeeze(bb.emit(result), axes)


NORMALISATION = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "ReduceLogSumExp": _reduce_log_sum_exp,
}
