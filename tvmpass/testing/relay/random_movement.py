"""Random calls of operators that move, select and order elements."""

from __future__ import annotations

import math

import numpy as np

from .building import Builder
from .values import Range, Value


def reshaped(b: Builder, x: Value) -> Value | None:
    shape = list(x.shape)
    options: list[list[int]] = [[-1]]
    if shape:
        options += [[0, -1], [*shape[:-1], -1], [-2], [0, -2], [1, *shape]]
    if len(shape) >= 2:
        options += [[-3, -2], [0] * (len(shape) - 2) + [-3], [*shape[::-1]], [-1, shape[-1]]]
    for axis, size in enumerate(shape):
        for factor in (2, 3):
            if size % factor == 0 and size:
                options.append([0] * axis + [-4, factor, -1, -2])
                options.append([0] * axis + [-4, -1, factor, -2])
    if b.chance(6) and len(shape) >= 2:
        return b.call("nn.batch_flatten", [x], x.range)
    return b.call("reshape", [x], x.range, {"newshape": b.pick(options)})


def transposed(b: Builder, x: Value) -> Value | None:
    rank = len(x.shape)
    if rank < 2:
        return None
    if b.chance(4):
        return b.call("transpose", [x], x.range, {"axes": None})
    left, order = list(range(rank)), []
    while left:
        order.append(left.pop(b.number(0, len(left) - 1)))
    return b.call("transpose", [x], x.range, {"axes": [a - rank if b.chance(5) else a for a in order]})


def dims_changed(b: Builder, x: Value) -> Value | None:
    rank = len(x.shape)
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and b.chance():
        attrs: dict = {"axis": [b.pick(ones)]} if b.chance(4) is False else {}
        return b.call("squeeze", [x], x.range, attrs)
    attrs = {"axis": b.pick([0, -1, *range(1, rank + 1)])}
    if b.chance(3) and attrs["axis"] >= 0:
        attrs["num_newaxis"] = 2
    return b.call("expand_dims", [x], x.range, attrs)


def repeated(b: Builder, x: Value) -> Value | None:
    rank = len(x.shape)
    if not rank:
        return None
    name = b.pick(["reverse", "tile", "repeat"])
    if name == "tile":
        reps = [b.number(1, 2) for _ in range(b.number(1, rank + 1))]
        return b.call(name, [x], x.range, {"reps": reps})
    attrs: dict = {"axis": b.number(0, rank - 1)}
    if name == "repeat":
        attrs = {"repeats": 2, "axis": b.number(-1, rank - 1)}
    return b.call(name, [x], x.range, attrs)


def broadcast(b: Builder, x: Value) -> Value | None:
    shape = [3 if size == 1 and b.chance() else size for size in x.shape]
    shape = [2] * b.number(0, 1) + shape
    if not shape:
        return None
    like = b.find(lambda y: y.is_tensor and np.broadcast_shapes(y.shape) == tuple(shape))
    if like is not None and b.chance():
        return b.call("broadcast_to_like", [x, like], x.range)
    return b.call("broadcast_to", [x], x.range, {"shape": shape})


def sliced(b: Builder, x: Value) -> Value | None:
    if not x.shape:
        return None
    axis = b.number(0, len(x.shape) - 1)
    size = x.shape[axis]
    if size < 2:
        return None
    if b.chance(4):
        smaller = [b.number(1, min(2, dim)) for dim in x.shape]
        like = b.call("zeros", [], Range(0, 0), {"shape": smaller, "dtype": "float32"})
        attrs: dict = {"axes": sorted({0, axis})} if b.chance() else {}
        return b.call("slice_like", [x, like], x.range, attrs) if like is not None else None
    attrs = {"begin": [b.number(0, size - 2)], "end": [size], "strides": [b.number(1, 2)], "axes": [axis]}
    if b.chance(3):
        attrs = {"begin": [size - 1], "end": [-size - 1], "strides": [-1], "axes": [axis]}
    elif b.chance(3):
        attrs["end"] = [-1]
        attrs["begin"] = [0]
    elif b.chance(3):
        attrs |= {"end": [b.pick([-1, 1])], "strides": [1], "slice_mode": "size"}
    elif axis == 0 and b.chance():
        attrs["axes"] = None
    return b.call("strided_slice", [x], x.range, attrs)


def joined(b: Builder, x: Value) -> Value | None:
    def suits(y: Value) -> bool:
        return y.is_tensor and y.type == x.type

    others = [found for _ in range(b.number(1, 2)) if (found := b.find(suits)) is not None]
    span = x.range
    for other in others:
        span = span.joined(other.range)
    rank = len(x.shape)
    name = b.pick(["concatenate", "stack"]) if rank else "stack"
    attrs: dict = {"axis": b.pick([0, -1, *range(rank)])}
    return b.call(name, [b.tuple([x, *others])], span, attrs)


