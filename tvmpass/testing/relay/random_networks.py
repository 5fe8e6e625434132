"""Random calls of products, convolutions, pools, normalisations, padding, resizing."""

from __future__ import annotations

import math

from .building import GRID, Builder
from .values import INEXACT, Range, Value, product, repeated, total

FEW = Range(-1, 1, 1)
"""Weights: halves, so that sums of products stay exact and small."""


def shaped(b: Builder, x: Value, rank: int) -> Value | None:
    """Return ``x``, or another float32 tensor of this rank, or a new parameter."""
    if x.is_float and x.dtype == "float32" and len(x.shape) == rank and x.range.size <= 8:
        return x
    found = b.find(
        lambda y: y.is_float and y.dtype == "float32" and len(y.shape) == rank and y.range.size <= 8
    )
    if found is not None or len(b.params) > 5:
        return found
    return b.parameter([b.number(1, 2), *(b.number(2, 6) for _ in range(rank - 1))], "float32")


def _sums(x: Range, weight: Range, count: int) -> Range:
    return repeated(product(x, weight), count)


def dense(b: Builder, x: Value) -> Value | None:
    data = shaped(b, x, 2)
    if data is None:
        return None
    rows, columns = b.number(1, 5), data.shape[1]
    span = _sums(data.range, FEW, columns)
    if b.chance(3):
        left, right = b.chance(), b.chance()
        inner = data.shape[0] if left else columns
        weight = b.filled([rows, inner] if right else [inner, rows], "float32", FEW)
        attrs: dict = {"units": None}
        attrs |= {"transpose_a": True} if left else {}
        attrs |= {"transpose_b": True} if right else {}
        return b.call("nn.matmul", [data, weight], _sums(data.range, FEW, inner), attrs)
    made = b.call(
        "nn.dense", [data, b.filled([rows, columns], "float32", FEW)], span, {"units": b.pick([rows, None])}
    )
    return _biased(b, made, -1) if made is not None and b.chance() else made


def batch_matmul(b: Builder, x: Value) -> Value | None:
    data = shaped(b, x, 3)
    if data is None:
        return None
    batch, _, inner = data.shape
    count = b.number(1, 4)
    if b.chance():
        weight = b.filled([batch, count, inner], "float32", FEW)
        return b.call("nn.batch_matmul", [data, weight], _sums(data.range, FEW, inner), {"transpose_b": True})
    weight = b.filled([batch, inner, count], "float32", FEW)
    return b.call("nn.batch_matmul", [data, weight], _sums(data.range, FEW, inner))


def _biased(b: Builder, x: Value, axis: int) -> Value | None:
    bias = b.filled([x.shape[axis]], x.dtype)
    attrs: dict = {} if axis == 1 else {"axis": axis}
    return b.call("nn.bias_add", [x, bias], total(x.range, GRID), attrs)


def biased(b: Builder, x: Value) -> Value | None:
    if len(x.shape) < 2 or not x.is_float:
        return None
    return _biased(b, x, b.pick([1, -1]))


LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def convolved(b: Builder, x: Value) -> Value | None:
    rank = b.pick([2, 2, 1, 3])
    data = shaped(b, x, rank + 2)
    if data is None:
        return None
    last = rank == 2 and b.chance(4)
    spatial = data.shape[1:-1] if last else data.shape[2:]
    channels = data.shape[-1] if last else data.shape[1]
    groups = b.pick([g for g in (1, 2, channels) if channels % g == 0]) if not last else 1
    outputs = groups * b.number(1, 3 if groups < 3 else 1)
    kernel = [min(b.pick([3, 1, 2]), size) for size in spatial]
    pads = [b.number(0, 1) for _ in range(b.pick([2 * rank, 2 * rank, rank, 1]))]
    inputs = channels // groups
    shape = [*kernel, inputs, outputs] if last else [outputs, inputs, *kernel]
    weight = b.filled(shape, "float32", FEW)
    attrs: dict = {"padding": pads, "channels": outputs, "kernel_size": kernel}
    if b.chance(3):
        attrs["strides"] = [b.number(1, 2) for _ in range(rank)]
    if b.chance(4) and all(2 * (k - 1) < size for k, size in zip(kernel, spatial)):
        attrs["dilation"] = [2] * rank
    if groups > 1:
        attrs["groups"] = groups
    if last:
        attrs |= {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    span = _sums(data.range, FEW, inputs * math.prod(kernel))
    made = b.call(f"nn.conv{rank}d", [data, weight], span, attrs)
    return _biased(b, made, -1 if last else 1) if made is not None and b.chance() else made


def deconvolved(b: Builder, x: Value) -> Value | None:
    data = shaped(b, x, 4)
    if data is None:
        return None
    outputs, kernel = b.number(1, 3), [b.number(1, 3), b.number(1, 3)]
    weight = b.filled([data.shape[1], outputs, *kernel], "float32", FEW)
    attrs: dict = {"channels": outputs, "kernel_size": kernel, "padding": [0, 0, 0, 0]}
    if min(kernel) > 1 and b.chance():
        attrs |= {"strides": [2, 2], "padding": [1, 1, 1, 1], "output_padding": [1, 1]}
    span = _sums(data.range, FEW, data.shape[1] * math.prod(kernel))
    return b.call("nn.conv2d_transpose", [data, weight], span, attrs)


def pooled(b: Builder, x: Value) -> Value | None:
    rank = b.pick([2, 1, 3])
    data = shaped(b, x, rank + 2)
    if data is None:
        return None
    layout = "NHWC" if rank == 2 and b.chance(4) else ""
    spatial = data.shape[1:3] if layout else data.shape[2:]
    if rank == 2 and b.chance(3):
        name = f"nn.{b.pick(['global', 'adaptive'])}_{b.pick(['avg', 'max'])}_pool2d"
        sizes: dict = {"output_size": [b.number(1, 3), b.number(1, 3)]} if "adaptive" in name else {}
        sizes |= {"layout": layout} if layout else {}
        return b.call(name, [data], data.range if "max" in name else data.range.inexact(), sizes)
    window = [min(b.pick([2, 3]), size) for size in spatial]
    average = rank != 2 and b.chance()
    pads = [int(size > 1) * b.number(0, 1) for size in window * 2]
    step = b.pick([1, 2])
    attrs: dict = {"pool_size": window, "padding": pads} | ({"strides": [2] * rank} if step == 2 else {})
    attrs |= {"layout": layout} if layout else {}
    if not average and b.chance(4) and all(2 * (k - 1) < n for k, n in zip(window, spatial)):
        attrs |= {"dilation": [2] * rank, "padding": [0] * (2 * rank)}
    elif b.chance(3) and all(map(_ends_inside, spatial, window, pads[:rank], pads[rank:], [step] * rank)):
        attrs["ceil_mode"] = True
    if average and b.chance(3):
        attrs["count_include_pad"] = True
    name = f"nn.{'avg' if average else 'max'}_pool{rank}d"
    return b.call(name, [data], data.range.inexact() if average else data.range, attrs)


def _ends_inside(size: int, window: int, before: int, after: int, step: int) -> bool:
    """Return whether the last window begins in the data where sizes are rounded up."""
    last = -(-(size + before + after - window) // step) * step
    return last < size + before


def normalised(b: Builder, x: Value) -> Value | None:
    name = b.pick(["nn.batch_norm", "nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.l2_normalize"])
    data = x if x.is_float and len(x.shape) >= 3 else shaped(b, x, 3)
    if data is None or not data.range.exact or data.dtype != "float32":
        return None
    if name == "nn.l2_normalize":
        return b.call(name, [data], Range(-1.01, 1.01, INEXACT), {"eps": 1e-05, "axis": [1]})
    last = name == "nn.layer_norm" and b.chance()
    size = data.shape[-1] if last else data.shape[1]
    gamma, beta = (b.filled([size], "float32") for _ in range(2))
    if name == "nn.batch_norm":
        mean, spread = b.filled([size], "float32"), b.filled([size], "float32", Range(1, 3, 2))
        span = Range(-2 * (data.range.size + 2) - 2, 2 * (data.range.size + 2) + 2, INEXACT)
        attrs: dict = {"epsilon": 2e-05} if b.chance() else {}
        if b.chance(3):
            attrs[b.pick(["scale", "center"])] = False
        three = b.call(name, [data, gamma, beta, mean, spread], [span, GRID, GRID], attrs)
        return b.item(three, 0) if three is not None else None
    # A normalised value is at most the root of the number of elements.
    bound = 2 * math.sqrt(math.prod(data.shape)) + 2
    attrs = {}
    if name == "nn.layer_norm" and not last:
        attrs["axis"] = 1
    if name == "nn.layer_norm" and b.chance(3):
        attrs |= {"epsilon": 0.001, "center": False}
    if name == "nn.group_norm":
        attrs["num_groups"] = b.pick([g for g in (2, 1, size) if size % g == 0])
    return b.call(name, [data, gamma, beta], Range(-bound, bound, INEXACT), attrs)


def softmax(b: Builder, x: Value) -> Value | None:
    if not x.is_float or not x.shape or x.dtype != "float32":
        return None
    name = b.pick(["nn.softmax", "nn.log_softmax", "nn.fast_softmax"])
    attrs: dict = (
        {"axis": b.number(-len(x.shape), len(x.shape) - 1)} if b.chance() and name == "nn.softmax" else {}
    )
    low = -x.range.high + x.range.low - math.log(max(math.prod(x.shape), 1)) if "log" in name else 0
    return b.call(name, [x], Range(low, 0 if "log" in name else 1, INEXACT), attrs)


def padded(b: Builder, x: Value) -> Value | None:
    if not x.shape or not x.is_float or x.dtype != "float32":
        return None
    widths = [[b.number(0, 1), b.number(0, 1)] if size > 1 else [0, 0] for size in x.shape]
    if b.chance(3):
        attrs: dict = {"pad_width": widths}
        if b.chance():
            attrs["mode"] = "REFLECT"
        return b.call("nn.mirror_pad", [x], x.range, attrs)
    mode = b.pick(["constant", "edge", "reflect"])
    if mode == "constant":
        value = b.scalar(b.pick([0.0, 1.5]), "float32")
        return b.call("nn.pad", [x, value], x.range.joined(value.range), {"pad_width": widths})
    return b.call("nn.pad", [x, b.scalar(0, "int32")], x.range, {"pad_width": widths, "pad_mode": mode})


def imaged(b: Builder, x: Value) -> Value | None:
    data = shaped(b, x, 4)
    if data is None:
        return None
    if b.chance(3) and data.shape[1] >= 3:
        return b.call("nn.lrn", [data], data.range.inexact(), {"size": 3, "alpha": 1e-05})
    method = b.pick(["linear", "cubic", "nearest_neighbor"])
    attrs: dict = {"size": [b.number(2, 7), b.number(2, 7)], "roi": [0.0] * 4, "rounding_method": ""}
    if method != "linear":
        attrs["method"] = method
    mode = b.pick(["half_pixel", "asymmetric", "align_corners"])
    if method == "nearest_neighbor":
        # The nearest pixel must not hang on the last digit of a place: whole factors only.
        attrs["size"] = [size * b.number(1, 2) for size in data.shape[2:]]
        mode, attrs["rounding_method"] = "asymmetric", "floor"
    if mode != "half_pixel":
        attrs["coordinate_transformation_mode"] = mode
    if method == "cubic" and b.chance():
        attrs["cubic_alpha"] = -0.75
    size = 3 * data.range.size
    span = data.range if method == "nearest_neighbor" else Range(-size, size, INEXACT)
    return b.call("image.resize2d", [data], span, attrs)


MAKERS = (
    dense,
    dense,
    batch_matmul,
    biased,
    convolved,
    convolved,
    deconvolved,
    pooled,
    normalised,
    softmax,
    padded,
    imaged,
)
