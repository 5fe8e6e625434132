"""Padding and moving of space: pad, dilate, depth and space, batch and space, upsampling."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, tirx, topi

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import as_shape, dtype_of, is_float, normal_axis, rank_of, shape_of
from .layouts import known, packed, unpacked
from .shapes import reshaped

TABLE = Table()


def _pairs(value: Any, rank: int, what: str) -> list[tuple[int, int]]:
    """Return ``((before, after), ...)``, one pair per axis, as ints."""
    try:
        pairs = [(int(before), int(after)) for before, after in value]
    except (TypeError, ValueError):
        raise CannotConvert(f"{what}={value!r} is not a list of pairs") from None
    if len(pairs) != rank:
        raise CannotConvert(f"{what} has {len(pairs)} pairs for {rank} axes")
    return pairs


def _sliced(emit: Emitter, x, bounds: dict[int, tuple[Any, Any]]):
    """Return ``x`` from begin to end along some axes."""
    axes = list(bounds)
    begins, ends = [bounds[a][0] for a in axes], [bounds[a][1] for a in axes]
    return emit(relax.op.strided_slice(x, axes, begins, ends))


def _padded(emit: Emitter, x, widths: list[tuple[int, int]], value):
    """Return ``x`` with a constant, or a scalar tensor, around it; a negative width cuts off."""
    cuts = {
        axis: (max(-before, 0), shape_of(x)[axis] - max(-after, 0))
        for axis, (before, after) in enumerate(widths)
        if min(before, after) < 0
    }
    if cuts:
        x = _sliced(emit, x, cuts)
        widths = [(max(before, 0), max(after, 0)) for before, after in widths]
    if not any(width for pair in widths for width in pair):
        return x
    if isinstance(value, (int, float)) and float(value) == value:
        flat = [width for pair in widths for width in pair]
        return emit(relax.op.nn.pad(x, flat, pad_value=value))
    befores, afters = zip(*widths)
    if isinstance(value, (int, float)):
        value = emit.const(value, dtype_of(x))
    return emit.te(
        lambda a, v: topi.nn.pad(a, befores, afters, v(*[0] * len(v.shape)).astype(a.dtype)),
        x,
        value,
        name="pad",
    )


@TABLE.operator("nn.pad")
def pad(emit: Emitter, attrs: Attrs, x, value=None):
    """Convert padding by a value (a tensor, cast to the dtype), the edge or a reflection.

    Releases before 0.8 state the value as the attribute ``pad_value``.
    """
    widths = _pairs(attrs.pad_width, rank_of(x), "pad_width")
    value = attrs.get("pad_value", 0.0) if value is None else value
    return _padded_in(emit, x, widths, value, attrs.word("pad_mode") or "constant")


@TABLE.operator("dyn.nn.pad")
def dynamic_pad(emit: Emitter, attrs: Attrs, x, width, value):
    """Convert padding whose widths are a tensor that is known now."""
    array = emit.array(width)
    if array is None:
        raise CannotConvert("the widths are computed when the program runs")
    return _padded_in(
        emit, x, _pairs(array.tolist(), rank_of(x), "pad_width"), value, attrs.word("pad_mode") or "constant"
    )


def _padded_in(emit: Emitter, x, widths: list[tuple[int, int]], value, mode: str):
    if mode == "constant":
        if isinstance(value, (int, float)):
            return _padded(emit, x, widths, value if is_float(dtype_of(x)) else int(value))
        array = emit.array(value)
        if array is not None and array.size == 1:
            number = array.astype(dtype_of(x)).reshape(()).item()
            if isinstance(number, (bool, int, float)) and float(number) == number:
                return _padded(emit, x, widths, number if is_float(dtype_of(x)) else int(number))
        return _padded(emit, x, widths, value)
    if min(width for pair in widths for width in pair) < 0:
        raise CannotConvert(f"pad_mode={mode!r} with a negative width")
    if mode not in ("edge", "reflect"):
        raise CannotConvert(f"pad_mode={mode!r} is not constant, edge or reflect")
    if mode == "reflect":
        _check_reflection(shape_of(x), widths, 1)
    flat = [width for pair in widths for width in pair]
    return relax.op.nn.pad(x, flat, {"edge": "replicate", "reflect": "reflect"}[mode])


def _check_reflection(shape: list, widths: list[tuple[int, int]], off: int) -> None:
    """Refuse a reflection that reaches beyond the tensor: it would read outside of it."""
    for axis, (size, pair) in enumerate(zip(shape, widths)):
        if isinstance(size, int) and max(pair) > size - off:
            raise CannotConvert(f"axis {axis} of {size} cannot be reflected by {max(pair)}")


@TABLE.operator("nn.mirror_pad")
def mirror_pad(emit: Emitter, attrs: Attrs, x):
    """Convert padding by a reflection, about the edge (SYMMETRIC: the edge is repeated)."""
    widths = _pairs(attrs.pad_width, rank_of(x), "pad_width")
    mode = (attrs.word("mode") or "SYMMETRIC").upper()
    if mode not in ("SYMMETRIC", "REFLECT") or min(width for pair in widths for width in pair) < 0:
        raise CannotConvert(f"mode={attrs.mode!r} with widths {widths}")
    _check_reflection(shape_of(x), widths, mode == "REFLECT")
    if mode == "REFLECT":
        return relax.op.nn.pad(x, [width for pair in widths for width in pair], "reflect")
    befores, afters = zip(*widths)
    return emit.te(lambda a: topi.nn.mirror_pad(a, befores, afters, mode), x, name="mirror_pad")


@TABLE.operator("nn.dilate")
def dilate(emit: Emitter, attrs: Attrs, x):
    """Convert the insertion of a value between elements."""
    strides = attrs.ints("strides") or []
    if len(strides) != rank_of(x):
        raise CannotConvert(f"strides has {len(strides)} numbers for {rank_of(x)} axes")
    value = float(attrs.dilation_value)
    return emit.te(
        lambda a: topi.nn.dilate(a, strides, value if is_float(str(a.dtype)) else int(value)),
        x,
        name="dilate",
    )


def _block_layout(attrs: Attrs) -> str:
    layout = attrs.word("layout") or "NCHW"
    if layout not in ("NCHW", "NHWC"):
        raise CannotConvert(f"layout={layout!r}: Relay computes NCHW and NHWC only")
    return layout


@TABLE.operator("nn.depth_to_space")
def depth_to_space(emit: Emitter, attrs: Attrs, x):
    """Convert channels to blocks of pixels: DCR takes the blocks outermost, CDR the channels."""
    layout, block = _block_layout(attrs), int(attrs.block_size)
    sizes = dict(zip(layout, shape_of(x)))
    n, h, w = sizes["N"], sizes["H"], sizes["W"]
    c = known(sizes["C"], "the number of channels") // (block * block)
    if c * block * block != sizes["C"]:
        x = _sliced(emit, x, {layout.index("C"): (0, c * block * block)})
    deep_first = attrs.mode in (None, "DCR")  # any other word, an empty one too, is the other order
    parts = [block, block, c] if deep_first else [c, block, block]
    if layout == "NCHW":
        x = reshaped(emit, x, [n, *parts, h, w])
        x = emit(relax.op.permute_dims(x, [0, 3, 4, 1, 5, 2] if deep_first else [0, 1, 4, 2, 5, 3]))
        return reshaped(emit, x, [n, c, h * block, w * block])
    x = reshaped(emit, x, [n, h, w, *parts])
    x = emit(relax.op.permute_dims(x, [0, 1, 3, 2, 4, 5] if deep_first else [0, 1, 4, 2, 5, 3]))
    return reshaped(emit, x, [n, h * block, w * block, c])


def _quotient(size: Any, by: int):
    return size // by if isinstance(size, int) else tirx.floordiv(size, by)


@TABLE.operator("nn.space_to_depth")
def space_to_depth(emit: Emitter, attrs: Attrs, x):
    """Convert blocks of pixels to channels, the blocks outermost (Relay ignores ``mode``)."""
    layout, block = _block_layout(attrs), int(attrs.block_size)
    sizes = dict(zip(layout, shape_of(x)))
    n, c = sizes["N"], sizes["C"]
    cuts = {}
    for letter in "HW":
        size = sizes[letter]
        sizes[letter] = _quotient(size, block)
        if not isinstance(size, int) or size % block:
            cuts[layout.index(letter)] = (0, sizes[letter] * block)
    x = _sliced(emit, x, cuts) if cuts else x
    h, w = sizes["H"], sizes["W"]
    if layout == "NCHW":
        x = reshaped(emit, x, [n, c, h, block, w, block])
        x = emit(relax.op.permute_dims(x, [0, 3, 5, 1, 2, 4]))
        return reshaped(emit, x, [n, c * block * block, h, w])
    x = reshaped(emit, x, [n, h, block, w, block, c])
    x = emit(relax.op.permute_dims(x, [0, 1, 3, 2, 4, 5]))
    return reshaped(emit, x, [n, h, w, c * block * block])


@TABLE.operator("nn.space_to_batch_nd")
def space_to_batch_nd(emit: Emitter, attrs: Attrs, x):
    """Convert blocks of space, after padding, to batches."""
    blocks = attrs.ints("block_shape") or []
    count, rank = len(blocks), rank_of(x)
    if not 0 < count < rank:
        raise CannotConvert(f"{count} blocks for a tensor of rank {rank}")
    paddings = _pairs(attrs.paddings, count, "paddings")
    value = float(attrs.pad_value)
    widths = [(0, 0), *paddings, *[(0, 0)] * (rank - 1 - count)]
    x = _padded(emit, x, widths, value if is_float(dtype_of(x)) else int(value))
    batch, *space = shape_of(x)
    space, rest = space[:count], space[count:]
    for size, block in zip(space, blocks):
        if isinstance(size, int) and size % block:
            raise CannotConvert(f"a padded dim of {size} is not made of blocks of {block}")
    small = [_quotient(size, block) for size, block in zip(space, blocks)]
    parts = [dim for pair in zip(small, blocks) for dim in pair]
    x = reshaped(emit, x, [batch, *parts, *rest])
    within = [2 * i + 2 for i in range(count)]
    outer = [2 * i + 1 for i in range(count)]
    tail = list(range(2 * count + 1, 2 * count + 1 + len(rest)))
    x = emit(relax.op.permute_dims(x, [*within, 0, *outer, *tail]))
    return reshaped(emit, x, [batch * math.prod(blocks), *small, *rest])


@TABLE.operator("nn.batch_to_space_nd")
def batch_to_space_nd(emit: Emitter, attrs: Attrs, x):
    """Convert batches to blocks of space, then crop."""
    blocks = attrs.ints("block_shape") or []
    count, rank = len(blocks), rank_of(x)
    if not 0 < count < rank:
        raise CannotConvert(f"{count} blocks for a tensor of rank {rank}")
    crops = _pairs(attrs.crops, count, "crops")
    batch, *space = shape_of(x)
    space, rest = space[:count], space[count:]
    area = math.prod(blocks)
    if isinstance(batch, int) and batch % area:
        raise CannotConvert(f"a batch of {batch} is not made of blocks of {area}")
    batch = _quotient(batch, area)
    x = reshaped(emit, x, [*blocks, batch, *space, *rest])
    order = [axis for i in range(count) for axis in (count + 1 + i, i)]
    tail = list(range(2 * count + 1, 2 * count + 1 + len(rest)))
    x = emit(relax.op.permute_dims(x, [count, *order, *tail]))
    large = [size * block for size, block in zip(space, blocks)]
    x = reshaped(emit, x, [batch, *large, *rest])
    cuts = {}
    for axis, (size, (begin, end)) in enumerate(zip(large, crops), 1):
        if isinstance(size, int) and begin + end >= size:
            raise CannotConvert(f"a dim of {size} cannot be cropped by {begin} and {end}")
        if begin or end:
            cuts[axis] = (begin, size - end)
    return _sliced(emit, x, cuts) if cuts else x


def _scaled(size: Any, scale: float):
    """Return a size times a scale, halves rounded to even as Relay's folding of constants does."""
    if isinstance(size, int):
        return round(size * scale)
    if scale == int(scale):
        return size * int(scale)
    raise CannotConvert(f"a symbolic size {size} times {scale}; give the size with --shape")


