"""Softmax and normalisations over axes, in forms that schedule well."""

from __future__ import annotations

from tvm import te, tirx

from .legalize_elementwise import Legalize
from .legalize_reduce import (
    accumulator,
    axes_of,
    dim_product,
    max_reducer,
    mean_of,
    reciprocal,
    reduce_axes,
)


def _exponentials(x: te.Tensor, axis: int):
    """Return ``(shifted, exponentials, their sum)`` along an axis, in the accumulator dtype.

    A NaN that the maximum loses comes back through the exponential of its own element.
    """
    dtype = accumulator(x.dtype)
    top = reduce_axes(x, [axis], True, max_reducer(nan=False), name="T_softmax_max")

    def at(tensor, index):
        return tensor(*[0 if i == axis else v for i, v in enumerate(index)])

    def shifted(*index):
        return x(*index).astype(dtype) - at(top, index)

    exponential = te.compute(x.shape, lambda *i: tirx.exp(shifted(*i)), name="T_softmax_exp")
    total = reduce_axes(exponential, [axis], True, te.sum, name="T_softmax_sum")
    return shifted, exponential, lambda index: at(total, index)


def _softmax(bb, call):
    def softmax(x):
        axis = int(call.attrs.axis) % len(x.shape)
        _, exponential, total = _exponentials(x, axis)
        return te.compute(
            x.shape, lambda *i: (exponential(*i) / total(i)).astype(x.dtype), name="T_softmax_norm"
        )

    return bb.call_te(softmax, call.args[0], primfunc_name_hint="softmax")


def _log_softmax(bb, call):
    def log_softmax(x):
        axis = int(call.attrs.axis) % len(x.shape)
        shifted, _, total = _exponentials(x, axis)
        return te.compute(
            x.shape, lambda *i: (shifted(*i) - tirx.log(total(i))).astype(x.dtype), name="T_log_softmax"
        )

    return bb.call_te(log_softmax, call.args[0], primfunc_name_hint="log_softmax")


def _layer_norm(bb, call):
    attrs = call.attrs

    def layer_norm(x, *scales):
        rank, dtype = len(x.shape), accumulator(x.dtype)
        axes = axes_of(attrs.axes, rank)

        def at(tensor, index):
            return tensor(*[0 if i in axes else v for i, v in enumerate(index)])

        mean = mean_of(x, axes, True, name="T_layer_norm_mean")

        def square(value, index):
            centred = value - at(mean, index)
            return centred * centred

        variance = mean_of(x, axes, True, square, name="T_layer_norm_variance")
        factor = te.compute(
            variance.shape,
            lambda *i: (
                tirx.const(1, dtype) / tirx.sqrt(variance(*i) + tirx.const(float(attrs.epsilon), dtype))
            ),
            name="T_layer_norm_factor",
        )

        def compute(*index):
            value = (x(*index).astype(dtype) - at(mean, index)) * at(factor, index)
            inner = [index[axis] for axis in axes]
            if attrs.scale:
                value = value * scales[0](*inner).astype(dtype)
            if attrs.center:
                value = value + scales[1](*inner).astype(dtype)
            return value.astype(x.dtype)

        return te.compute(x.shape, compute, name="T_layer_norm")

    return bb.call_te(layer_norm, *call.args, primfunc_name_hint="layer_norm")


def _group_norm(bb, call):
    return _grouped(bb, call, int(call.attrs.num_groups), "group_norm")


def _instance_norm(bb, call):
    return _grouped(bb, call, None, "instance_norm")


def _grouped(bb, call, groups: int | None, name: str):
    """Normalise over groups of channels and the given axes; ``groups`` None is one per channel."""
    attrs = call.attrs

    def normalise(x, gamma, beta):
        rank, dtype = len(x.shape), accumulator(x.dtype)
        channel = int(attrs.channel_axis) % rank
        axes = [axis for axis in axes_of(attrs.axes, rank) if axis != channel]
        outer = [axis for axis in range(rank) if axis != channel and axis not in axes]
        count = x.shape[channel] if groups is None else groups
        width = 1 if groups is None else x.shape[channel] // groups
        shape = [*(x.shape[axis] for axis in outer), count]
        scale = reciprocal(dim_product(x, axes) * width, dtype)

        def mean(element, stage: str):
            inner = te.reduce_axis((0, width), "kc")
            steps = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}

            def compute(*index):
                place = dict(zip(outer, index)) | {axis: step.var for axis, step in steps.items()}
                place[channel] = index[-1] * width + inner.var
                value = x(*[place[axis] for axis in range(rank)]).astype(dtype)
                return te.sum(element(value, index), axis=[inner, *steps.values()])

            total = te.compute(shape, compute, name=f"T_{name}_{stage}_sum")
            return te.compute(shape, lambda *i: total(*i) * scale, name=f"T_{name}_{stage}")

        centre = mean(lambda value, index: value, "mean")

        def square(value, index):
            centred = value - centre(*index)
            return centred * centred

        variance = mean(square, "variance")
        epsilon = tirx.const(float(attrs.epsilon), dtype)
        factor = te.compute(
            shape,
            lambda *i: tirx.const(1, dtype) / tirx.sqrt(variance(*i) + epsilon),
            name=f"T_{name}_factor",
        )

        def compute(*index):
            group = [*(index[axis] for axis in outer), tirx.floordiv(index[channel], width)]
            value = (x(*index).astype(dtype) - centre(*group)) * factor(*group)
            if attrs.scale:
                value = value * gamma(index[channel]).astype(dtype)
            if attrs.center:
                value = value + beta(index[channel]).astype(dtype)
            return value.astype(x.dtype)

        return te.compute(x.shape, compute, name=f"T_{name}")

    return bb.call_te(normalise, *call.args, primfunc_name_hint=name)


def _rms_norm(bb, call):
    attrs = call.attrs

    def rms_norm(x, weight):
        rank, dtype = len(x.shape), accumulator(x.dtype)
        axes = axes_of(attrs.axes, rank)
        mean = mean_of(x, axes, True, lambda value, index: value * value, name="T_rms_norm_mean")
        epsilon = tirx.const(float(attrs.epsilon), dtype)
        factor = te.compute(
            mean.shape,
            lambda *i: tirx.const(1, dtype) / tirx.sqrt(mean(*i) + epsilon),
            name="T_rms_norm_factor",
        )

        def compute(*index):
            scale = factor(*[0 if i in axes else v for i, v in enumerate(index)])
            value = x(*index).astype(dtype) * scale
            return (value * weight(*[index[axis] for axis in axes]).astype(dtype)).astype(x.dtype)

        return te.compute(x.shape, compute, name="T_rms_norm")

    return bb.call_te(rms_norm, *call.args, primfunc_name_hint="rms_norm")


def normalisations() -> dict[str, Legalize]:
    """Return the legalisations of softmax, log-softmax and the norms."""
    return {
        "relax.nn.softmax": _softmax,
        "relax.nn.log_softmax": _log_softmax,
        "relax.nn.group_norm": _group_norm,
        "relax.nn.instance_norm": _instance_norm,
        "relax.nn.layer_norm": _layer_norm,
        "relax.nn.rms_norm": _rms_norm,
    }
