"""ONNX operators that move data, and those whose shape comes in at run time."""

from __future__ import annotations

import math

import numpy as np
import tvm
from onnx import helper, numpy_helper
from tvm import relax, tirx

op = relax.op


def constant(expr) -> np.ndarray | None:
    """Return a constant input as an array, else None."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def int64(values) -> relax.Expr:
    """Return an int64 constant (a plain `relax.const` would narrow it)."""
    return relax.const(np.asarray(values, np.int64), "int64")


def dims(expr) -> list | None:
    """Return the dims of a tensor, ints where known, or None where the rank is unknown."""
    if not isinstance(expr.ty.shape, relax.ShapeExpr):
        return None
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in expr.ty.shape.values]


def known_shape(bb, target, rank: int, hint: str) -> relax.ShapeExpr:
    """Return a run-time int64 tensor of ``rank`` sizes as a shape of fresh symbols."""
    symbols = [tirx.Var(f"{hint}_{i}", "int64") for i in range(rank)]
    shape = bb.emit(op.tensor_to_shape(target))
    bb.match_cast(shape, relax.ShapeType(symbols))
    return relax.ShapeExpr(symbols)


def _reshape(bb, inputs, attrs, opset, stock):
    data = inputs[0]
    allow_zero = bool(attrs.get("allowzero", 0))
    target = inputs[1] if len(inputs) > 1 else None
    if opset < 5:
        return _static_reshape(data, list(attrs["shape"]), False)
    if isinstance(target, relax.ShapeExpr):
        values = [int(v) if isinstance(v, tirx.IntImm) else v for v in target.values]
        return _static_reshape(data, values, allow_zero)
    array = constant(target)
    if array is not None:
        return _static_reshape(data, array.tolist(), allow_zero)
    return _runtime_reshape(bb, data, target, allow_zero)


def _static_reshape(data, target: list, allow_zero: bool):
    shape = dims(data)
    if not allow_zero:
        target = [shape[i] if isinstance(t, int) and t == 0 else t for i, t in enumerate(target)]
    if any(isinstance(t, int) and t == -1 for t in target):
        known = [t for t in target if not (isinstance(t, int) and t == -1)]
        total, rest = _product(shape), _product(known)
        if isinstance(rest, int) and rest == 0:
            missing = 0
        elif isinstance(total, int) and isinstance(rest, int):
            missing = total // rest
        else:
            return op.reshape(data, [tirx.IntImm("int64", t) if isinstance(t, int) else t for t in target])
        target = [missing if isinstance(t, int) and t == -1 else t for t in target]
    if any(isinstance(t, int) and t == 0 for t in target):
        # In relax.reshape a 0 copies a dim; a result without elements needs no data.
        return op.zeros(target, str(data.ty.dtype))
    return op.reshape(
        data, relax.ShapeExpr([tirx.IntImm("int64", t) if isinstance(t, int) else t for t in target])
    )


def _product(values):
    return math.prod(values) if all(isinstance(v, int) for v in values) else _fold_product(values)


def _fold_product(values):
    total = tirx.IntImm("int64", 1)
    for value in values:
        total = total * value
    return total


def _runtime_reshape(bb, data, target, allow_zero: bool):
    """Reshape to sizes that come in as a tensor: 0 copies a dim, -1 takes the rest."""
    target_dims = dims(target)
    if target_dims is None or not isinstance(target_dims[0], int):
        raise ValueError("the number of target dims of a run-time Reshape is not known")
    rank = target_dims[0]
    if str(target.ty.dtype) != "int64":
        target = bb.emit(op.astype(target, "int64"))
    given = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(data))))
    total = bb.emit(op.prod(given))
    if not allow_zero:
        have = data.ty.ndim
        copied = given
        if have > rank:
            copied = op.strided_slice(given, [0], [0], [rank])
        elif have < rank:
            copied = op.concat([given, int64([1] * (rank - have))], axis=0)
        target = bb.emit(op.where(op.equal(target, int64(0)), copied, target))
    open_dim = bb.emit(op.equal(target, int64(-1)))
    known = bb.emit(op.prod(op.where(open_dim, int64(1), target)))
    target = bb.emit(op.where(open_dim, op.floor_divide(total, known), target))
    return op.reshape(data, known_shape(bb, target, rank, "reshaped"))


def _expand(bb, inputs, attrs, opset, stock):
    """Broadcast data and target shape against each other, both ways."""
    data, target = inputs[:2]
    if isinstance(target, relax.ShapeExpr):
        wanted = [int(v) if isinstance(v, tirx.IntImm) else v for v in target.values]
    elif constant(target) is not None:
        wanted = constant(target).tolist()
    else:
        return _runtime_expand(bb, data, target)
    have = dims(data)
    rank = max(len(have), len(wanted))
    have, wanted = [1] * (rank - len(have)) + have, [1] * (rank - len(wanted)) + wanted
    # A size of one follows the other side; -1 keeps the dim.
    result = [h if isinstance(w, int) and w in (1, -1) else w for h, w in zip(have, wanted)]
    return op.broadcast_to(
        data, relax.ShapeExpr([tirx.IntImm("int64", r) if isinstance(r, int) else r for r in result])
    )


def _runtime_expand(bb, data, target):
    target_dims = dims(target)
    if target_dims is None or not isinstance(target_dims[0], int):
        raise ValueError("the number of target dims of a run-time Expand is not known")
    have = dims(data)
    rank = max(len(have), target_dims[0])
    given = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(data))))
    if len(have) < rank:
        given = op.concat([int64([1] * (rank - len(have))), given], axis=0)
        data = bb.emit(
            op.reshape(
                data, relax.ShapeExpr([tirx.IntImm("int64", 1)] * (rank - len(have)) + list(data.ty.shape))
            )
        )
    if target_dims[0] < rank:
        target = op.concat([int64([1] * (rank - target_dims[0])), target], axis=0)
    result = bb.emit(op.where(op.equal(target, int64(1)), given, target))
    return op.broadcast_to(data, known_shape(bb, result, rank, "expanded"))


def _constant_of_shape(bb, inputs, attrs, opset, stock):
    """A filled tensor as one operator: the stock conversion would allocate it."""
    fill = numpy_helper.to_array(attrs["value"]) if "value" in attrs else np.zeros(1, np.float32)
    value = relax.const(fill.reshape(()), str(fill.dtype))
    target = inputs[0]
    if isinstance(target, relax.ShapeExpr):
        shape = target
    elif constant(target) is not None:
        shape = relax.ShapeExpr([tirx.IntImm("int64", int(d)) for d in constant(target)])
    else:
        rank = dims(target)
        if rank is None or not isinstance(rank[0], int):
            raise ValueError("the number of dims of a run-time ConstantOfShape is not known")
        shape = known_shape(bb, target, rank[0], "filled")
    return op.full(shape, value, str(fill.dtype))


def _pad(bb, inputs, attrs, opset, stock):
    data, rank = inputs[0], inputs[0].ty.ndim
    mode = attrs.get("mode", b"constant").decode()
    if opset < 11:
        pads, value = list(attrs["pads"]), attrs.get("value", 0.0)
        axes = list(range(rank))
    else:
        array = constant(inputs[1])
        if array is None:
            raise ValueError("Pad with run-time pads is not supported")
        pads = array.tolist()
        fill = inputs[2] if len(inputs) > 2 else None
        value = 0.0 if fill is None else (None if constant(fill) is None else constant(fill).item())
        axes_input = inputs[3] if len(inputs) > 3 else None
        axes = list(range(rank)) if axes_input is None else constant(axes_input).tolist()
    widths = [[0, 0] for _ in range(rank)]
    for i, axis in enumerate(axes):
        widths[axis % rank] = [pads[i], pads[i + len(axes)]]
    if mode == "constant":
        return _pad_constant(bb, data, widths, value, inputs)
    return _pad_by_index(bb, data, widths, mode)


def _pad_constant(bb, data, widths, value, inputs):
    """Crop where a width is negative, then pad; a run-time fill is selected in afterwards."""
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            end = dims(data)[axis] + min(after, 0)
            data = bb.emit(op.strided_slice(data, [axis], [max(-before, 0)], [end]))
    widths = [[max(before, 0), max(after, 0)] for before, after in widths]
    flat = [w for pair in widths for w in pair]
    if not any(flat):
        return data
    if value is None:
        ones = bb.emit(op.nn.pad(op.ones_like(data), flat, "constant", 0.0))
        padded = bb.emit(op.nn.pad(data, flat, "constant", 0.0))
        fill = op.reshape(inputs[2], [])
        return op.where(op.equal(ones, relax.const(0, str(data.ty.dtype))), fill, padded)
    return op.nn.pad(data, flat, "constant", value)


def _pad_by_index(bb, data, widths, mode: str):
    """Pad by mirroring, repeating or wrapping: a gather per padded axis."""
    numpy_mode = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    for axis, (before, after) in enumerate(widths):
        extent = dims(data)[axis]
        if not before and not after:
            continue
        if not isinstance(extent, int):
            raise ValueError(f"Pad in mode {mode} of a symbolic dim is not supported")
        index = np.pad(np.arange(extent), [max(before, 0), max(after, 0)], mode=numpy_mode)
        index = index[max(-before, 0) : len(index) - max(-after, 0)]
        data = bb.emit(op.take(data, int64(index), axis=axis))
    return data


def _tile(bb, inputs, attrs, opset, stock):
    repeats = constant(inputs[1]) if len(inputs) > 1 else None
    return stock() if repeats is None else op.tile(inputs[0], repeats.tolist())


def _cum_sum(bb, inputs, attrs, opset, stock):
    axis = constant(inputs[1])
    if axis is None:
        raise ValueError("CumSum along a run-time axis is not supported")
    data, axis = inputs[0], int(axis.item()) % inputs[0].ty.ndim
    reverse = attrs.get("reverse", 0)
    if reverse:
        data = bb.emit(op.flip(data, axis))
    data = bb.emit(op.cumsum(data, axis, exclusive=bool(attrs.get("exclusive", 0))))
    return op.flip(data, axis) if reverse else data


def _einsum(bb, inputs, attrs, opset, stock):
    return op.einsum(list(inputs), attrs["equation"].decode().replace(" ", ""))


def _space_to_depth(bb, inputs, attrs, opset, stock):
    """ONNX orders the result depth-major (``DCR``) or, in mode CRD, column-row-depth."""
    x, size = inputs[0], int(attrs["blocksize"])
    batch, channels, height, width = dims(x)
    blocks = [batch, channels, height // size, size, width // size, size]
    order = [0, 1, 3, 5, 2, 4] if attrs.get("mode", b"DCR") == b"CRD" else [0, 3, 5, 1, 2, 4]
    moved = op.permute_dims(op.reshape(x, blocks), order)
    return op.reshape(moved, [batch, channels * size * size, height // size, width // size])


def _dropout(bb, inputs, attrs, opset, stock):
    """At inference the input as it is, with a mask that keeps everything."""
    training = constant(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else np.array(False)
    ratio = constant(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else np.array(0.5)
    if training is None or (training.item() and (ratio is None or ratio.item())):
        raise ValueError("Dropout in training mode draws random numbers")
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    mask_dtype = "bool" if opset >= 10 else str(inputs[0].ty.dtype)
    return relax.Tuple([inputs[0], op.full_like(inputs[0], relax.const(1, mask_dtype), mask_dtype)])


def _eye_like(bb, inputs, attrs, opset, stock):
    dtype = str(inputs[0].ty.dtype)
    if "dtype" in attrs:
        dtype = helper.tensor_dtype_to_np_dtype(attrs["dtype"]).name
    rows, columns = dims(inputs[0])
    return op.eye(rows, columns, attrs.get("k", 0), dtype)


def _constant(bb, inputs, attrs, opset, stock):
    """A Constant node in any of its spellings."""
    scalars = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, dtype in scalars.items():
        if name in attrs:
            return relax.const(np.asarray(attrs[name], dtype), np.dtype(dtype).name)
    return stock()


SHAPES = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cum_sum,
    "Dropout": _dropout,
    "Einsum": _einsum,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Pad": _pad,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
}
