"""Normalisation: batch, layer, group, instance, L2, local response; softmax; dropout."""

from __future__ import annotations

import numpy as np
from tvm import relax, topi

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import dtype_of, normal_axis, rank_of, shape_of
from .layouts import along, known
from .shapes import reshaped

TABLE = Table()


def _filled(emit: Emitter, like, value: float):
    """Return a tensor of the shape and dtype of ``like`` that holds ``value`` everywhere."""
    shape = shape_of(like)
    if all(isinstance(dim, int) for dim in shape):
        return emit.const(np.full(shape, value), dtype_of(like))
    return emit(relax.op.full(shape, emit.const(value, dtype_of(like)), dtype_of(like)))


def _scales(emit: Emitter, attrs: Attrs, gamma, beta):
    """Return what to multiply by and to add.

    ``scale=False`` and ``center=False`` ignore an operand.  Ones and zeros say
    so to every reader; Relax's flags are not heeded by all of its lowerings.
    """
    return (
        gamma if attrs.scale else _filled(emit, gamma, 1.0),
        beta if attrs.center else _filled(emit, beta, 0.0),
    )


@TABLE.operator("nn.batch_norm")
def batch_norm(emit: Emitter, attrs: Attrs, x, gamma, beta, mean, variance):
    """Convert to inference: the running statistics are used and come out unchanged."""
    gamma, beta = _scales(emit, attrs, gamma, beta)
    axis = normal_axis(int(attrs.axis), rank_of(x))
    result = emit(
        relax.op.nn.batch_norm(
            x, gamma, beta, mean, variance, axis=axis, epsilon=float(attrs.epsilon), training=False
        )
    )
    return emit(relax.TupleGetItem(result, 0)), mean, variance


@TABLE.operator("nn.layer_norm")
def layer_norm(emit: Emitter, attrs: Attrs, x, gamma, beta):
    """Convert a normalisation over one axis."""
    gamma, beta = _scales(emit, attrs, gamma, beta)
    axis = normal_axis(int(attrs.axis), rank_of(x))
    return relax.op.nn.layer_norm(x, gamma, beta, axes=[axis], epsilon=float(attrs.epsilon))


def _standardized(emit: Emitter, x, axes: list[int], epsilon: float):
    """Return ``x`` less its mean, over its deviation, over some axes."""
    mean = emit(relax.op.mean(x, axes, keepdims=True))
    centred = emit(relax.op.subtract(x, mean))
    variance = emit(relax.op.mean(emit(relax.op.multiply(centred, centred)), axes, keepdims=True))
    wide = emit(relax.op.add(variance, emit.const(epsilon, dtype_of(x))))
    return emit(relax.op.divide(centred, emit(relax.op.sqrt(wide))))


@TABLE.operator("nn.group_norm")
def group_norm(emit: Emitter, attrs: Attrs, x, gamma, beta):
    """Convert a normalisation over groups of channels and the axes behind them.

    Axes before the channels are not reduced, so that with the channels last a
    group is of channels only.
    """
    rank, groups = rank_of(x), int(attrs.num_groups)
    axis = normal_axis(int(attrs.axis), rank)
    channels = known(shape_of(x)[axis], "the number of channels")
    if groups < 1 or channels % groups:
        raise CannotConvert(f"{channels} channels do not make {groups} groups")
    gamma, beta = _scales(emit, attrs, gamma, beta)
    # Relax's operator has no bfloat16, and needs an axis behind the channels.
    if 0 < axis < rank - 1 and dtype_of(x).startswith("float"):
        return relax.op.nn.group_norm(
            x,
            gamma,
            beta,
            num_groups=groups,
            channel_axis=axis,
            axes=list(range(axis + 1, rank)),
            epsilon=float(attrs.epsilon),
        )
    shape = shape_of(x)
    parted = reshaped(emit, x, [*shape[:axis], groups, channels // groups, *shape[axis + 1 :]])
    parted = _standardized(emit, parted, list(range(axis + 1, rank + 1)), float(attrs.epsilon))
    result = reshaped(emit, parted, shape)
    result = emit(relax.op.multiply(result, along(emit, gamma, axis, rank)))
    return relax.op.add(result, along(emit, beta, axis, rank))


@TABLE.operator("nn.instance_norm")
def instance_norm(emit: Emitter, attrs: Attrs, x, gamma, beta):
    """Convert a normalisation of each channel of each sample."""
    rank = rank_of(x)
    axis = normal_axis(int(attrs.axis), rank)
    gamma, beta = _scales(emit, attrs, gamma, beta)
    axes = [i for i in range(1, rank) if i != axis]
    if axes and axis > 0:
        return relax.op.nn.instance_norm(
            x, gamma, beta, channel_axis=axis, axes=axes, epsilon=float(attrs.epsilon)
        )
    if not axes:
        raise CannotConvert("no axis to normalise over")
    result = _standardized(emit, x, axes, float(attrs.epsilon))
    result = emit(relax.op.multiply(result, along(emit, gamma, axis, rank)))
    return relax.op.add(result, along(emit, beta, axis, rank))


@TABLE.operator("nn.l2_normalize")
def l2_normalize(emit: Emitter, attrs: Attrs, x):
    """Convert a division by the Euclidean norm; the squared norm is at least ``eps``."""
    total = emit(relax.op.sum(emit(relax.op.multiply(x, x)), attrs.ints("axis") or None, keepdims=True))
    least = emit(relax.op.maximum(total, emit.const(float(attrs.eps), dtype_of(x))))
    return relax.op.divide(x, emit(relax.op.sqrt(least)))


@TABLE.operator("nn.lrn")
def lrn(emit: Emitter, attrs: Attrs, x):
    """Convert a normalisation by the squares of neighbouring channels."""
    axis = normal_axis(int(attrs.axis), rank_of(x))
    if rank_of(x) != 4 or axis not in (1, 3):
        raise CannotConvert(f"axis {axis} of rank {rank_of(x)}; Relay computes axis 1 or 3 of rank 4")
    if int(attrs.size) % 2 == 0:
        raise CannotConvert(f"size={attrs.size} must be odd")
    return emit.te(
        lambda a: topi.nn.lrn(
            a, int(attrs.size), axis, float(attrs.alpha), float(attrs.beta), float(attrs.bias)
        ),
        x,
        name="lrn",
    )


@TABLE.operator("nn.softmax", "nn.fast_softmax")
def softmax(emit: Emitter, attrs: Attrs, x):
    """Convert softmax; the fast one is computed exactly."""
    return relax.op.nn.softmax(x, normal_axis(int(attrs.axis), rank_of(x)))


@TABLE.operator("nn.log_softmax")
def log_softmax(emit: Emitter, attrs: Attrs, x):
    """Convert the logarithm of softmax."""
    return relax.op.nn.log_softmax(x, normal_axis(int(attrs.axis), rank_of(x)))


@TABLE.operator("nn.dropout")
def dropout(emit: Emitter, attrs: Attrs, x):
    """Convert to inference: nothing is dropped, the mask is all ones."""
    return x, emit(relax.op.ones_like(x))
