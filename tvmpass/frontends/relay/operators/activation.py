"""Activations and losses: relu and its kin, bias, flattening, cross entropy."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import dtype_of, is_float, normal_axis, product, rank_of, shape_of
from .layouts import along, require_number
from .shapes import require_same, reshaped

TABLE = Table()


@TABLE.operator("nn.relu")
def relu(emit: Emitter, attrs: Attrs, x):
    """Convert the positive part; NaN stays."""
    require_number(dtype_of(x))
    if is_float(dtype_of(x)):
        return relax.op.nn.relu(x)
    return relax.op.maximum(x, emit.const(0, dtype_of(x)))


@TABLE.operator("nn.leaky_relu")
def leaky_relu(emit: Emitter, attrs: Attrs, x):
    """Convert ``x`` where positive, ``alpha`` times x elsewhere; alpha is cast to the dtype."""
    if is_float(dtype_of(x)):
        return relax.op.nn.leakyrelu(x, float(attrs.alpha))
    alpha, zero = emit.const(int(attrs.alpha), dtype_of(x)), emit.const(0, dtype_of(x))
    return relax.op.where(emit(relax.op.greater(x, zero)), x, emit(relax.op.multiply(x, alpha)))


@TABLE.operator("nn.prelu")
def prelu(emit: Emitter, attrs: Attrs, x, slope):
    """Convert ``x`` where positive, its channel's slope times x elsewhere."""
    require_number(dtype_of(x))
    axis = normal_axis(int(attrs.axis), rank_of(x))
    _check_vector(slope, "slope", x, axis)
    if dtype_of(x).startswith("float") and isinstance(shape_of(x)[axis], int):
        return relax.op.nn.prelu(x, slope, axis)
    scaled = emit(relax.op.multiply(x, along(emit, slope, axis, rank_of(x))))
    return relax.op.where(emit(relax.op.greater(x, emit.const(0, dtype_of(x)))), x, scaled)


@TABLE.operator("nn.bias_add")
def bias_add(emit: Emitter, attrs: Attrs, x, bias):
    """Convert the addition of a vector along an axis."""
    require_number(dtype_of(x))
    axis = normal_axis(int(attrs.axis), rank_of(x))
    _check_vector(bias, "bias", x, axis)
    return relax.op.add(x, along(emit, bias, axis, rank_of(x)))


def _check_vector(vector, what: str, x, axis: int) -> None:
    """Raise `CannotConvert` unless a vector has x's dtype and an axis's length."""
    if rank_of(vector) != 1:
        raise CannotConvert(f"a {what} of rank {rank_of(vector)}, 1 is needed")
    if dtype_of(vector) != dtype_of(x):
        raise CannotConvert(f"a {what} of {dtype_of(vector)} for {dtype_of(x)}")
    size: Any = shape_of(x)[axis]
    length: Any = shape_of(vector)[0]
    if isinstance(size, int) and isinstance(length, int) and size != length:
        raise CannotConvert(f"a {what} of {length} for an axis of {size}")


@TABLE.operator("nn.batch_flatten")
def batch_flatten(emit: Emitter, attrs: Attrs, x):
    """Convert to two axes: the first, and all others merged."""
    if not rank_of(x):
        raise CannotConvert("a scalar has no batch axis")
    batch, *rest = shape_of(x)
    return reshaped(emit, x, [batch, product(rest)])


def _negative_mean(emit: Emitter, terms):
    """Return minus the mean over the batch of the sums over classes."""
    return relax.op.negative(emit(relax.op.mean(emit(relax.op.sum(terms, axis=[1])))))


def _check_pair(x, y) -> None:
    if rank_of(x) != 2 or rank_of(y) != 2:
        raise CannotConvert(f"operands of ranks {rank_of(x)} and {rank_of(y)}, 2 is needed")
    for axis, (one, other) in enumerate(zip(shape_of(x), shape_of(y))):
        require_same(one, other, f"dims {axis} of the operands")


@TABLE.operator("nn.cross_entropy")
def cross_entropy(emit: Emitter, attrs: Attrs, x, y):
    """Convert the cross entropy of probabilities ``x`` under ``y``."""
    _check_pair(x, y)
    return _negative_mean(emit, emit(relax.op.multiply(emit(relax.op.log(x)), y)))


@TABLE.operator("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(emit: Emitter, attrs: Attrs, x, y):
    """Convert the cross entropy of log probabilities ``x`` under ``y``."""
    _check_pair(x, y)
    return _negative_mean(emit, emit(relax.op.multiply(x, y)))


@TABLE.operator("nn.nll_loss")
def nll_loss(emit: Emitter, attrs: Attrs, predictions, targets, weights):
    """Convert the weighted negative log likelihood; classes are axis 1, or the only axis.

    An ignored target may lie outside the classes: it reads class 0 instead.
    """
    dtype, rank = dtype_of(predictions), rank_of(predictions)
    if rank_of(targets) != rank - 1:
        raise CannotConvert(f"targets of rank {rank_of(targets)} for predictions of rank {rank}")
    ignored = emit.const(int(attrs.ignore_index), dtype_of(targets))
    counts = emit(relax.op.not_equal(targets, ignored))
    safe = emit(relax.op.where(counts, targets, emit.const(0, dtype_of(targets))))
    axis = 0 if rank == 1 else 1
    if rank == 1:
        chosen = emit(relax.op.take(predictions, safe, axis=0))
    else:
        at = emit(relax.op.expand_dims(safe, axis))
        chosen = emit(relax.op.squeeze(emit(relax.op.gather_elements(predictions, at, axis)), [axis]))
    zero = emit.const(0, dtype)
    weight = emit(relax.op.where(counts, emit(relax.op.take(weights, safe, axis=0)), zero))
    loss = emit(relax.op.multiply(emit(relax.op.negative(chosen)), weight))
    # 0 times an infinite prediction would be NaN.
    loss = emit(relax.op.where(counts, loss, zero))
    reduction = attrs.word("reduction") or "mean"
    if reduction == "none":
        return loss
    total = emit(relax.op.sum(loss))
    if reduction == "sum":
        return total
    if reduction != "mean":
        raise CannotConvert(f"reduction={reduction!r} is not none, sum or mean")
    return relax.op.divide(total, emit(relax.op.sum(weight)))
