"""ONNX operators that select or count: OneHot, Split, NonMaxSuppression, and mixed-type Pow."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .onnx_fix_elementwise import dtype_of, is_float, scalar
from .onnx_fix_shape import constant, dims

op = relax.op


def _non_max_suppression(bb, inputs, attrs, opset, stock):
    """Refuse run-time limits, which the stock conversion ignores; keep boxes at the threshold.

    ONNX drops a box whose overlap is above the threshold, the stock conversion
    also one that equals it: the next larger number says the same.
    """
    if any(limit is not None and constant(limit) is None for limit in list(inputs)[2:]):
        raise ValueError("limits and thresholds must be constants, but one is computed at run time")
    threshold = constant(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else np.zeros(1)
    above = np.nextafter(np.float32(threshold.item()), np.float32(np.inf))
    limit = inputs[2] if len(inputs) > 2 else None
    while len(inputs) < 4:
        inputs.append(None)
    inputs[2] = limit
    inputs[3] = relax.const(np.array([above], np.float32), "float32")
    return stock()


def _one_hot(bb, inputs, attrs, opset, stock):
    """Compare with the positions; an index counts from the end where negative."""
    indices, depth, values = inputs[:3]
    size = constant(depth)
    if size is None:
        raise ValueError("OneHot with a run-time depth is not supported")
    size, rank = int(size.item()), indices.ty.ndim
    axis = attrs.get("axis", -1) % (rank + 1)
    if dtype_of(indices) != "int64":
        indices = bb.emit(op.astype(indices, "int64"))
    zero = relax.const(0, "int64")
    indices = bb.emit(op.where(op.less(indices, zero), op.add(indices, relax.const(size, "int64")), indices))
    positions = np.arange(size).reshape([-1] + [1] * (rank - axis))
    hit = op.equal(op.expand_dims(indices, axis), relax.const(positions, "int64"))
    off = op.squeeze(op.strided_slice(values, [0], [0], [1]), [0])
    on = op.squeeze(op.strided_slice(values, [0], [1], [2]), [0])
    return op.where(hit, on, off)


def _split(bb, inputs, attrs, opset, stock):
    """Split with an empty part is a row of slices; the stock form needs rising bounds."""
    sizes = attrs.get("split") if opset < 13 else (constant(inputs[1]) if len(inputs) > 1 else None)
    if sizes is None or all(int(size) > 0 for size in sizes):
        return stock()
    data, axis = inputs[0], attrs.get("axis", 0)
    ends = np.cumsum([int(size) for size in sizes]).tolist()
    shape, dtype = dims(data), dtype_of(data)
    parts = []
    for begin, end in zip([0, *ends], ends):
        if begin == end:
            empty = [0 if i == axis % len(shape) else d for i, d in enumerate(shape)]
            parts.append(op.zeros(empty, dtype))
        else:
            parts.append(op.strided_slice(data, [axis], [begin], [end]))
    return relax.Tuple(parts)


def _pow(bb, inputs, attrs, opset, stock):
    """Raise to a power in a float type; the result has the type of the base."""
    base, exponent = inputs[:2]
    dtype = dtype_of(base)
    if dtype == dtype_of(exponent) and is_float(base):
        return op.power(base, exponent)
    if is_float(base):
        return op.power(base, op.astype(exponent, dtype))
    whole = constant(exponent)
    if whole is not None and whole.size == 1 and whole.item() in (1, 2, 3):
        result = base
        for _ in range(int(whole.item()) - 1):
            result = bb.emit(op.multiply(result, base))
        return result
    value = op.power(op.astype(base, "float64"), op.astype(exponent, "float64"))
    if not is_float(exponent):
        # The float power of whole numbers may lie a little below the whole result.
        value = op.round(value)
    return op.astype(value, dtype)


def _cum_prod(bb, inputs, attrs, opset, stock):
    axis = constant(inputs[1])
    if axis is None:
        raise ValueError("CumProd along a run-time axis is not supported")
    data, axis = inputs[0], int(axis.item()) % inputs[0].ty.ndim
    reverse = attrs.get("reverse", 0)
    if reverse:
        data = bb.emit(op.flip(data, axis))
    data = bb.emit(op.cumprod(data, axis, exclusive=bool(attrs.get("exclusive", 0))))
    return op.flip(data, axis) if reverse else data


def _reverse_sequence(bb, inputs, attrs, opset, stock):
    lengths = inputs[1] if dtype_of(inputs[1]) == "int64" else op.astype(inputs[1], "int64")
    return op.reverse_sequence(inputs[0], lengths, attrs.get("time_axis", 0), attrs.get("batch_axis", 1))


def _slice(bb, inputs, attrs, opset, stock):
    """Give zeros of the right shape where a slice takes nothing; the stock form needs rising bounds."""
    given = [constant(v) if isinstance(v, relax.Expr) else None for v in list(inputs)[1:5]]
    given += [None] * (4 - len(given))
    starts, ends = given[:2]
    hidden = any(v is not None and c is None for v, c in zip(list(inputs)[1:5], given))
    if hidden or starts is None or ends is None or isinstance(inputs[0], relax.ShapeExpr):
        return stock()
    shape = dims(inputs[0])
    if shape is None:
        return stock()
    axes = range(len(starts)) if given[2] is None else given[2].tolist()
    steps = [1] * len(starts) if given[3] is None else given[3].tolist()
    sizes, nothing = list(shape), False
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps):
        if step == 0 or not isinstance(shape[axis], int):
            return stock()
        sizes[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
        nothing = nothing or sizes[axis] == 0
    return op.zeros(sizes, dtype_of(inputs[0])) if nothing else stock()


def _roi_align(bb, inputs, attrs, opset, stock):
    """Refuse mode max: ONNX takes the largest weighted corner, TVM the largest sample."""
    if attrs.get("mode", b"avg") != b"avg":
        raise ValueError("RoiAlign in mode max is not supported")
    return stock()


def _hardmax(bb, inputs, attrs, opset, stock):
    """One at the first maximum along an axis, zero elsewhere."""
    if opset < 13:
        return stock()
    x, axis = inputs[0], attrs.get("axis", -1) % inputs[0].ty.ndim
    extent = dims(x)[axis]
    if not isinstance(extent, int):
        return stock()
    positions = np.arange(extent).reshape([-1] + [1] * (x.ty.ndim - 1 - axis))
    first = op.argmax(x, axis, keepdims=True)
    return op.where(op.equal(first, relax.const(positions, "int64")), scalar(1, x), scalar(0, x))


SELECTION = {
    "CumProd": _cum_prod,
    "Hardmax": _hardmax,
    "NonMaxSuppression": _non_max_suppression,
    "OneHot": _one_hot,
    "Pow": _pow,
    "ReverseSequence": _reverse_sequence,
    "RoiAlign": _roi_align,
    "Slice": _slice,
    "Split": _split,
}
