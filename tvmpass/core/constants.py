"""Evaluate Relax calls on constants with numpy.

TVM's own folding compiles one function per call.  Here each operator is one
numpy expression with the operator's exact result type; what is not listed, or
would take too much memory, is left in the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

GenericConst = tvm.ir.GenericConst
Arrays = Sequence[Any]

# A result larger than this many bytes is never folded,
LIMIT_BYTES = 1 << 28
# and one larger than this only where it is at most twice its operands.
GROWTH_BYTES = 1 << 16
_MATMUL_FLOPS = 1 << 28


def constant_array(expr) -> np.ndarray | None:
    """Return the value of a Relax constant as an array, else None."""
    return expr.value.numpy() if isinstance(expr, GenericConst) else None


def make_constant(array: np.ndarray):
    """Return a Relax constant of exactly the array's dtype and shape."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return relax.const(tvm.runtime.tensor(array))


def evaluate(call: relax.Call, arrays: Arrays) -> np.ndarray | None:
    """Return the value of ``call`` on constant arguments, or None where it cannot be had.

    ``arrays`` holds per argument of ``call`` an array, a sequence of arrays
    for a tuple, or None for what is no tensor (shapes, attributes).  The result
    has the dtype and shape of ``call.ty``; None is returned for operators that
    are not covered, symbolic results, results whose meaning is not fixed (an
    index out of range, a cast of NaN to an integer) and results over the limit.
    """
    if not isinstance(call.op, tvm.ir.Op):
        return None
    rule = _RULES.get(call.op.name)
    shape, dtype = _result_type(call)
    if rule is None or shape is None or dtype is None or not _fits(shape, dtype, arrays):
        return None
    if 0 in shape:
        # TVM cannot load a stored constant without elements.
        return None
    with np.errstate(all="ignore"):
        value = rule(call, arrays, shape, dtype)
    if value is None:
        return None
    value = np.asarray(value)
    if value.shape != shape or value.dtype != dtype:
        return None
    return value


def fold(call: relax.Call, value_of: Callable[[Any], Any]):
    """Return ``call`` as a constant, or None.

    ``value_of`` maps an argument to what it is bound to (see `FunctionView.value`).
    """
    if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _RULES:
        return None
    arrays: list[Any] = []
    for arg in call.args:
        value = value_of(arg)
        if isinstance(value, relax.Tuple):
            items = [constant_array(value_of(item)) for item in value.fields]
            if any(item is None for item in items) and not all(_is_number(item) for item in value.fields):
                return None
            arrays.append(items)
        elif isinstance(value, GenericConst):
            arrays.append(value.value.numpy())
        elif isinstance(value, relax.ShapeExpr) or _is_number(value):
            arrays.append(None)
        else:
            return None
    result = evaluate(call, arrays)
    return None if result is None else make_constant(result)


def _is_number(expr) -> bool:
    return isinstance(expr, (tirx.IntImm, tirx.FloatImm))


def _result_type(call) -> tuple[tuple[int, ...] | None, np.dtype | None]:
    ty = call.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None, None
    if not all(isinstance(dim, tirx.IntImm) for dim in ty.shape.values):
        return None, None
    try:
        return tuple(int(dim) for dim in ty.shape.values), np.dtype(_numpy_name(str(ty.dtype)))
    except TypeError:
        return None, None


def _numpy_name(dtype: str):
    if dtype == "bfloat16" or dtype.startswith("float8"):
        import ml_dtypes

        return getattr(ml_dtypes, dtype, dtype)
    return dtype


def _fits(shape, dtype, arrays: Arrays) -> bool:
    size = math.prod(shape) * dtype.itemsize
    flat = [a for item in arrays for a in (item if isinstance(item, list) else [item])]
    given = sum(array.nbytes for array in flat if array is not None)
    return size <= GROWTH_BYTES or size <= min(LIMIT_BYTES, 2 * given)


