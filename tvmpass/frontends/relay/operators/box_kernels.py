"""Kernels on boxes: selection, suppression and decoding.

They read only what is in their tensors, and what follows the last entry of a
list is filled.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from .steps import element, kernel, local, when


def overlap(first: list, second: list, dtype: str):
    """Return intersection over union of two boxes, each two opposite corners in any order."""
    zero = tirx.const(0, dtype)

    def sides(box):
        return (
            te.min(box[0], box[2]),
            te.min(box[1], box[3]),
            te.max(box[0], box[2]),
            te.max(box[1], box[3]),
        )

    a, b = sides(first), sides(second)
    width = te.max(zero, te.min(a[2], b[2]) - te.max(a[0], b[0]))
    height = te.max(zero, te.min(a[3], b[3]) - te.max(a[1], b[1]))
    common = height * width
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return tirx.if_then_else(union <= zero, zero, common / union)


def valid_counts(data, threshold, id_index: int, score_index: int):
    """Move the boxes above a threshold, of a class that is not negative, to the front.

    Returns counts (batch,), boxes (batch, anchors, values), indices (batch, anchors);
    what follows is -1.
    """
    batch, anchors, width = data.shape
    dtype = str(data.dtype)

    def body(ins, outs):
        (boxes, limit), (count, moved, indices) = ins, outs
        with T.serial(0, batch) as i:
            count[i] = tirx.const(0, "int32")
            with T.serial(0, anchors) as j:
                with T.serial(0, width) as k:
                    moved[i, j, k] = tirx.const(-1, dtype)
                indices[i, j] = tirx.const(-1, "int32")
            with T.serial(0, anchors) as j:
                valid = [boxes[i, j, score_index] > element(limit, threshold, dtype)]
                if id_index >= 0:
                    valid.append(boxes[i, j, id_index] >= tirx.const(0, dtype))
                with when(*valid):
                    with T.serial(0, width) as k:
                        moved[i, count[i], k] = boxes[i, j, k]
                    indices[i, count[i]] = j
                    count[i] = count[i] + 1

    return kernel(
        "get_valid_counts",
        [data, threshold],
        [(batch,), (batch, anchors, width), (batch, anchors)],
        ["int32", dtype, "int32"],
        body,
    )


def suppress(rules: dict[str, Any], data, order, valid, indices, most, threshold):
    """Keep of overlapping boxes of a class the best; returns boxes and their indices, -1 where dropped.

    ``order`` sorts the valid boxes by falling score; ``most`` boxes are kept, all
    where negative.  A ``threshold`` of the overlap that is not positive keeps everything.
    """
    batch, anchors, width = data.shape
    dtype = str(data.dtype)
    score, start, ids, top = (rules[key] for key in ("score_index", "coord_start", "id_index", "top_k"))
    zero, gone = tirx.const(0, dtype), tirx.const(-1, dtype)

    def body(ins, outs):
        boxes, sorted_by, counts, originals, most_buffer, overlap_buffer = ins
        kept, places = outs
        limit = element(overlap_buffer, threshold, "float32")
        wanted = element(most_buffer, most, "int32")

        def drop(i, j):
            with T.serial(0, width) as k:
                kept[i, j, k] = gone
            places[i, j] = tirx.const(-1, "int32")

        def copy(i, j, source):
            with T.serial(0, width) as k:
                kept[i, j, k] = boxes[i, source, k]
            places[i, j] = source

        def contest(i, j, taken):
            """Drop box j where a better one that is kept overlaps it, count it elsewhere."""
            good = local("int32", 1)
            corners = [kept[i, j, start + c] for c in range(4)]
            with T.serial(0, j) as k:
                rival = [good[0] == 1, kept[i, k, score] > zero]
                if ids >= 0:
                    rival.append(kept[i, k, ids] >= zero)
                    if not rules["force_suppress"]:
                        rival.append(kept[i, j, ids] == kept[i, k, ids])
                with when(*rival):
                    other = [kept[i, k, start + c] for c in range(4)]
                    with when(tirx.Cast("float32", overlap(corners, other, dtype)) >= limit):
                        good[0] = tirx.const(0, "int32")
            with T.If(good[0] == 0):
                with T.Then():
                    drop(i, j)
                with T.Else():
                    taken[0] = taken[0] + 1

        def select(i, count):
            with T.serial(0, te.min(count, top) if top > 0 else count) as j:
                copy(i, j, sorted_by[i, j])
            taken = local("int32", 0)
            with T.serial(0, count) as j, T.If(taken[0] == wanted):
                with T.Then():
                    drop(i, j)
                with T.Else(), when(kept[i, j, score] > zero):
                    contest(i, j, taken)

        with T.serial(0, batch) as i:
            with T.serial(0, anchors) as j:
                drop(i, j)
            count = te.min(te.max(counts[i], 0), tirx.Cast("int32", anchors))
            with T.If(limit > tirx.const(0, "float32")):
                with T.Then():
                    select(i, count)
                with T.Else(), T.serial(0, count) as j:
                    copy(i, j, tirx.Cast("int32", j))
            if rules["return_indices"]:
                with T.serial(0, count) as j, when(places[i, j] >= 0):
                    places[i, j] = originals[i, places[i, j]]

    return kernel(
        "non_max_suppression",
        [data, order, valid, indices, most, threshold],
        [(batch, anchors, width), (batch, anchors)],
        [dtype, "int32"],
        body,
    )


def front_indices(places):
    """Move the indices that are not negative to the front; returns them and their number (batch, 1)."""
    batch, anchors = places.shape

    def body(ins, outs):
        (given,), (moved, count) = ins, outs
        with T.serial(0, batch) as i:
            count[i, 0] = tirx.const(0, "int32")
            with T.serial(0, anchors) as j:
                moved[i, j] = tirx.const(-1, "int32")
            with T.serial(0, anchors) as j, when(given[i, j] >= 0):
                moved[i, count[i, 0]] = given[i, j]
                count[i, 0] = count[i, 0] + 1

    return kernel("front_indices", [places], [(batch, anchors), (batch, 1)], ["int32", "int32"], body)


def front_boxes(data):
    """Move the boxes whose first value is not negative to the front; what follows is -1."""
    batch, anchors, width = data.shape
    dtype = str(data.dtype)

    def body(ins, outs):
        (given,), (moved,) = ins, outs
        with T.serial(0, batch) as i:
            count = local("int32", 0)
            with T.serial(0, anchors) as j, T.serial(0, width) as k:
                moved[i, j, k] = tirx.const(-1, dtype)
            with T.serial(0, anchors) as j, when(given[i, j, 0] >= tirx.const(0, dtype)):
                with T.serial(0, width) as k:
                    moved[i, count[0], k] = given[i, j, k]
                count[0] = count[0] + 1

    return kernel("front_boxes", [data], [(batch, anchors, width)], [dtype], body)


def decode(
    scores, locations, anchors, clip: bool, threshold: float, variances: list[float], background: bool
):
    """Turn predictions into boxes (class, score, left, top, right, bottom) and their number.

    Boxes of no class are left out; what follows the last is -1.  With ``background``
    class 0 is a class like others.
    """
    batch, classes, count = scores.shape
    dtype = str(locations.dtype)
    zero, one, half = (tirx.const(value, dtype) for value in (0, 1, 0.5))

    def body(ins, outs):
        (values, moves, corners), (boxes, number) = ins, outs

        def coordinates(i, j):
            left, top, right, bottom = (corners[0, j, k] for k in range(4))
            x, y, w, h = (moves[i, j * 4 + k] * tirx.const(variances[k], dtype) for k in range(4))
            width, height = right - left, bottom - top
            across, down = x * width + (left + right) * half, y * height + (top + bottom) * half
            reach, drop = tirx.exp(w) * width * half, tirx.exp(h) * height * half
            found = [across - reach, down - drop, across + reach, down + drop]
            return [te.max(zero, te.min(one, value)) for value in found] if clip else found

        with T.serial(0, batch) as i:
            number[i] = tirx.const(0, "int32")
            with T.serial(0, count) as j, T.serial(0, 6) as k:
                boxes[i, j, k] = tirx.const(-1, dtype)
            with T.serial(0, count) as j:
                best, chosen = local(dtype, -1), local("int32", 0)
                with T.serial(0 if background else 1, classes) as k:
                    value = tirx.Cast(dtype, values[i, k, j])
                    with when(value > best[0]):
                        best[0] = value
                        chosen[0] = tirx.Cast("int32", k)
                with when(chosen[0] > 0, best[0] < tirx.const(threshold, dtype)):
                    chosen[0] = tirx.const(0, "int32")
                with when(tirx.const(True, "bool") if background else chosen[0] > 0):
                    label = chosen[0] if background else chosen[0] - 1
                    for k, value in enumerate([tirx.Cast(dtype, label), best[0], *coordinates(i, j)]):
                        boxes[i, number[i], k] = value
                    number[i] = number[i] + 1

    return kernel(
        "multibox_transform_loc",
        [scores, locations, anchors],
        [(batch, count, 6), (batch,)],
        [dtype, "int32"],
        body,
    )
