"""Follow shape arithmetic through an ONNX graph with symbolic dims.

onnxslim folds what comes down to numbers.  With a symbolic batch ``n`` the
nodes between a Shape and the Reshape that reads it stay in the graph; here
they are evaluated on small arrays of ints and symbolic expressions instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, numpy_helper
from tvm import relax, tirx

from tvmpass.core.constants import fold

# Shape arithmetic is short; longer arrays are data.
_LIMIT = 64
_INTEGERS = {TensorProto.INT64: "int64", TensorProto.INT32: "int32", TensorProto.BOOL: "bool"}


class NotKnown(Exception):
    """The value depends on data, not on shapes alone."""


class Value:
    """A small array of Python ints and TIR expressions with an element type."""

    def __init__(self, items: np.ndarray, dtype: str):
        self.items = items
        self.dtype = dtype

    @property
    def is_constant(self) -> bool:
        return all(isinstance(item, (int, bool)) for item in self.items.flat)

    def constant(self):
        """Return a Relax constant; only where `is_constant`."""
        array = np.array(self.items.tolist(), self.dtype).reshape(self.items.shape)
        return relax.const(array, self.dtype)

    def shape_expr(self):
        """Return a ShapeExpr of the items in order."""
        return relax.ShapeExpr([_as_dim(item) for item in self.items.flat])

    def tensor(self, bb):
        """Emit the value as a tensor computed at run time."""
        flat = bb.emit(relax.op.shape_to_tensor(self.shape_expr()))
        if self.dtype != "int64":
            flat = bb.emit(relax.op.astype(flat, self.dtype))
        if self.items.ndim != 1:
            flat = bb.emit(relax.op.reshape(flat, list(self.items.shape)))
        return flat


def evaluate(node: onnx.NodeProto, inputs: list[Any]) -> Value | None:
    """Return the value of ``node`` where its inputs are shapes and small integers.

    ``inputs`` holds per input a `Value`, a Relax expression or None.  None is
    returned where the node computes with data.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx"):
        return None
    try:
        value = rule([_lift(item) for item in inputs], {a.name: a for a in node.attribute}, inputs)
    except NotKnown:
        return None
    return value if value.items.size <= _LIMIT else None


def fold_small(call: relax.Call):
    """Return a call on constants as a constant where it has few elements, else None."""
    shape = getattr(call.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(d, tirx.IntImm) for d in shape.values):
        return None
    if math.prod(int(d) for d in shape.values) > _LIMIT:
        return None
    return fold(call, lambda value: value)


def _lift(item) -> Value | None:
    """Return a small integer constant as a Value; other expressions as None."""
    if isinstance(item, Value) or item is None:
        return item
    if isinstance(item, tvm.ir.GenericConst):
        array = item.value.numpy()
        if array.size <= _LIMIT and str(array.dtype) in ("int64", "int32", "bool"):
            return Value(_objects(array), str(array.dtype))
    return None


def _need(values: list[Value | None], index: int) -> Value:
    if index >= len(values) or values[index] is None:
        raise NotKnown
    return values[index]


def _ints(values: list[Value | None], index: int, attrs: Mapping, name: str) -> list[int] | None:
    """Return constant integers given as input ``index`` or as attribute ``name``."""
    if name in attrs:
        return list(attrs[name].ints)
    if index >= len(values) or values[index] is None:
        return None
    if not values[index].is_constant:
        raise NotKnown
    return [int(item) for item in values[index].items.flat]


def _objects(array: np.ndarray) -> np.ndarray:
    out = np.empty(array.shape, object)
    out[...] = array.astype(object)
    return out


def _as_dim(item):
    return tirx.IntImm("int64", int(item)) if isinstance(item, (int, bool)) else item


def _shape(values, attrs, inputs) -> Value:
    ty = getattr(inputs[0], "ty", None)
    if isinstance(inputs[0], Value):
        dims = list(inputs[0].items.shape)
    elif isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        dims = [int(d) if isinstance(d, tirx.IntImm) else d for d in ty.shape.values]
    else:
        raise NotKnown
    start = attrs["start"].i if "start" in attrs else 0
    end = attrs["end"].i if "end" in attrs else len(dims)
    out = np.empty(len(dims), object)
    out[:] = dims
    return Value(out[start:end], "int64")


def _gather(values, attrs, inputs) -> Value:
    data, index = _need(values, 0), _need(values, 1)
    if not index.is_constant:
        raise NotKnown
    axis = attrs["axis"].i if "axis" in attrs else 0
    return Value(np.asarray(np.take(data.items, index.items.astype(np.int64), axis=axis), object), data.dtype)


def _slice(values, attrs, inputs) -> Value:
    data = _need(values, 0)
    starts, ends = _ints(values, 1, attrs, "starts"), _ints(values, 2, attrs, "ends")
    if starts is None or ends is None:
        raise NotKnown
    axes = _ints(values, 3, attrs, "axes") or list(range(len(starts)))
    steps = _ints(values, 4, attrs, "steps") or [1] * len(starts)
    # A constant that was refused above must not pass for a missing one.
    if any(i < len(inputs) and inputs[i] is not None and values[i] is None for i in (1, 2, 3, 4)):
        raise NotKnown
    index = [slice(None)] * data.items.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        stop = None if step < 0 and end < -data.items.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return Value(data.items[tuple(index)], data.dtype)


