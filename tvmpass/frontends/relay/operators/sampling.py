"""Operators that sample an image at coordinates that are computed, and morphological dilation."""

from __future__ import annotations

from tvm import relax, te, tirx, topi

from ..table import CannotConvert, Table
from . import grid_kernel
from .facts import as_shape, dtype_of, is_float, is_integer, rank_of, shape_of
from .layouts import packed, padding_of, per_axis, unpacked
from .shapes import cast, is_empty, require_same, wide_indices

op = relax.op
TABLE = Table()


@TABLE.operator("image.grid_sample")
def grid_sample(emit, attrs, x, grid):
    method, padding = attrs.word("method") or "bilinear", attrs.word("padding_mode") or "zeros"
    layout = attrs.word("layout") or "NCHW"
    if layout not in ("NCHW", "NCDHW") or rank_of(x) != len(layout) or rank_of(grid) != len(layout):
        raise CannotConvert(
            f"layout {layout!r} for an image of rank {rank_of(x)}, a grid of rank {rank_of(grid)}"
        )
    methods = ("bilinear", "nearest") + (("bicubic",) if layout == "NCHW" else ())
    if method not in methods or padding not in ("zeros", "border", "reflection"):
        raise CannotConvert(f"method {method!r} with padding {padding!r}")
    if not is_float(dtype_of(x)) or not is_float(dtype_of(grid)):
        raise CannotConvert(f"{dtype_of(x)} sampled by {dtype_of(grid)}")
    require_same(shape_of(x)[0], shape_of(grid)[0], "the batches of image and grid")
    require_same(shape_of(grid)[1], len(layout) - 2, "axis 1 of the grid and the number of coordinates")
    shape = [*shape_of(x)[:2], *shape_of(grid)[2:]]
    if is_empty(shape):
        return op.zeros(as_shape(shape), dtype_of(x))
    align = bool(attrs.align_corners)

    if padding == "reflection" and align and any(extent == 1 for extent in shape_of(x)[2:]):
        raise CannotConvert("an axis of one element has no ends to reflect at: Relay divides by 0")

    def places(points, image):
        return grid_kernel.taps(points, image.shape[2:], method, padding, align)

    def read(data, *parts):
        return grid_kernel.samples(data, list(parts), method)

    parts = emit.te(places, grid, x, name="grid_places")
    return emit.te(read, x, *(parts if isinstance(parts, tuple) else (parts,)), name="grid_sample")


@TABLE.operator("image.affine_grid")
def affine_grid(emit, attrs, x):
    size = attrs.ints("target_shape")
    if size is None or len(size) != 2 or min(size) < 2:
        raise CannotConvert(f"target_shape {size}: two numbers above 1 are needed")
    if rank_of(x) != 3 or shape_of(x)[1:] != [2, 3]:
        raise CannotConvert("the matrices are not of shape (batch, 2, 3)")

    def kernel(matrices):
        return topi.image.affine_grid(matrices, size)

    return emit.te(kernel, x, name="affine_grid")


