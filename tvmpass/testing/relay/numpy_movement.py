"""Numpy forms of the operators that move, select and order elements."""

from __future__ import annotations

import math

import numpy as np

from .numpy_table import Attributes, operator


def new_shape(old: tuple[int, ...], words: list[int], allowzero: bool = False) -> list[int]:
    """Resolve the special words of Relay's reshape: 0, -1, -2, -3 and -4."""
    shape: list[int] = []
    source = list(old)
    position, unknown = 0, -1
    words = list(words)
    while words:
        word = words.pop(0)
        if word == 0 and not allowzero:
            shape.append(source[position])
            position += 1
        elif word == -1:
            unknown = len(shape)
            shape.append(1)
            position += 1
        elif word == -2:
            shape.extend(source[position:])
            position = len(source)
        elif word == -3:
            shape.append(source[position] * source[position + 1])
            position += 2
        elif word == -4:
            first, second = words.pop(0), words.pop(0)
            whole = source[position]
            position += 1
            first = whole // second if first == -1 else first
            shape.extend([first, whole // first])
        else:
            shape.append(word)
            position += 1
    if unknown >= 0:
        rest = math.prod(shape)
        shape[unknown] = math.prod(old) // rest if rest else 0
    return shape


@operator("reshape")
def reshape(attrs: Attributes, x):
    return x.reshape(new_shape(x.shape, attrs.newshape, attrs.allowzero))


@operator("nn.batch_flatten")
def batch_flatten(attrs: Attributes, x):
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


@operator("transpose")
def transpose(attrs: Attributes, x):
    return np.transpose(x, attrs.axes or None)


@operator("expand_dims")
def expand_dims(attrs: Attributes, x):
    axis = attrs.axis if attrs.axis >= 0 else attrs.axis + x.ndim + 1
    return x.reshape(x.shape[:axis] + (1,) * attrs.num_newaxis + x.shape[axis:])


@operator("squeeze")
def squeeze(attrs: Attributes, x):
    return np.squeeze(x, None if attrs.axis is None else tuple(attrs.axis))


@operator("reverse")
def reverse(attrs: Attributes, x):
    return np.flip(x, attrs.axis)


@operator("tile")
def tile(attrs: Attributes, x):
    return np.tile(x, attrs.reps)


@operator("repeat")
def repeat(attrs: Attributes, x):
    return np.repeat(x, attrs.repeats, attrs.axis)


@operator("broadcast_to")
def broadcast_to(attrs: Attributes, x):
    return np.broadcast_to(x, attrs.shape)


@operator("broadcast_to_like")
def broadcast_to_like(attrs: Attributes, x, like):
    return np.broadcast_to(x, like.shape)


@operator("concatenate")
def concatenate(attrs: Attributes, items):
    return np.concatenate(items, attrs.axis)


@operator("stack")
def stack(attrs: Attributes, items):
    return np.stack(items, attrs.axis)


@operator("split")
def split(attrs: Attributes, x):
    return tuple(np.split(x, attrs.indices_or_sections, attrs.axis))


@operator("strided_slice")
def strided_slice(attrs: Attributes, x):
    begins, ends, steps = list(attrs.begin), list(attrs.end), list(attrs.strides or [1])
    count = max(len(begins), len(ends))
    axes = attrs.axes if attrs.axes is not None else range(count)
    steps += steps[-1:] * (count - len(steps)) if len(steps) == 1 else [1] * count
    for place, axis in enumerate(axes):
        size, step = x.shape[axis], steps[place]
        # Bounds that are not stated are those of the whole axis, but a descending slice ends before 0.
        begin = begins[place] if place < len(begins) else (0 if step > 0 else size)
        end = ends[place] if place < len(ends) else (size if step > 0 else 0)
        if attrs.slice_mode == "size":
            step = 1
            end = size if end < 0 else (begin % size if size else 0) + end
        low, high = (0, size) if step > 0 else (-1, size - 1)
        begin, end = (min(max(bound + size if bound < 0 else bound, low), high) for bound in (begin, end))
        x = np.take(x, list(range(begin, end, step)), axis)
    return x


@operator("slice_like")
def slice_like(attrs: Attributes, x, like):
    axes = attrs.axes or range(min(x.ndim, like.ndim))
    for axis in axes:
        x = np.take(x, range(like.shape[axis]), axis)
    return x


@operator("take")
def take(attrs: Attributes, x, indices):
    if attrs.batch_dims:
        raise NotImplementedError("take with batch_dims")
    size = x.size if attrs.axis is None else x.shape[attrs.axis]
    if attrs.mode == "wrap":
        indices = np.mod(indices, size)
    elif attrs.mode == "clip":
        indices = np.clip(indices, 0, size - 1)
    return np.take(x, indices, attrs.axis)


@operator("sequence_mask")
def sequence_mask(attrs: Attributes, x, lengths):
    steps = np.arange(x.shape[attrs.axis])
    kept = steps[:, None] < lengths if attrs.axis == 0 else steps < lengths[:, None]
    return np.where(kept.reshape(kept.shape + (1,) * (x.ndim - 2)), x, x.dtype.type(attrs.mask_value))


# -- order: equal elements keep their order in every direction


def _order(x: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    if ascending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


@operator("sort")
def sort(attrs: Attributes, x):
    return np.take_along_axis(x, _order(x, attrs.axis, attrs.is_ascend), attrs.axis)


@operator("argsort")
def argsort(attrs: Attributes, x):
    return _order(x, attrs.axis, attrs.is_ascend).astype(attrs.dtype or "int32")


@operator("topk")
def topk(attrs: Attributes, x):
    order = _order(x, attrs.axis, attrs.is_ascend)
    if attrs.k > 0:
        order = np.take(order, range(min(attrs.k, x.shape[attrs.axis])), attrs.axis)
    values, indices = np.take_along_axis(x, order, attrs.axis), order.astype(attrs.dtype or "int32")
    return {"both": (values, indices), "values": values, "indices": indices}[attrs.ret_type]


# -- space and depth


@operator("nn.depth_to_space")
def depth_to_space(attrs: Attributes, x):
    n, c, h, w = x.shape
    b = attrs.block_size
    if attrs.mode == "DCR":
        x = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // b**2, h * b, w * b)


@operator("nn.space_to_depth")
def space_to_depth(attrs: Attributes, x):
    n, c, h, w = x.shape
    b = attrs.block_size
    x = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * b**2, h // b, w // b)


@operator("nn.space_to_batch_nd")
def space_to_batch_nd(attrs: Attributes, x):
    blocks, count = attrs.block_shape, len(attrs.block_shape)
    widths = [(0, 0), *map(tuple, attrs.paddings)] + [(0, 0)] * (x.ndim - 1 - count)
    x = np.pad(x, widths, constant_values=attrs.pad_value)
    shape = [x.shape[0]]
    for size, block in zip(x.shape[1:], blocks):
        shape += [size // block, block]
    rest = x.shape[1 + count :]
    order = [2 * i + 2 for i in range(count)] + [0] + [2 * i + 1 for i in range(count)]
    order += range(1 + 2 * count, 1 + 2 * count + len(rest))
    outer = [size // block for size, block in zip(x.shape[1:], blocks)]
    return x.reshape(*shape, *rest).transpose(order).reshape(-1, *outer, *rest)