def _known_scale(emit: Emitter, scale) -> float:
    array = emit.array(scale)
    if array is None:
        raise CannotConvert("the scales are computed when the program runs")
    return float(array.reshape(()))


@TABLE.operator("nn.upsampling")
def upsampling(emit: Emitter, attrs: Attrs, x):
    """Convert the scaling of an image."""
    return _scaled_image(emit, attrs, x, float(attrs.scale_h), float(attrs.scale_w))


@TABLE.operator("dyn.nn.upsampling")
def dynamic_upsampling(emit: Emitter, attrs: Attrs, x, scale_h, scale_w):
    """Convert the scaling of an image by numbers that are known now."""
    return _scaled_image(emit, attrs, x, _known_scale(emit, scale_h), _known_scale(emit, scale_w))


def _scaled_image(emit: Emitter, attrs: Attrs, x, scale_h: float, scale_w: float):
    layout = attrs.word("layout") or "NCHW"
    plain = "NHWC" if layout == "NHWC" else "NCHW"
    x = unpacked(emit, x, layout, plain)
    sizes = dict(zip(plain, shape_of(x)))
    result = relax.op.image.resize2d(
        x,
        as_shape([_scaled(sizes["H"], scale_h), _scaled(sizes["W"], scale_w)]),
        layout=plain,
        method=_method(
            attrs, {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
        ),
        coordinate_transformation_mode="align_corners" if attrs.align_corners else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,
    )
    return result if layout == plain else packed(emit, emit(result), plain, layout)


def _method(attrs: Attrs, names: dict[str, str]) -> str:
    """Return Relax's name of an interpolation; early releases wrote it in capitals."""
    names = {"nearest_neighbor": "nearest_neighbor", **names}
    method = (attrs.word("method") or "nearest_neighbor").lower()
    if method not in names:
        raise CannotConvert(f"method={attrs.method!r} is not one of {', '.join(names)}")
    return names[method]


@TABLE.operator("nn.upsampling3d")
def upsampling3d(emit: Emitter, attrs: Attrs, x):
    """Convert the scaling of a volume."""
    return _scaled_volume(emit, attrs, x, *(float(attrs[f"scale_{axis}"]) for axis in "dhw"))


@TABLE.operator("dyn.nn.upsampling3d")
def dynamic_upsampling3d(emit: Emitter, attrs: Attrs, x, *scales):
    """Convert the scaling of a volume by numbers that are known now."""
    return _scaled_volume(emit, attrs, x, *(_known_scale(emit, scale) for scale in scales))


def _scaled_volume(emit: Emitter, attrs: Attrs, x, *scales: float):
    layout = attrs.word("layout") or "NCDHW"
    plain = layout if layout in ("NCDHW", "NDHWC") else "NCDHW"
    x = unpacked(emit, x, layout, plain)
    sizes = dict(zip(plain, shape_of(x)))
    result = relax.op.image.resize3d(
        x,
        as_shape([_scaled(sizes[axis], scale) for axis, scale in zip("DHW", scales)]),
        layout=plain,
        method=_method(attrs, {"trilinear": "linear"}),
        coordinate_transformation_mode=attrs.word("coordinate_transformation_mode") or "half_pixel",
        rounding_method="",
        cubic_alpha=-0.5,
    )
    return result if layout == plain else packed(emit, emit(result), plain, layout)


@TABLE.operator("nn.fifo_buffer")
def fifo_buffer(emit: Emitter, attrs: Attrs, x, buffer):
    """Convert a queue: the oldest elements of the buffer make room for the new ones."""
    axis = normal_axis(int(attrs.axis), rank_of(buffer))
    joined = emit(relax.op.concat([buffer, x], axis))
    begin, end = shape_of(x)[axis], shape_of(joined)[axis]
    return relax.op.strided_slice(joined, [axis], [begin], [end])
