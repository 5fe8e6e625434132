"""Numpy forms of elementwise operators, reductions and what creates tensors."""

from __future__ import annotations

import math

import numpy as np

from .numpy_table import Attributes, operator

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _unary(name: str, function) -> None:
    operator(name)(lambda attrs, x: np.asarray(function(x)).astype(x.dtype, copy=False))


def _binary(name: str, function) -> None:
    operator(name)(lambda attrs, a, b: np.asarray(function(a, b)))


def away_from_zero(x: np.ndarray) -> np.ndarray:
    """Round to integers; halves go away from zero."""
    whole = np.trunc(x)
    return whole + np.sign(x) * (np.abs(x - whole) >= 0.5)


def truncated_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide; integers are truncated toward zero."""
    if a.dtype.kind == "f":
        return a / b
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


for _name, _function in {
    "abs": np.abs,
    "atan": np.arctan,
    "ceil": np.ceil,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "negative": np.negative,
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "round": away_from_zero,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "trunc": np.trunc,
    "zeros_like": np.zeros_like,
}.items():
    _unary(_name, _function)

for _name, _function in {
    "add": np.add,
    "divide": truncated_divide,
    "greater": np.greater,
    "less": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "power": np.power,
    "subtract": np.subtract,
}.items():
    _binary(_name, _function)


@operator("cast")
def cast(attrs: Attributes, x):
    return (x != 0) if attrs.dtype == "bool" else x.astype(attrs.dtype)


@operator("clip")
def clip(attrs: Attributes, x):
    low, high = (x.dtype.type(bound) for bound in (attrs.a_min, attrs.a_max))
    return np.maximum(np.minimum(x, high), low)


@operator("nn.leaky_relu")
def leaky_relu(attrs: Attributes, x):
    return np.where(x > 0, x, x * x.dtype.type(attrs.alpha))


@operator("nn.prelu")
def prelu(attrs: Attributes, x, alpha):
    return np.where(x > 0, x, x * along(alpha, x.ndim, attrs.axis))


@operator("nn.dropout")
def dropout(attrs: Attributes, x):
    return x, np.ones_like(x)


def along(vector: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Reshape a vector so that it broadcasts along one axis."""
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


# -- reductions


def reduced_axes(attrs: Attributes, rank: int) -> tuple[int, ...]:
    """Return the axes that a reduction runs over, with ``exclude`` applied."""
    given = attrs.axis
    if given is None:
        return tuple(range(rank))
    axes = {axis % rank for axis in ([given] if isinstance(given, int) else given)}
    if not axes and not attrs.exclude:
        return tuple(range(rank))
    return tuple(axis for axis in range(rank) if (axis in axes) != attrs.exclude)


def _reduction(name: str, function) -> None:
    def reduce(attrs: Attributes, x):
        axes = reduced_axes(attrs, x.ndim)
        return np.asarray(function(x, axis=axes, keepdims=attrs.keepdims)).astype(x.dtype, copy=False)

    operator(name)(reduce)


def _mean(x, axis, keepdims):
    count = math.prod(x.shape[a] for a in axis)
    return truncated_divide(np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype), x.dtype.type(count))


for _name, _function in {
    "all": np.all,
    "any": np.any,
    "max": np.max,
    "mean": _mean,
    "min": np.min,
    "prod": np.prod,
    "sum": np.sum,
}.items():
    _reduction(_name, _function)


@operator("variance")
def variance(attrs: Attributes, x, mean):
    axes = reduced_axes(attrs, x.ndim)
    count = math.prod(x.shape[a] for a in axes) - int(attrs.unbiased)
    return np.sum((x - mean) ** 2, axis=axes, keepdims=attrs.keepdims) / x.dtype.type(count)


def _best(attrs: Attributes, x, pick):
    axes = reduced_axes(attrs, x.ndim)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*kept, *axes).reshape([x.shape[a] for a in kept] + [-1])
    if attrs.select_last_index:
        found = rows.shape[-1] - 1 - pick(rows[..., ::-1], axis=-1)
    else:
        found = pick(rows, axis=-1)
    shape = [1 if a in axes else x.shape[a] for a in range(x.ndim)] if attrs.keepdims else found.shape
    return np.asarray(found).astype("int32").reshape(shape)


@operator("argmax")
def argmax(attrs: Attributes, x):
    return _best(attrs, x, np.argmax)


@operator("argmin")
def argmin(attrs: Attributes, x):
    return _best(attrs, x, np.argmin)


# -- creation


@operator("zeros")
def zeros(attrs: Attributes):
    return np.zeros(attrs.shape, attrs.dtype)


@operator("ones")
def ones(attrs: Attributes):
    return np.ones(attrs.shape, attrs.dtype)


@operator("full")
def full(attrs: Attributes, value):
    return np.full(attrs.shape, value, attrs.dtype or value.dtype)


@operator("full_like")
def full_like(attrs: Attributes, x, value):
    return np.full(x.shape, value, x.dtype)


@operator("arange")
def arange(attrs: Attributes, start, stop, step):
    count = max(0, math.ceil((stop.item() - start.item()) / step.item()))
    return (start.item() + step.item() * np.arange(count)).astype(attrs.dtype)


@operator("one_hot")
def one_hot(attrs: Attributes, indices, on, off):
    hot = np.where(indices[..., None] == np.arange(attrs.depth), on, off).astype(attrs.dtype)
    return np.moveaxis(hot, -1, attrs.axis) if attrs.axis != -1 else hot


@operator("shape_of")
def shape_of(attrs: Attributes, x):
    return np.array(x.shape, attrs.dtype)


@operator("trilu")
def trilu(attrs: Attributes, x, k):
    return np.triu(x, k.item()) if attrs.upper else np.tril(x, k.item())