Rule = Callable[[relax.Call, Arrays, tuple[int, ...], np.dtype], Any]


def _unary(function: Callable[[np.ndarray], np.ndarray]) -> Rule:
    return lambda call, a, shape, dtype: np.asarray(function(a[0])).astype(dtype, copy=False)


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Rule:
    def rule(call, a, shape, dtype):
        if a[0].dtype != a[1].dtype:
            return None
        return np.asarray(function(a[0], a[1])).astype(dtype, copy=False)

    return rule


def _divide(a, b):
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, np.where(b == 0, b.dtype.type(1), b))
    # numpy floors; the operator truncates towards zero, and gives 0 for x / 0.
    quotient = quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return np.where(b == 0, a.dtype.type(0), quotient)


def _floor_divide(a, b):
    if a.dtype.kind not in "iu":
        return np.floor(a / b)
    return np.where(b == 0, a.dtype.type(0), np.floor_divide(a, np.where(b == 0, b.dtype.type(1), b)))


def _mod(a, b):
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _floor_mod(a, b):
    if a.dtype.kind not in "iu":
        return a - np.floor(a / b) * b
    return np.where(b == 0, a.dtype.type(0), np.mod(a, np.where(b == 0, b.dtype.type(1), b)))


def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)) if x.size <= 1 << 16 else None


def _sigmoid(x):
    return (1.0 / (1.0 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def _reduce(function) -> Rule:
    def rule(call, a, shape, dtype):
        axis = call.attrs.axis
        axes = None if axis is None else tuple(int(i) for i in axis)
        if function in (np.max, np.min, np.mean) and a[0].size == 0:
            return None
        extra = {"dtype": dtype} if function in (np.sum, np.prod) else {}
        return np.asarray(function(a[0], axis=axes, keepdims=bool(call.attrs.keepdims), **extra)).astype(
            dtype, copy=False
        )

    return rule


def _reshape(call, a, shape, dtype):
    return a[0].reshape(shape)


def _broadcast(call, a, shape, dtype):
    return np.broadcast_to(a[0], shape)


def _permute(call, a, shape, dtype):
    axes = call.attrs.axes
    return np.transpose(a[0], None if axes is None else [int(i) for i in axes])


def _astype(call, a, shape, dtype):
    source = a[0]
    if dtype.kind in "iu" and source.dtype.kind not in "iub":
        limits = np.iinfo(dtype)
        wide = source.astype(np.float64)
        if not np.all((wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)):
            return None
    return source.astype(dtype)


def _take(call, a, shape, dtype):
    axis = call.attrs.axis
    data, index = a
    flat = data.reshape(-1) if axis is None else data
    extent = flat.shape[0 if axis is None else int(axis)]
    if index.size and (index.min() < 0 or index.max() >= extent):
        return None
    return np.take(flat, index, axis=0 if axis is None else int(axis))


def _gather_elements(call, a, shape, dtype):
    axis = int(call.attrs.axis)
    extent = a[0].shape[axis]
    if a[1].size and not (-extent <= a[1].min() and a[1].max() < extent):
        return None
    return np.take_along_axis(a[0], a[1], axis)


def _concat(call, a, shape, dtype):
    axis = call.attrs.axis
    if axis is None:
        return np.concatenate([item.reshape(-1) for item in a[0]])
    return np.concatenate(a[0], axis=int(axis))


def _strided_slice(call, a, shape, dtype):
    numbers = []
    for arg in call.args[1:]:
        if not isinstance(arg, relax.Tuple) or not all(isinstance(item, tirx.IntImm) for item in arg.fields):
            return None
        numbers.append([int(item) for item in arg.fields])
    axes, begins, ends = numbers[:3]
    steps = numbers[3] if len(numbers) > 3 else [1] * len(axes)
    index: list[slice] = [slice(None)] * a[0].ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps):
        stop: int | None = end
        if step < 0 and end < -a[0].shape[axis]:
            stop = None
        index[axis] = slice(begin, stop, step)
    # A result of another shape than TVM's inference says is refused by the caller.
    return a[0][tuple(index)]


def _full(value: Callable[[relax.Call, Arrays], Any]) -> Rule:
    return lambda call, a, shape, dtype: np.full(shape, value(call, a), dtype)


def _shape_to_tensor(call, a, shape, dtype):
    dims = call.args[0].values if isinstance(call.args[0], relax.ShapeExpr) else None
    if dims is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
        return None
    return np.array([int(dim) for dim in dims], np.int64)


def _matmul(call, a, shape, dtype):
    if math.prod(shape) * a[0].shape[-1] * 2 > _MATMUL_FLOPS:
        return None
    return np.matmul(a[0].astype(dtype, copy=False), a[1].astype(dtype, copy=False))


def _clip(call, a, shape, dtype):
    low, high = call.args[1], call.args[2]
    if not (_is_number(low) and _is_number(high)):
        return None
    return np.clip(a[0], dtype.type(low.value), dtype.type(high.value))


def _repeat(call, a, shape, dtype):
    axis = call.attrs.axis
    return np.repeat(a[0], int(call.attrs.repeats), axis=None if axis is None else int(axis))


def _tile(call, a, shape, dtype):
    return np.tile(a[0], [int(i) for i in call.attrs.repeats])


def _flip(call, a, shape, dtype):
    return np.flip(a[0], int(call.attrs.axis))


def _where(call, a, shape, dtype):
    return np.where(a[0].astype(bool), a[1], a[2]) if a[1].dtype == a[2].dtype else None


_NUMPY_UNARY: dict[str, Callable] = {
    "abs": np.abs, "bitwise_not": np.invert, "ceil": np.ceil, "cos": np.cos, "erf": _erf, "exp": np.exp,
    "floor": np.floor, "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "log": np.log,
    "logical_not": np.logical_not, "negative": np.negative, "round": np.rint, "sigmoid": _sigmoid,
    "sign": np.sign, "sin": np.sin, "sqrt": np.sqrt, "square": np.square, "tanh": np.tanh, "trunc": np.trunc,
    "rsqrt": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype),
}  # fmt: skip
_NUMPY_BINARY: dict[str, Callable] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": _divide, "power": np.power,
    "floor_divide": _floor_divide, "mod": _mod, "floor_mod": _floor_mod,
    "maximum": np.maximum, "minimum": np.minimum,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
