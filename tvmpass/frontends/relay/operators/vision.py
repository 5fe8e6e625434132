"""Detection: boxes, suppression, pooling of regions."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax, te, tirx

from ..table import Attrs, CannotConvert, Emitter, Table
from . import box_kernels, class_kernels
from .facts import rank_of, shape_of
from .layouts import known
from .pool import largest
from .shapes import reshaped

TABLE = Table()


def _floats(attrs: Attrs, name: str) -> list[float]:
    value = attrs[name]
    return [float(item) for item in (value if isinstance(value, (list, tuple)) else [value])]


def _operand(emit: Emitter, given, attrs: Attrs, name: str, dtype: str, otherwise: float):
    """Return an operand that older releases state as an attribute, with a default."""
    if given is not None:
        return given
    value = attrs.get(name)
    return emit.const(otherwise if value is None else value, dtype)


@TABLE.operator("vision.multibox_prior")
def multibox_prior(emit: Emitter, attrs: Attrs, x):
    """Convert the anchor boxes of an image's cells; they depend on its size only."""
    height, width = (known(dim, "the size of the image") for dim in shape_of(x)[2:4])
    single = np.float32
    sizes, ratios = (np.array(_floats(attrs, name), single) for name in ("sizes", "ratios"))
    steps, offsets = _floats(attrs, "steps"), _floats(attrs, "offsets")
    step_h = single(steps[0]) if steps[0] > 0 else single(1) / single(height)
    step_w = single(steps[1]) if steps[1] > 0 else single(1) / single(width)
    center_h = (np.arange(height, dtype=single) + single(offsets[0])) * step_h
    center_w = (np.arange(width, dtype=single) + single(offsets[1])) * step_w
    roots = np.sqrt(ratios[1:])
    narrow = single(width)
    half_w = np.concatenate(
        [
            sizes * single(height) / narrow / single(2),
            sizes[0] * single(height) / narrow * roots / single(2),
        ]
    )
    half_h = np.concatenate([sizes / single(2), sizes[0] / roots / single(2)])
    boxes = np.empty((height, width, len(half_w), 4), single)
    boxes[..., 0] = center_w[None, :, None] - half_w
    boxes[..., 1] = center_h[:, None, None] - half_h
    boxes[..., 2] = center_w[None, :, None] + half_w
    boxes[..., 3] = center_h[:, None, None] + half_h
    rows = boxes.reshape(1, -1, 4)
    return emit.const(np.clip(rows, 0, 1) if attrs.clip else rows, "float32")


@TABLE.operator("vision.multibox_transform_loc")
def multibox_transform_loc(emit: Emitter, attrs: Attrs, scores, locations, anchors):
    """Convert predictions to boxes (class, score, corners), those of a class first; and their number."""
    return emit.te(
        lambda a, b, c: box_kernels.decode(
            a,
            b,
            c,
            bool(attrs.clip),
            float(attrs.threshold),
            _floats(attrs, "variances"),
            bool(attrs.get("keep_background") or False),
        ),
        scores,
        locations,
        anchors,
        name="multibox_transform_loc",
    )


@TABLE.operator("vision.get_valid_counts")
def get_valid_counts(emit: Emitter, attrs: Attrs, data, threshold=None):
    """Convert the selection of boxes above a threshold: their number, the boxes, their indices."""
    threshold = _operand(emit, threshold, attrs, "score_threshold", "float32", 0.0)
    return emit.te(
        lambda a, b: box_kernels.valid_counts(a, b, int(attrs.id_index), int(attrs.score_index)),
        data,
        threshold,
        name="get_valid_counts",
    )


def _by_score(emit: Emitter, scores, axis: int):
    """Return the indices that sort scores from the highest to the lowest, equal ones in order."""
    return emit(relax.op.argsort(scores, axis=axis, descending=True, dtype="int32"))


