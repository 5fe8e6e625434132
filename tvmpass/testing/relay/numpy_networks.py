"""Numpy forms of products, convolutions, pools, normalisations and padding."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .numpy_elementwise import along
from .numpy_table import Attributes, operator


@operator("nn.dense")
def dense(attrs: Attributes, x, weight):
    # Both are read in the result's dtype, which is that of the first operand.
    dtype = attrs.out_dtype or x.dtype
    return x.astype(dtype) @ weight.astype(dtype).T


@operator("nn.matmul")
def matmul(attrs: Attributes, a, b):
    a = np.swapaxes(a, -1, -2) if attrs.transpose_a else a
    b = np.swapaxes(b, -1, -2) if attrs.transpose_b else b
    dtype = attrs.out_dtype or a.dtype
    return a.astype(dtype) @ b.astype(dtype)


operator("nn.batch_matmul")(matmul)


@operator("nn.bias_add")
def bias_add(attrs: Attributes, x, bias):
    return x + along(bias, x.ndim, attrs.axis)


# -- convolutions: brought to channels first, one window at a time


def _order(layout: str, wanted: str) -> list[int]:
    return [layout.index(letter) for letter in wanted]


def _last(index) -> tuple:
    """Return an index of the last axes of an array."""
    return (Ellipsis, *index)


def sides(padding, rank: int) -> list[tuple[int, int]]:
    """Return (before, after) per spatial axis for the forms of ``padding``."""
    padding = list(padding)
    if len(padding) == 1:
        padding = padding * rank
    if len(padding) == rank:
        padding = padding * 2
    return list(zip(padding[:rank], padding[rank:]))


def convolve(attrs: Attributes, x, weight, rank: int, dtype=None):
    """Convolve in any layout of plain axes."""
    spatial = "DHW"[3 - rank :]
    data_order = _order(attrs.data_layout, "NC" + spatial)
    x = x.transpose(data_order)
    kernel_layout = attrs.kernel_layout
    kernel_order = _order(kernel_layout, "OI" + spatial)
    weight = weight.transpose(kernel_order)
    dtype = dtype or attrs.out_dtype or x.dtype
    x, weight = x.astype(dtype), weight.astype(dtype)
    x = np.pad(x, [(0, 0), (0, 0), *sides(attrs.padding, rank)])
    outputs, inputs = weight.shape[:2]
    groups = attrs.groups
    kernel = weight.shape[2:]
    size = [
        (whole - (k - 1) * d - 1) // s + 1
        for whole, k, d, s in zip(x.shape[2:], kernel, attrs.dilation, attrs.strides)
    ]
    result = np.zeros((x.shape[0], outputs, *size), dtype)
    x = x.reshape(x.shape[0], groups, inputs, *x.shape[2:])
    weight = weight.reshape(groups, outputs // groups, inputs, *kernel)
    for at in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, s, n in zip(at, attrs.dilation, attrs.strides, size)
        )
        part = np.einsum("ngi...,goi->ngo...", x[_last(window)], weight[_last(at)])
        result += part.reshape(result.shape)
    back = np.argsort(data_order)
    return result.transpose(back)


for _rank, _layout in ((1, "NCW"), (2, "NCHW"), (3, "NCDHW")):
    operator(f"nn.conv{_rank}d")(lambda attrs, x, w, rank=_rank: convolve(attrs, x, w, rank))


@operator("nn.conv2d_transpose")
def conv2d_transpose(attrs: Attributes, x, weight):
    if attrs.data_layout != "NCHW" or attrs.groups != 1:
        raise NotImplementedError("conv2d_transpose with a layout or groups")
    pads = sides(attrs.padding, 2)
    kernel = weight.shape[2:]
    full = [
        (n - 1) * s + (k - 1) * d + 1 + o
        for n, s, k, d, o in zip(x.shape[2:], attrs.strides, kernel, attrs.dilation, attrs.output_padding)
    ]
    result = np.zeros((x.shape[0], weight.shape[1], *full), x.dtype)
    for at in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, s, n in zip(at, attrs.dilation, attrs.strides, x.shape[2:])
        )
        result[_last(window)] += np.einsum("ni...,io->no...", x, weight[_last(at)])
    # Padding cuts the result; a negative one widens it.
    result = np.pad(result, [(0, 0), (0, 0), *((max(0, -low), max(0, -high)) for low, high in pads)])
    kept = [slice(max(0, low), n - max(0, high)) for (low, high), n in zip(pads, result.shape[2:])]
    return result[_last(kept)]


# -- pools


def _pool(attrs: Attributes, x, rank: int, average: bool):
    spatial = "DHW"[3 - rank :]
    order = _order(attrs.layout, "NC" + spatial)
    x = x.transpose(order)
    pads = sides(attrs.padding, rank)
    sizes, ends = [], []
    for n, k, s, d, (low, high) in zip(x.shape[2:], attrs.pool_size, attrs.strides, attrs.dilation, pads):
        free = n + low + high - (k - 1) * d - 1
        sizes.append((math.ceil(free / s) if attrs.ceil_mode else free // s) + 1)
        ends.append(max(high, (sizes[-1] - 1) * s + (k - 1) * d + 1 - n - low))
    outside = 0 if average else (np.finfo if x.dtype.kind == "f" else np.iinfo)(x.dtype).min
    widths = [(0, 0), (0, 0), *((low, end) for (low, _), end in zip(pads, ends))]
    padded = np.pad(x, widths, constant_values=outside)
    counted = np.pad(np.ones(x.shape[2:], bool), widths[2:])
    if average and attrs.count_include_pad:
        counted[tuple(slice(0, n + low + high) for n, (low, high) in zip(x.shape[2:], pads))] = True
    parts, counts = [], []
    for at in itertools.product(*map(range, attrs.pool_size)):
        window = tuple(
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, s, n in zip(at, attrs.dilation, attrs.strides, sizes)
        )
        parts.append(padded[_last(window)])
        counts.append(counted[window])
    if average:
        result = np.sum(parts, axis=0, dtype=x.dtype) / np.maximum(np.sum(counts, axis=0), 1)
    else:
        result = np.max(parts, axis=0)
    return result.astype(x.dtype).transpose(np.argsort(order))


for _rank in (1, 2, 3):
    operator(f"nn.max_pool{_rank}d")(lambda attrs, x, rank=_rank: _pool(attrs, x, rank, average=False))
    operator(f"nn.avg_pool{_rank}d")(lambda attrs, x, rank=_rank: _pool(attrs, x, rank, average=True))


@operator("nn.global_avg_pool2d")
def global_avg_pool2d(attrs: Attributes, x):
    axes = tuple(attrs.layout.index(letter) for letter in "HW")
    return x.mean(axis=axes, keepdims=True, dtype=x.dtype)


@operator("nn.global_max_pool2d")
def global_max_pool2d(attrs: Attributes, x):
    return x.max(axis=tuple(attrs.layout.index(letter) for letter in "HW"), keepdims=True)


def _adaptive(attrs: Attributes, x, function):
    order = _order(attrs.layout, "NCHW")
    x = x.transpose(order)
    wanted = list(attrs.output_size or x.shape[2:])
    wanted = wanted * 2 if len(wanted) == 1 else wanted
    result = np.empty((*x.shape[:2], *wanted), x.dtype)
    for at in itertools.product(*map(range, wanted)):
        bounds = [slice(a * n // m, -(-(a + 1) * n // m)) for a, n, m in zip(at, x.shape[2:], wanted)]
        result[_last(at)] = function(x[_last(bounds)], axis=(2, 3))
    return result.transpose(np.argsort(order))


@operator("nn.adaptive_avg_pool2d")
def adaptive_avg_pool2d(attrs: Attributes, x):
    return _adaptive(attrs, x, np.mean)


@operator("nn.adaptive_max_pool2d")
def adaptive_max_pool2d(attrs: Attributes, x):
    return _adaptive(attrs, x, np.max)


# -- normalisation


def _softmax(x, axis):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@operator("nn.softmax", "nn.fast_softmax")
def softmax(attrs: Attributes, x):
    return _softmax(x, attrs.axis)


@operator("nn.log_softmax")
def log_softmax(attrs: Attributes, x):
    shifted = x - x.max(axis=attrs.axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=attrs.axis, keepdims=True))


@operator("nn.batch_norm")
def batch_norm(attrs: Attributes, x, gamma, beta, mean, variance):
    mean_, variance_ = along(mean, x.ndim, attrs.axis), along(variance, x.ndim, attrs.axis)
    y = (x - mean_) / np.sqrt(variance_ + x.dtype.type(attrs.epsilon))
    return (
        _affine(attrs, y, along(gamma, x.ndim, attrs.axis), along(beta, x.ndim, attrs.axis)),
        mean,
        variance,
    )


def _affine(attrs: Attributes, y, gamma, beta):
    y = y * gamma if attrs.scale else y
    return y + beta if attrs.center else y


def _standard(x, axes, epsilon):
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + x.dtype.type(epsilon))


@operator("nn.layer_norm")
def layer_norm(attrs: Attributes, x, gamma, beta):
    y = _standard(x, (attrs.axis,), attrs.epsilon)
    return _affine(attrs, y, along(gamma, x.ndim, attrs.axis), along(beta, x.ndim, attrs.axis))


@operator("nn.group_norm")
def group_norm(attrs: Attributes, x, gamma, beta):
    if attrs.axis != 1:
        raise NotImplementedError("group_norm on another axis")
    groups = x.reshape(x.shape[0], attrs.num_groups, -1)
    y = _standard(groups, (2,), attrs.epsilon).reshape(x.shape)
    return _affine(attrs, y, along(gamma, x.ndim, 1), along(beta, x.ndim, 1))


@operator("nn.instance_norm")
def instance_norm(attrs: Attributes, x, gamma, beta):
    axis = attrs.axis % x.ndim
    axes = tuple(a for a in range(1, x.ndim) if a != axis)
    y = _standard(x, axes, attrs.epsilon)
    return _affine(attrs, y, along(gamma, x.ndim, axis), along(beta, x.ndim, axis))


@operator("nn.l2_normalize")
def l2_normalize(attrs: Attributes, x):
    axes = tuple(attrs.axis) if attrs.axis else tuple(range(x.ndim))
    return x / np.sqrt(np.maximum((x * x).sum(axis=axes, keepdims=True), x.dtype.type(attrs.eps)))


@operator("nn.lrn")
def lrn(attrs: Attributes, x):
    half = attrs.size // 2
    widths = [(half, half) if a == attrs.axis else (0, 0) for a in range(x.ndim)]
    squares = np.pad(x * x, widths)
    total = sum(np.take(squares, range(i, i + x.shape[attrs.axis]), attrs.axis) for i in range(attrs.size))
    return (x / (attrs.bias + attrs.alpha * total / attrs.size) ** attrs.beta).astype(x.dtype)


# -- padding


@operator("nn.pad")
def pad(attrs: Attributes, x, value):
    widths = [tuple(pair) for pair in attrs.pad_width]
    if attrs.pad_mode == "constant":
        return np.pad(x, widths, constant_values=value.item())
    return np.pad(x, widths, mode=attrs.pad_mode)


@operator("nn.mirror_pad")
def mirror_pad(attrs: Attributes, x):
    widths = [tuple(pair) for pair in attrs.pad_width]
    return np.pad(x, widths, mode="reflect" if attrs.mode == "REFLECT" else "symmetric")


# -- images


def _source(attrs: Attributes, old: int, new: int) -> np.ndarray:
    """Return the place in the old image of each pixel of the new one."""
    at = np.arange(new, dtype="float32")
    scale = np.float32(old) / np.float32(new)
    mode = attrs.coordinate_transformation_mode
    if mode == "half_pixel":
        return (at + np.float32(0.5)) * scale - np.float32(0.5)
    if mode == "align_corners":
        return np.float32(old - 1) / np.float32(new - 1) * at
    if mode == "asymmetric":
        return scale * at
    raise NotImplementedError(f"resize with {mode}")


def _weights(attrs: Attributes, old: int, new: int) -> np.ndarray:
    """Return the matrix (new, old) that resizes one axis."""
    place = _source(attrs, old, new)
    matrix = np.zeros((new, old), "float32")
    low = np.floor(place)
    part = place - low
    if attrs.method == "nearest_neighbor":
        method = attrs.rounding_method or (
            "round" if attrs.coordinate_transformation_mode == "align_corners" else "floor"
        )
        small = np.float32(1e-5)
        picked = {
            "round": np.rint(place),
            "round_prefer_floor": np.ceil(place - np.float32(0.5)),
            "round_prefer_ceil": np.floor(place + np.float32(0.5)),
            "floor": np.floor(place + small),
            "ceil": np.ceil(place - small),
        }[method]
        taps = [(picked, np.ones_like(part))]
    elif attrs.method == "linear":
        taps = [(low, 1 - part), (low + 1, part)]
    else:
        if attrs.cubic_exclude:
            raise NotImplementedError("resize with cubic_exclude")
        a, t = np.float32(attrs.cubic_alpha), part
        taps = [
            (low - 1, a * (t**3 - 2 * t**2 + t)),
            (low, (a + 2) * t**3 - (a + 3) * t**2 + 1),
            (low + 1, -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t),
            (low + 2, -a * t**3 + a * t**2),
        ]
    for index, weight in taps:
        np.add.at(matrix, (np.arange(new), np.clip(index, 0, old - 1).astype(int)), weight)
    return matrix


@operator("image.resize2d")
def resize2d(attrs: Attributes, x):
    order = _order(attrs.layout, "NCHW")
    x = x.transpose(order)
    rows = _weights(attrs, x.shape[2], attrs.size[0])
    columns = _weights(attrs, x.shape[3], attrs.size[1])
    result = np.einsum("ph,nchw,qw->ncpq", rows, x, columns)
    return result.astype(attrs.out_dtype or x.dtype).transpose(np.argsort(order))