def split(b: Builder, x: Value) -> Value | None:
    axes = [axis for axis, size in enumerate(x.shape) if size >= 2]
    if not axes:
        return None
    axis = b.pick(axes)
    size = x.shape[axis]
    divisors = [n for n in range(2, size + 1) if size % n == 0]
    if b.chance():
        count = b.pick(divisors)
        at: int | list[int] = count
    else:
        at = sorted({b.number(1, size - 1) for _ in range(b.number(1, 2))})
        count = len(at) + 1
    parts = b.call("split", [x], [x.range] * count, {"indices_or_sections": at, "axis": axis})
    if parts is None:
        return None
    if b.chance(4):
        return parts
    return b.item(parts, b.number(0, count - 1))


def taken(b: Builder, x: Value) -> Value | None:
    if not x.shape:
        return None
    attrs: dict = {}
    size = math.prod(x.shape)
    if not b.chance(4):
        axis = b.number(0, len(x.shape) - 1)
        size = x.shape[axis]
        attrs["axis"] = axis - len(x.shape) if b.chance(4) else axis
    inside = Range(0, size - 1)
    mode = b.pick(["clip", "wrap", "fast"])
    if mode != "clip":
        attrs["mode"] = mode
    around = inside if mode == "fast" else Range(-size - 1, size + 1)
    found = b.find(
        lambda y: y.is_tensor and y.dtype == "int32" and around.covers(y.range) and len(y.shape) < 3
    )
    indices = found or b.filled([b.number(1, 3) for _ in range(b.number(1, 2))], "int32", around)
    return b.call("take", [x, indices], x.range, attrs)


def masked(b: Builder, x: Value) -> Value | None:
    if len(x.shape) < 2 or not x.is_float:
        return None
    lengths = b.filled([x.shape[1]], "int32", Range(0, x.shape[0]))
    attrs: dict = {"mask_value": -1.0} if b.chance() else {}
    return b.call("sequence_mask", [x, lengths], x.range.joined(Range(-1, 0)), attrs)


def ordered(b: Builder, x: Value) -> Value | None:
    if not x.shape or not x.range.exact or x.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    rank = len(x.shape)
    name = b.pick(["sort", "argsort", "topk"])
    attrs: dict = {"axis": b.number(0, rank - 1)} if b.chance() else {}
    axis = attrs.get("axis", -1)
    if b.chance(3):
        attrs["is_ascend"] = name == "topk"
    places = Range(0, x.shape[axis] - 1)
    if name == "sort":
        return b.call(name, [x], x.range, attrs)
    attrs["dtype"] = b.pick(["int32", "int64"])
    if name == "argsort":
        return b.call(name, [x], places, attrs)
    attrs["k"] = b.number(1, x.shape[axis])
    kind = b.pick(["both", "values", "indices"])
    if kind == "both":
        pair = b.call(name, [x], [x.range, places], attrs)
        return b.item(pair, b.number(0, 1)) if pair is not None else None
    return b.call(name, [x], x.range if kind == "values" else places, {**attrs, "ret_type": kind})


def triangle(b: Builder, x: Value) -> Value | None:
    if len(x.shape) < 2:
        return None
    k = b.scalar(b.number(-1, 1), "int32")
    return b.call("trilu", [x, k], x.range.joined(Range(0, 0)), {"upper": b.chance()})


def blocks(b: Builder, x: Value) -> Value | None:
    """Move between space, depth and batch."""
    if len(x.shape) != 4:
        return None
    _, c, h, w = x.shape
    if h % 2 == 0 and w % 2 == 0 and b.chance():
        return b.call("nn.space_to_depth", [x], x.range, {"block_size": 2, "mode": ""})
    if c % 4 == 0:
        attrs: dict = {"block_size": 2}
        if b.chance():
            attrs["mode"] = "CRD"
        return b.call("nn.depth_to_space", [x], x.range, attrs)
    if not x.is_float:
        return None
    odd = [[0, c % 2], [h % 2, 0]]
    attrs = {"block_shape": [2, 2], "paddings": odd}
    return b.call("nn.space_to_batch_nd", [x], x.range.joined(Range(0, 0)), attrs)


MAKERS = (
    reshaped,
    reshaped,
    transposed,
    dims_changed,
    repeated,
    broadcast,
    sliced,
    joined,
    joined,
    split,
    split,
    taken,
    masked,
    ordered,
    triangle,
    blocks,
)