_RULES: dict[str, Rule] = {
    **{f"relax.{name}": _unary(function) for name, function in _NUMPY_UNARY.items()},
    **{f"relax.{name}": _binary(function) for name, function in _NUMPY_BINARY.items()},
    "relax.nn.relu": _unary(lambda x: np.maximum(x, x.dtype.type(0))),
    "relax.sum": _reduce(np.sum),
    "relax.prod": _reduce(np.prod),
    "relax.max": _reduce(np.max),
    "relax.min": _reduce(np.min),
    "relax.mean": _reduce(np.mean),
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
    "relax.broadcast_to": _broadcast,
    "relax.permute_dims": _permute,
    "relax.astype": _astype,
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.concat": _concat,
    "relax.strided_slice": _strided_slice,
    "relax.full": _full(lambda call, a: a[1].item()),
    "relax.zeros": _full(lambda call, a: 0),
    "relax.ones": _full(lambda call, a: 1),
    "relax.full_like": _full(lambda call, a: a[1].item()),
    "relax.zeros_like": _full(lambda call, a: 0),
    "relax.ones_like": _full(lambda call, a: 1),
    "relax.shape_to_tensor": _shape_to_tensor,
    "relax.matmul": _matmul,
    "relax.clip": _clip,
    "relax.repeat": _repeat,
    "relax.tile": _tile,
    "relax.flip": _flip,
    "relax.where": _where,
}
