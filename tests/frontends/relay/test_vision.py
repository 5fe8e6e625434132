"""Detection operators of Relay against plain loops in numpy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from running import converted, run_ops

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(23)


check = partial(running.check, rtol=1e-5, atol=1e-6)


def overlap(a, b):
    """Return intersection over union; corners may come in any order."""
    a, b = (np.array([min(x[0], x[2]), min(x[1], x[3]), max(x[0], x[2]), max(x[1], x[3])]) for x in (a, b))
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    common = np.prod(sides)
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common
    return common / union if union > 0 else 0


def boxes_of(batch, count, classes=2):
    """Return boxes (class, score, corners) that overlap often; some scores are equal."""
    corners = RNG.integers(0, 8, (batch, count, 2))
    sizes = RNG.integers(1, 6, (batch, count, 2))
    scores = RNG.integers(-2, 12, (batch, count, 1)) / 10
    ids = RNG.integers(-1, classes, (batch, count, 1))
    return np.concatenate([ids, scores, corners, corners + sizes], 2).astype("float32")


def test_valid_counts():
    data = boxes_of(2, 8)
    keep = (data[..., 1] > np.float32(0.3)) & (data[..., 0] >= 0)
    counts, moved, indices = keep.sum(1), np.full_like(data, -1), np.full((2, 8), -1)
    for i in range(2):
        moved[i, : counts[i]] = data[i, keep[i]]
        indices[i, : counts[i]] = np.flatnonzero(keep[i])
    check(
        "vision.get_valid_counts(%x, 0.3f, id_index=0, score_index=1)",
        {"x": data},
        counts.astype("int32"),
        moved,
        indices.astype("int32"),
    )


def test_thresholds_may_be_attributes_as_before_release_0_8():
    data = boxes_of(1, 6)
    indices = np.arange(6, dtype="int32")[None]
    arrays = {"x": data, "v": np.array([6], "int32"), "i": indices}
    old = run_ops(
        "(vision.get_valid_counts(%x, score_threshold=0.3f),"
        " vision.non_max_suppression(%x, %v, %i, max_output_size=2, iou_threshold=0.4f))",
        arrays,
    )
    new = run_ops(
        "(vision.get_valid_counts(%x, 0.3f), vision.non_max_suppression(%x, %v, %i, 2, 0.4f))", arrays
    )
    for one, other in zip(old, new):
        np.testing.assert_array_equal(one, other)


def suppressed(data, valid, indices, most, threshold, *, force=False, top=-1, ids=0, start=2, score=1):
    """Return the kept boxes and their indices, -1 where dropped."""
    kept, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    for i, count in enumerate(valid):
        if threshold <= 0:
            kept[i, :count], places[i, :count] = data[i, :count], indices[i, :count]
            continue
        order = np.argsort(-data[i, :count, score], kind="stable")[: top if top > 0 else None]
        taken = 0
        for j, source in enumerate(order):
            box = data[i, source]
            if taken == most:
                continue
            if box[score] > 0:
                rivals = [k for k in range(j) if places[i, k] >= 0 and kept[i, k, score] > 0]
                if ids >= 0:
                    rivals = [k for k in rivals if kept[i, k, ids] >= 0]
                    if not force:
                        rivals = [k for k in rivals if kept[i, k, ids] == box[ids]]
                four = slice(start, start + 4)
                if any(overlap(box[four], kept[i, k, four]) >= threshold for k in rivals):
                    continue
                taken += 1
            kept[i, j], places[i, j] = box, indices[i, source]
    return kept, places


def to_front(rows, keep, like):
    moved = np.full_like(like, -1)
    for i in range(len(rows)):
        moved[i, : keep[i].sum()] = rows[i][keep[i]]
    return moved


@pytest.mark.parametrize(
    ("most", "threshold", "attrs", "options"),
    [
        (-1, 0.5, "", {}),
        (2, 0.3, "", {}),
        (-1, 0.4, "force_suppress=True, ", {"force": True}),
        (-1, 0.4, "top_k=4, ", {"top": 4}),
        (-1, 0.4, "id_index=-1, ", {"ids": -1}),
        (-1, -1.0, "", {}),
    ],
)
def test_suppression(most, threshold, attrs, options):
    data = boxes_of(2, 9)
    valid = np.array([9, 5], "int32")
    indices = np.stack([RNG.permutation(9), RNG.permutation(9)]).astype("int32")
    kept, places = suppressed(data, valid, indices, most, np.float32(threshold), **options)
    call = f"vision.non_max_suppression(%x, %v, %i, %m, %t, {attrs}"
    check(
        f"({call} return_indices=False), {call} return_indices=False, invalid_to_bottom=True))",
        {
            "x": data,
            "v": valid,
            "i": indices,
            "m": np.array(most, "int32"),
            "t": np.array(threshold, "float32"),
        },
        kept,
        to_front(kept, kept[..., 0] >= 0, kept),
    )
    check(
        f"vision.non_max_suppression(%x, %v, %i, {most}, {threshold}f, {attrs} return_indices=True)",
        {"x": data, "v": valid, "i": indices},
        to_front(places, places >= 0, places),
        (places >= 0).sum(1, keepdims=True).astype("int32"),
    )


def selected(boxes, scores, most, threshold, least):
    """Return per image and class the selected boxes in order."""
    result = {}
    for i, c in np.ndindex(*scores.shape[:2]):
        chosen: list[int] = []
        for n in np.argsort(-scores[i, c], kind="stable"):
            full = most > 0 and len(chosen) >= most
            if full or threshold <= 0 or scores[i, c, n] <= least or scores[i, c, n] <= -1:
                continue
            good = scores[i, c, n] <= 0 or all(overlap(boxes[i, n], boxes[i, k]) < threshold for k in chosen)
            if good:
                chosen.append(int(n))
        result[i, c] = chosen
    return result


@pytest.mark.parametrize(("most", "threshold", "least"), [(-1, 0.5, 0.1), (2, 0.2, -0.5), (3, 0.3, 0.4)])
def test_suppression_within_each_class(most, threshold, least):
    data = boxes_of(2, 7)
    boxes = data[..., 2:].copy()
    scores = (RNG.integers(-3, 10, (2, 3, 7)) / 10).astype("float32")
    found = selected(boxes, scores, most, np.float32(threshold), np.float32(least))
    rows = [(i, c, n) for (i, c), chosen in found.items() for n in chosen]
    listed = np.zeros((42, 3), "int64")
    listed[: len(rows)] = rows
    per_image, values = np.zeros((2, 21, 2), "int64"), np.zeros((2, 21), "float32")
    counts = np.zeros(2, "int64")
    for i, c, n in rows:
        per_image[i, counts[i]], values[i, counts[i]] = (c, n), scores[i, c, n]
        counts[i] += 1
    call = f"vision.all_class_non_max_suppression(%b, %s, {most}, {threshold}f, {least}f"
    arrays = {"b": boxes, "s": scores}
    check(f"{call})", arrays, listed, np.array([len(rows)]))
    check(f'{call}, output_format="tensorflow")', arrays, per_image, values, counts)


def test_suppression_as_tflite_does_it():
    data = boxes_of(2, 6)
    boxes = data[..., [3, 2, 5, 4]].copy()
    scores = (RNG.integers(0, 10, (2, 6, 4)) / 10).astype("float32")
    most, per_class, threshold, least = 5, 3, 0.3, 0.2
    expected = [np.zeros((2, most, 4), "float32"), *np.zeros((2, 2, most), "float32"), np.zeros(2, "int32")]
    for i in range(2):
        found = []
        for c in range(3):
            chosen: list[int] = []
            values = scores[i, :, c + 1]
            for n in np.argsort(-values, kind="stable"):
                if values[n] >= np.float32(least) and len(chosen) < per_class:
                    if all(overlap(boxes[i, n], boxes[i, k]) <= threshold for k in chosen):
                        chosen.append(int(n))
            found += [(-values[n], c, n) for n in chosen]
        best = sorted(found, key=lambda entry: entry[0])[:most]
        expected[3][i] = len(best)
        for m, (value, c, n) in enumerate(best):
            expected[0][i, m], expected[1][i, m], expected[2][i, m] = boxes[i, n], c, -value
    check(
        f"vision.regular_non_max_suppression(%b, %s, max_detections_per_class={per_class},"
        f" max_detections={most}, num_classes=3, iou_threshold={threshold}f, score_threshold={least}f)",
        {"b": boxes, "s": scores},
        *expected,
    )


def test_anchor_boxes():
    x = np.zeros((1, 2, 2, 3), "float32")
    expected = []
    for i, j in np.ndindex(2, 3):
        y, z = (i + 0.5) / 2, (j + 0.25) * 0.2
        for size, ratio in ((0.5, 1), (0.25, 1), (0.5, 2)):
            w, h = size * 2 / 3 * np.sqrt(ratio) / 2, size / np.sqrt(ratio) / 2
            expected.append([z - w, y - h, z + w, y + h])
    boxes = np.array([expected], "float32")
    attrs = "sizes=[0.5f, 0.25f], ratios=[1f, 2f], steps=[-1f, 0.2f], offsets=[0.5f, 0.25f]"
    check(
        f"(vision.multibox_prior(%x, {attrs}), vision.multibox_prior(%x, {attrs}, clip=True))",
        {"x": x},
        boxes,
        np.clip(boxes, 0, 1),
    )


@pytest.mark.parametrize("clip", [True, False])
def test_decoding_of_predictions(clip):
    scores = RNG.uniform(0, 1, (2, 3, 5)).astype("float32")
    moves = RNG.normal(size=(2, 20)).astype("float32")
    anchors = np.sort(RNG.uniform(0, 1, (1, 5, 2, 2)), 2).reshape(1, 5, 4).astype("float32")
    variances = [0.1, 0.1, 0.2, 0.2]
    boxes, counts = np.full((2, 5, 6), -1, "float32"), np.zeros(2, "int32")
    for i, j in np.ndindex(2, 5):
        best = 1 + int(scores[i, 1:, j].argmax())
        if scores[i, best, j] < 0.6:
            continue
        left, top, right, bottom = anchors[0, j]
        x, y, w, h = moves[i, 4 * j : 4 * j + 4] * variances
        center = np.array([x * (right - left) + (left + right) / 2, y * (bottom - top) + (top + bottom) / 2])
        half = np.array([np.exp(w) * (right - left) / 2, np.exp(h) * (bottom - top) / 2])
        corners = np.concatenate([center - half, center + half])
        corners = np.clip(corners, 0, 1) if clip else corners
        boxes[i, counts[i]] = [best - 1, scores[i, best, j], *corners]
        counts[i] += 1
    check(
        f"vision.multibox_transform_loc(%s, %m, %a, clip={clip}, threshold=0.6f,"
        " variances=[0.1f, 0.1f, 0.2f, 0.2f])",
        {"s": scores, "m": moves, "a": anchors},
        boxes,
        counts,
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_reordering_of_pixels_as_darknet_does_it(stride):
    x = RNG.normal(size=(2, 8, 4, 6)).astype("float32")
    outer = 8 // stride**2
    wide = x.reshape(2, outer, 4 * stride, 6 * stride)
    expected = np.zeros_like(x)
    for k, j, i in np.ndindex(8, 4, 6):
        block = k // outer
        expected[:, k, j, i] = wide[:, k % outer, j * stride + block // stride, i * stride + block % stride]
    check(
        f"vision.yolo_reorg(%x, stride={stride})",
        {"x": x},
        expected.reshape(2, 8 * stride**2, 4 // stride, 6 // stride),
    )


def sample(image, y, x):
    """Return a sample between pixels, the last row and column repeated for one more step."""
    height, width = image.shape
    if y < -1 or x < -1 or y > height or x > width:
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    upper = image[top, left] * (1 - u) + image[top, right] * u
    return upper * (1 - v) + (image[bottom, left] * (1 - u) + image[bottom, right] * u) * v


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_aligned_regions(mode, ratio):
    x = RNG.normal(size=(2, 2, 6, 5)).astype("float32")
    rois = np.array([[0, 1, 1, 8, 9], [1, -3, 0, 4.5, 12], [0, 2, 2, 2, 2]], "float32")
    expected = np.zeros((3, 2, 2, 3), "float32")
    for r, (image, *corners) in enumerate(rois):
        left, top, right, bottom = np.array(corners) * 0.5
        step_h, step_w = max(bottom - top, 1) / 2, max(right - left, 1) / 3
        rows, columns = (ratio, ratio) if ratio > 0 else (int(np.ceil(step_h)), int(np.ceil(step_w)))
        for c, i, j in np.ndindex(2, 2, 3):
            values = [
                sample(
                    x[int(image), c],
                    top + i * step_h + (a + 0.5) * step_h / rows,
                    left + j * step_w + (b + 0.5) * step_w / columns,
                )
                for a in range(rows)
                for b in range(columns)
            ]
            expected[r, c, i, j] = np.mean(values) if mode == "avg" else np.max(values)
    attrs = f'pooled_size=[2, 3], spatial_scale=0.5f, sample_ratio={ratio}, mode="{mode}"'
    check(
        f'(vision.roi_align(%x, %r, {attrs}), vision.roi_align(%l, %r, {attrs}, layout="NHWC"))',
        {"x": x, "r": rois, "l": x.transpose(0, 2, 3, 1).copy()},
        expected,
        expected.transpose(0, 2, 3, 1),
        rtol=1e-4,
        atol=1e-5,
    )


def test_pooled_regions():
    x = RNG.normal(size=(2, 2, 6, 5)).astype("float32")
    rois = np.array([[0, 1, 1, 8, 9], [1, -3, -5, 4, 12], [0, 20, 20, 22, 22], [1, 3, 5, 3, 5]], "float32")
    expected = np.zeros((4, 2, 3, 2), "float32")
    for r, (image, *corners) in enumerate(rois):
        scaled = np.array(corners) * 0.5
        left, top, right, bottom = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(int)
        step_h, step_w = max(bottom - top + 1, 1) / 3, max(right - left + 1, 1) / 2
        for i, j in np.ndindex(3, 2):
            rows = np.clip([np.floor(i * step_h + 1e-5) + top, np.ceil((i + 1) * step_h - 1e-5) + top], 0, 6)
            columns = np.clip(
                [np.floor(j * step_w + 1e-5) + left, np.ceil((j + 1) * step_w - 1e-5) + left], 0, 5
            )
            part = x[int(image), :, int(rows[0]) : int(rows[1]), int(columns[0]) : int(columns[1])]
            expected[r, :, i, j] = part.max((1, 2)) if part.size else 0
    check("vision.roi_pool(%x, %r, pooled_size=[3, 2], spatial_scale=0.5f)", {"x": x, "r": rois}, expected)


def test_proposals_are_not_supported():
    types = (
        "%a: Tensor[(1, 24, 4, 4), float32], %b: Tensor[(1, 48, 4, 4), float32], %c: Tensor[(1, 3), float32]"
    )
    with pytest.raises(TvmpassError, match="vision.proposal"):
        converted(f"def @main({types}) {{ vision.proposal(%a, %b, %c) }}")