@TABLE.operator("vision.non_max_suppression")
def non_max_suppression(emit: Emitter, attrs: Attrs, data, valid, indices=None, most=None, overlap=None):
    """Convert the suppression of boxes that overlap a better one.

    Gives the indices of the kept boxes and their number, or the boxes.
    """
    if rank_of(data) != 3 or indices is None:
        raise CannotConvert("boxes of rank 3, their number and their indices are needed")
    most = _operand(emit, most, attrs, "max_output_size", "int32", -1)
    overlap = _operand(emit, overlap, attrs, "iou_threshold", "float32", 0.5)
    rules = {name: int(attrs[name]) for name in ("top_k", "coord_start", "score_index", "id_index")}
    rules |= {name: bool(attrs[name]) for name in ("force_suppress", "return_indices")}
    # Only valid boxes are sorted: the others come last.
    masked = emit.te(
        lambda a, n: te.compute(
            a.shape[:2],
            lambda i, j: tirx.Select(
                j < n[i],
                a[i, j, rules["score_index"]],
                tirx.const(float("-inf"), str(a.dtype)),
            ),
            name="T_valid_scores",
        ),
        data,
        valid,
        name="valid_scores",
    )
    kept, places = emit.te(
        partial(box_kernels.suppress, rules),
        data,
        _by_score(emit, masked, 1),
        valid,
        indices,
        most,
        overlap,
        name="non_max_suppression",
    )
    if rules["return_indices"]:
        return emit.te(box_kernels.front_indices, places, name="front_indices")
    if attrs.invalid_to_bottom:
        return emit.te(box_kernels.front_boxes, kept, name="front_boxes")
    return kept