@TABLE.operator("image.crop_and_resize")
def crop_and_resize(emit, attrs, x, boxes, box_images):
    """Convert with the kernel of TOPI for bilinear crops, with an own one for nearest.

    Relay rounds halves away from zero, the kernel of today to even.
    """
    size, layout = attrs.ints("crop_size"), attrs.word("layout") or "NCHW"
    method = str(attrs.method).lower()
    if size is None or len(size) != 2 or min(size) < 2:
        raise CannotConvert(f"crop_size {size}: two numbers above 1 are needed")
    if method not in ("bilinear", "nearest_neighbor"):
        raise CannotConvert(f"method {attrs.method!r}")
    if not is_integer(dtype_of(box_images)) or rank_of(boxes) != 2:
        raise CannotConvert(f"boxes of rank {rank_of(boxes)} in images numbered by {dtype_of(box_images)}")
    require_same(shape_of(boxes)[0], shape_of(box_images)[0], "the numbers of boxes and of images")
    asked, outside = attrs.word("out_dtype") or dtype_of(x), float(attrs.extrapolation_value or 0)
    x = cast(emit, unpacked(emit, x, layout, "NCHW"), "float32")
    count = shape_of(x)[0]
    if not isinstance(count, int):
        raise CannotConvert("it needs the number of images; give it by --shape")
    if is_empty(shape_of(x)) or is_empty(shape_of(boxes)):
        made = op.zeros(as_shape([shape_of(boxes)[0], shape_of(x)[1], *size]), "float32")
    else:
        index = wide_indices(emit, box_images)
        index = emit(op.maximum(index, emit.const(0, dtype_of(index))))
        index = emit(op.minimum(index, emit.const(count - 1, dtype_of(index))))
        boxes = cast(emit, boxes, "float32")
        if method == "bilinear":

            def kernel(data, corners, image):
                return topi.image.crop_and_resize(
                    data, corners, image, size, "NCHW", method, extrapolation_value=outside
                )

        else:

            def kernel(data, corners, image):
                return _nearest_crops(data, corners, image, size, outside)

        made = emit.te(kernel, x, boxes, index, name="crop_and_resize")
    return packed(emit, cast(emit, emit(made), asked), "NCHW", layout)


def _nearest_crops(data, corners, image, size, outside):
    def compute(box, channel, row, column):
        places, beyond = [], []
        for axis, i in enumerate((row, column)):
            last = tirx.Cast("float32", data.shape[axis + 2] - 1)
            begin, end = corners[box, axis], corners[box, axis + 2]
            step = last * (end - begin) / tirx.const(size[axis] - 1, "float32")
            at = begin * last + step * tirx.Cast("float32", i)
            whole = tirx.trunc(at)
            away = tirx.Select(at < 0, tirx.const(-1.0, "float32"), tirx.const(1.0, "float32"))
            near = whole + tirx.Select(tirx.abs(at - whole) >= 0.5, away, tirx.const(0.0, "float32"))
            place = tirx.Cast("int32", near)
            top = tirx.Cast("int32", data.shape[axis + 2]) - 1
            places.append(tirx.max(tirx.min(place, top), 0))
            beyond += [at < 0, at > last]
        return te.if_then_else(
            tirx.any(*beyond), tirx.const(outside, "float32"), data(image(box), channel, *places)
        )

    shape = [image.shape[0], data.shape[1], *size]
    return te.compute(shape, compute, name="crop_and_resize")


@TABLE.operator("image.dilation2d")
def dilation2d(emit, attrs, x, weight):
    """Convert grey-scale dilation: the largest of image plus weight over each window, padded with 0."""
    layout, kernel_layout = attrs.word("data_layout") or "NCHW", attrs.word("kernel_layout") or "IHW"
    if (layout, kernel_layout) not in (("NCHW", "IHW"), ("NHWC", "HWI")):
        raise CannotConvert(f"data_layout {layout!r} with kernel_layout {kernel_layout!r}")
    strides = per_axis(attrs.ints("strides"), 2, "strides")
    dilations = per_axis(attrs.ints("dilations"), 2, "dilations")
    padding = padding_of(attrs.ints("padding"), 2)
    if min(strides) < 1 or min(dilations) < 1:
        raise CannotConvert(f"strides {strides}, dilations {dilations}")
    channels = shape_of(x)[layout.index("C")]
    require_same(channels, shape_of(weight)[kernel_layout.index("I")], "the channels of image and weight")
    asked = attrs.word("out_dtype") or dtype_of(x)
    asked = dtype_of(x) if asked == "same" else asked
    define = topi.image.dilation2d_nchw if layout == "NCHW" else topi.image.dilation2d_nhwc

    def kernel(data, filters):
        return define(data, filters, strides, padding, dilations, asked)

    return emit.te(kernel, x, weight, name="dilation2d")