def _concat(values, attrs, inputs) -> Value:
    parts = [_need(values, i) for i in range(len(values))]
    return Value(np.concatenate([part.items for part in parts], axis=attrs["axis"].i), parts[0].dtype)


def _cast(values, attrs, inputs) -> Value:
    data = _need(values, 0)
    dtype = _INTEGERS.get(attrs["to"].i)
    if dtype is None or (dtype == "bool") != (data.dtype == "bool"):
        raise NotKnown
    return Value(data.items, dtype)


def _unsqueeze(values, attrs, inputs) -> Value:
    data, axes = _need(values, 0), _ints(values, 1, attrs, "axes")
    if axes is None:
        raise NotKnown
    return Value(np.expand_dims(data.items, tuple(axes)), data.dtype)


def _squeeze(values, attrs, inputs) -> Value:
    data, axes = _need(values, 0), _ints(values, 1, attrs, "axes")
    if axes is None and len(inputs) > 1 and inputs[1] is not None:
        raise NotKnown
    return Value(np.squeeze(data.items, None if axes is None else tuple(axes)), data.dtype)


def _reshape(values, attrs, inputs) -> Value:
    data, target = _need(values, 0), _ints(values, 1, attrs, "shape")
    if target is None or 0 in target:
        raise NotKnown
    return Value(data.items.reshape(target), data.dtype)


def _expand(values, attrs, inputs) -> Value:
    data, target = _need(values, 0), _ints(values, 1, attrs, "shape")
    if target is None or any(t > _LIMIT for t in target):
        raise NotKnown
    shape = np.broadcast_shapes(data.items.shape, tuple(target))
    return Value(np.broadcast_to(data.items, shape).copy(), data.dtype)


def _constant_of_shape(values, attrs, inputs) -> Value:
    shape = _ints(values, 0, attrs, "")
    if shape is None or any(s > _LIMIT for s in shape) or "value" not in attrs:
        raise NotKnown
    fill = numpy_helper.to_array(attrs["value"].t)
    if str(fill.dtype) not in ("int64", "int32", "bool"):
        raise NotKnown
    return Value(_objects(np.full(shape, fill.item(), fill.dtype)), str(fill.dtype))


def _elementwise(function: Callable[[Any, Any], Any]):
    def rule(values, attrs, inputs) -> Value:
        a, b = _need(values, 0), _need(values, 1)
        if len(values) != 2:
            raise NotKnown
        left, right = np.broadcast_arrays(a.items, b.items)
        out = np.empty(left.shape, object)
        for index in np.ndindex(left.shape):
            out[index] = function(left[index], right[index])
        return Value(out, a.dtype)

    return rule


def _divide(a, b):
    if isinstance(b, int) and b == 0:
        raise NotKnown
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    # Sizes are not negative, so floor and truncation agree.
    return tirx.floordiv(_as_dim(a), _as_dim(b))


def _extreme(choose, symbolic):
    return lambda a, b: (
        choose(a, b) if isinstance(a, int) and isinstance(b, int) else symbolic(_as_dim(a), _as_dim(b))
    )


def _equal(values, attrs, inputs) -> Value:
    a, b = _need(values, 0), _need(values, 1)
    left, right = np.broadcast_arrays(a.items, b.items)
    out = np.empty(left.shape, object)
    for index in np.ndindex(left.shape):
        x, y = left[index], right[index]
        if isinstance(x, int) and isinstance(y, int):
            out[index] = x == y
        elif any(isinstance(v, int) and v < 0 for v in (x, y)):
            # A size never equals the -1 that stands for "keep".
            out[index] = False
        else:
            raise NotKnown
    return Value(out, "bool")


def _where(values, attrs, inputs) -> Value:
    condition, a, b = (_need(values, i) for i in range(3))
    if not condition.is_constant:
        raise NotKnown
    chosen = np.where(condition.items.astype(bool), a.items, b.items)
    return Value(np.asarray(chosen, object), a.dtype)


def _reduce_prod(values, attrs, inputs) -> Value:
    data, axes = _need(values, 0), _ints(values, 1, attrs, "axes")
    if data.items.ndim != 1 or axes not in (None, [], [0], [-1]):
        raise NotKnown
    product: Any = 1
    for item in data.items:
        product = product * item
    keep = attrs["keepdims"].i if "keepdims" in attrs else 1
    out = np.empty((1,) if keep else (), object)
    out[...] = product
    return Value(out, data.dtype)


_RULES: dict[str, Callable[[list, Mapping, list], Value]] = {
    "Shape": _shape,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Cast": _cast,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_divide),
    "Min": _elementwise(_extreme(min, tirx.min)),
    "Max": _elementwise(_extreme(max, tirx.max)),
    "Equal": _equal,
    "Where": _where,
    "ReduceProd": _reduce_prod,
    "Identity": lambda values, attrs, inputs: _need(values, 0),
}
