"""Convolution-like ONNX operators that the stock importer lacks or reads in part."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from .onnx_fix_shape import constant, dims

op = relax.op


def _col2im(bb, inputs, attrs, opset, stock):
    """Add the columns of blocks back into an image: pad, shift and add per block element."""
    image, block = constant(inputs[1]), constant(inputs[2])
    if image is None or block is None:
        raise ValueError("Col2Im with run-time image or block shape is not supported")
    image, block = image.tolist(), block.tolist()
    rank = len(image)
    steps = list(attrs.get("strides", [1] * rank))
    spread = list(attrs.get("dilations", [1] * rank))
    pads = list(attrs.get("pads", [0] * 2 * rank))
    x = inputs[0]
    batch, columns, _ = dims(x)
    counts = [
        (image[i] + pads[i] + pads[i + rank] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1
        for i in range(rank)
    ]
    padded = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    channels = columns // math.prod(block)
    x = bb.emit(op.reshape(x, [batch, channels, math.prod(block), *counts]))
    total = None
    for number, place in enumerate(np.ndindex(*block)):
        part = op.strided_slice(x, [2], [number], [number + 1])
        part = bb.emit(op.reshape(part, [batch, channels, *counts]))
        part = _spread(bb, part, steps)
        widths = [0, 0, 0, 0]
        for axis in range(rank):
            start = place[axis] * spread[axis]
            widths += [start, padded[axis] - start - ((counts[axis] - 1) * steps[axis] + 1)]
        part = bb.emit(op.nn.pad(part, widths, "constant", 0.0))
        total = part if total is None else bb.emit(op.add(total, part))
    axes = list(range(2, 2 + rank))
    return op.strided_slice(total, axes, pads[:rank], [pads[i] + image[i] for i in range(rank)])


def _spread(bb, x, steps: list[int]):
    """Put ``step - 1`` zeros between neighbours along the spatial axes."""
    for axis, step in enumerate(steps, 2):
        if step == 1:
            continue
        shape = dims(x)
        x = bb.emit(op.expand_dims(x, axis + 1))
        widths = [0] * (2 * len(shape) + 2)
        widths[2 * (axis + 1) + 1] = step - 1
        x = bb.emit(op.nn.pad(x, widths, "constant", 0.0))
        shape[axis] = shape[axis] * step
        x = bb.emit(op.reshape(x, shape))
        x = bb.emit(op.strided_slice(x, [axis], [0], [shape[axis] - step + 1]))
    return x


def _conv_transpose(bb, inputs, attrs, opset, stock):
    """Turn a wanted output shape into the pads that the operator takes."""
    wanted = attrs.pop("output_shape", None)
    if wanted is None:
        return stock()
    have, kernel = dims(inputs[0])[2:], dims(inputs[1])[2:]
    rank = len(kernel)
    steps, spread = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    extra = list(attrs.get("output_padding", [0] * rank))
    before, after = [], []
    for i in range(rank):
        full = steps[i] * (have[i] - 1) + extra[i] + (kernel[i] - 1) * spread[i] + 1
        total = full - list(wanted)[-rank:][i]
        if total < 0:
            extra[i], total = extra[i] - total, 0
        half = total // 2
        upper = attrs.get("auto_pad", b"NOTSET") == b"SAME_UPPER"
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    attrs.pop("auto_pad", None)
    attrs.update(pads=before + after, output_padding=extra)
    return stock()


def _max_pool(bb, inputs, attrs, opset, stock):
    """Work out the pads of ``SAME_LOWER``: the result has ceil(length / stride) elements.

    The stock conversion rounds that down, and so loses the last window.
    """
    have = dims(inputs[0])[2:]
    if attrs.get("auto_pad", b"NOTSET") != b"SAME_LOWER" or not all(isinstance(d, int) for d in have):
        return stock()
    rank = len(have)
    steps, spread = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    before, after = [], []
    for i, length in enumerate(have):
        reach = (attrs["kernel_shape"][i] - 1) * spread[i] + 1
        total = max((math.ceil(length / steps[i]) - 1) * steps[i] + reach - length, 0)
        after.append(total // 2)
        before.append(total - total // 2)
    attrs.pop("auto_pad")
    attrs.update(pads=before + after)
    return stock()


CONVOLUTIONS = {"Col2Im": _col2im, "ConvTranspose": _conv_transpose, "MaxPool": _max_pool}
