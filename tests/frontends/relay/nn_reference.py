"""What convolutions and pools compute, in numpy, written from their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np


def convolution(x, weight, strides, padding, dilation=None, groups=1, dtype=None):
    """Return the convolution of (n, c, ...) by (o, i, ...); ``padding`` all begins, then all ends."""
    rank = x.ndim - 2
    dilation = dilation or [1] * rank
    dtype = dtype or x.dtype
    pads = [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:])]
    wide = np.pad(x, pads).astype(dtype)
    size = [
        (wide.shape[i + 2] - (weight.shape[i + 2] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in range(rank)
    ]
    outputs, inputs = weight.shape[0] // groups, x.shape[1] // groups
    result = np.zeros((x.shape[0], weight.shape[0], *size), dtype)
    for place in itertools.product(*map(range, weight.shape[2:])):
        window = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilation, size, strides)
        )
        for g in range(groups):
            rows = slice(g * outputs, (g + 1) * outputs)
            columns = slice(g * inputs, (g + 1) * inputs)
            w = weight[(rows, slice(None), *place)].astype(dtype)
            result[:, rows] += np.einsum("oi,ni...->no...", w, wide[(slice(None), columns, *window)]).astype(
                dtype
            )
    return result


def transposed_convolution(x, weight, strides, padding, extra, dilation=None, groups=1):
    """Return the transposed convolution of (n, c, ...) by (in, out / groups, ...)."""
    rank = x.ndim - 2
    dilation = dilation or [1] * rank
    full = [
        (x.shape[i + 2] - 1) * strides[i] + (weight.shape[i + 2] - 1) * dilation[i] + 1 + extra[i]
        for i in range(rank)
    ]
    inputs, outputs = x.shape[1] // groups, weight.shape[1]
    result = np.zeros((x.shape[0], outputs * groups, *full), x.dtype)
    for place in itertools.product(*map(range, weight.shape[2:])):
        window = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, dilation, x.shape[2:], strides)
        )
        for g in range(groups):
            rows, columns = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
            w = weight[(rows, slice(None), *place)]
            result[(slice(None), columns, *window)] += np.einsum("io,ni...->no...", w, x[:, rows])
    crop = tuple(slice(padding[i], full[i] - padding[i + rank]) for i in range(rank))
    return result[(slice(None), slice(None), *crop)]


def pool(x, kind, size, strides, padding, dilation=None, ceil=False, include=False):
    """Return the pool of (n, c, ...): Relay's sizes, and its count of what is averaged."""
    rank = x.ndim - 2
    dilation = dilation or [1] * rank
    reach = [(size[i] - 1) * dilation[i] + 1 for i in range(rank)]
    spare = [x.shape[i + 2] + padding[i] + padding[i + rank] - reach[i] for i in range(rank)]
    out = [(math.ceil(n / s) if ceil else n // s) + 1 for n, s in zip(spare, strides)]
    result = np.zeros((*x.shape[:2], *out), x.dtype)
    for place in itertools.product(*map(range, out)):
        picked, counts = [], []
        for i, p in enumerate(place):
            at = [p * strides[i] - padding[i] + k * dilation[i] for k in range(size[i])]
            picked.append([a for a in at if 0 <= a < x.shape[i + 2]])
            last = min(at[-1], x.shape[i + 2] + padding[i + rank] - 1)
            counts.append(int((last - at[0]) / dilation[i]) + 1)
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *picked)]
        axes = tuple(range(2, x.ndim))
        if kind == "max":
            value = window.max(axes, initial=-np.inf) if window.size else -np.inf
        else:
            count = math.prod(counts) if include else max(math.prod(map(len, picked)), 1)
            value = window.sum(axes) / count
        result[(slice(None), slice(None), *place)] = value
    return result


def adaptive_pool(x, kind, out):
    """Return the adaptive pool of (n, c, ...)."""
    result = np.zeros((*x.shape[:2], *out), x.dtype)
    for place in itertools.product(*map(range, out)):
        window = tuple(slice(p * n // o, -(-(p + 1) * n // o)) for p, n, o in zip(place, x.shape[2:], out))
        part = x[(slice(None), slice(None), *window)]
        result[(slice(None), slice(None), *place)] = getattr(part, kind)(tuple(range(2, x.ndim)))
    return result


def packed(x, axis, block):
    """Return an array with the blocks of one axis split off to the end: NCHW to NCHW4c."""
    shape = [*x.shape[:axis], x.shape[axis] // block, block, *x.shape[axis + 1 :]]
    return np.ascontiguousarray(np.moveaxis(x.reshape(shape), axis + 1, -1))