@TABLE.operator("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(emit: Emitter, attrs: Attrs, boxes, scores, most, overlap, threshold):
    """Convert the suppression within each class, as ONNX or TensorFlow list its results."""
    form = attrs.word("output_format") or "onnx"
    if form not in ("onnx", "tensorflow"):
        raise CannotConvert(f"output_format={form!r} is not onnx or tensorflow")
    return emit.te(
        partial(class_kernels.select_per_class, form == "onnx"),
        boxes,
        scores,
        _by_score(emit, scores, 2),
        most,
        overlap,
        threshold,
        name="all_class_non_max_suppression",
    )


@TABLE.operator("vision.regular_non_max_suppression")
def regular_non_max_suppression(emit: Emitter, attrs: Attrs, boxes, scores):
    """Convert TFLite's suppression: within each class, then the best of all classes."""
    batch, count, with_background = (known(dim, "the shape of scores") for dim in shape_of(scores))
    classes, most = int(attrs.num_classes), int(attrs.max_detections)
    first = with_background - classes
    if first < 0 or classes < 1:
        raise CannotConvert(f"num_classes={classes} of scores of {with_background}")
    chosen = emit(relax.op.strided_slice(scores, [2], [first], [with_background]))
    by_class = emit(relax.op.permute_dims(chosen, [0, 2, 1]))
    values, places = emit.te(
        lambda a, b, c: class_kernels.select_strictly(
            a,
            b,
            c,
            int(attrs.max_detections_per_class),
            float(attrs.iou_threshold),
            float(attrs.score_threshold),
        ),
        boxes,
        by_class,
        _by_score(emit, by_class, 2),
        name="regular_non_max_suppression",
    )
    order = _by_score(emit, reshaped(emit, values, [batch, classes * count]), 1)
    return emit.te(
        partial(class_kernels.best_of_classes, most),
        boxes,
        values,
        places,
        order,
        name="best_of_classes",
    )


@TABLE.operator("vision.yolo_reorg")
def yolo_reorg(emit: Emitter, attrs: Attrs, x):
    """Convert Darknet's reordering of blocks of pixels to channels."""
    stride = int(attrs.stride)
    batch, *rest = shape_of(x)
    channels, height, width = (known(dim, "the shape of the image") for dim in rest)
    if stride < 1 or channels % (stride * stride) or height % stride or width % stride:
        raise CannotConvert(f"an image of {channels}x{height}x{width} does not divide by stride {stride}")
    outer = channels // (stride * stride)
    # The same numbers read as fewer channels of a larger image, whose pixels within a block become channels.
    x = reshaped(emit, x, [batch, outer, height, stride, width, stride])
    x = emit(relax.op.permute_dims(x, [0, 3, 5, 1, 2, 4]))
    return reshaped(emit, x, [batch, channels * stride * stride, height // stride, width // stride])


@TABLE.operator("vision.roi_align")
def roi_align(emit: Emitter, attrs: Attrs, x, rois):
    """Convert the average or maximum of samples of regions."""
    mode, layout = attrs.word("mode") or "avg", attrs.word("layout") or "NCHW"
    if mode not in ("avg", "max") or layout not in ("NCHW", "NHWC"):
        raise CannotConvert(f"mode={mode!r}, layout={layout!r}")
    return relax.op.vision.roi_align(
        x,
        rois,
        _pair(attrs, "pooled_size"),
        float(attrs.spatial_scale),
        int(attrs.sample_ratio),
        False,
        layout,
        mode,
    )


def _pair(attrs: Attrs, name: str) -> tuple[int, int]:
    values = attrs.ints(name) or []
    if len(values) not in (1, 2):
        raise CannotConvert(f"{name} has {len(values)} numbers, 2 are needed")
    return values[0], values[-1]


@TABLE.operator("vision.roi_pool")
def roi_pool(emit: Emitter, attrs: Attrs, x, rois):
    """Convert the maximum over bins of regions; an empty bin gives 0."""
    if (attrs.word("layout") or "NCHW") != "NCHW":
        raise CannotConvert(f"layout={attrs.layout!r}: Relay computes NCHW only")
    size, scale = _pair(attrs, "pooled_size"), float(attrs.spatial_scale)
    return emit.te(lambda a, b: _roi_pool(a, b, size, scale), x, rois, name="roi_pool")


def _rounded(value, dtype: str):
    """Return a number rounded to the nearest integer, halves away from 0."""
    whole = tirx.trunc(value)
    part = value - whole
    half = tirx.const(0.5, dtype)
    up = tirx.Select(part >= half, tirx.const(1, dtype), tirx.const(0, dtype))
    down = tirx.Select(part <= -half, tirx.const(1, dtype), tirx.const(0, dtype))
    return tirx.Cast("int32", whole + up - down)


def _roi_pool(x: te.Tensor, rois: te.Tensor, size: tuple[int, int], scale: float) -> te.Tensor:
    kind, dtype = str(x.dtype), str(rois.dtype)
    lengths = [tirx.Cast("int32", dim) for dim in x.shape[2:4]]
    # A bound that rounding errors put just beyond an integer is that integer.
    slack = tirx.const(0.00001, dtype)

    def bin_of(i, index, which: int):
        first = _rounded(rois[i, 2 - which] * tirx.const(scale, dtype), dtype)
        last = _rounded(rois[i, 4 - which] * tirx.const(scale, dtype), dtype)
        length = tirx.Cast(dtype, te.max(last - first + 1, tirx.const(1, "int32")))
        step = length / tirx.const(size[which], dtype)
        begin = tirx.floor(tirx.Cast(dtype, index) * step + slack)
        end = tirx.ceil(tirx.Cast(dtype, index + 1) * step - slack)

        def inside(value):
            return te.min(te.max(tirx.Cast("int32", value) + first, 0), lengths[which])

        return inside(begin), inside(end)

    reducer = largest(kind)
    shape = (rois.shape[0], x.shape[1], *size)

    def pooled(i, c, ph, pw):
        (top, bottom), (left, right) = bin_of(i, ph, 0), bin_of(i, pw, 1)
        rows, columns = te.reduce_axis((0, bottom - top), "rh"), te.reduce_axis((0, right - left), "rw")
        image = tirx.Cast("int32", rois[i, 0])
        return reducer(x[image, c, top + rows.var, left + columns.var], axis=[rows, columns])

    best = te.compute(shape, pooled, name="T_roi_pool_max")

    def filled(i, c, ph, pw):
        (top, bottom), (left, right) = bin_of(i, ph, 0), bin_of(i, pw, 1)
        empty = tirx.any(top >= bottom, left >= right)
        return tirx.Select(empty, tirx.const(0, kind), best[i, c, ph, pw])

    return te.compute(shape, filled, name="T_roi_pool")
