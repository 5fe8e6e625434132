"""Kernels that select boxes of each class, none of which overlaps a better one."""

from __future__ import annotations

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from .box_kernels import overlap
from .steps import element, kernel, local, when


def select_per_class(joined: bool, boxes, scores, order, most, shared, threshold):
    """Select boxes of each class by falling score, none that overlaps a selected one.

    ``scores`` (batch, classes, boxes) and ``order``, which sorts them.  ``joined``
    lists (batch, class, box) of all images and their number, else per image
    (class, box), scores and their numbers.  What follows is 0.
    """
    batch, classes, count = scores.shape
    dtype = str(scores.dtype)
    rows = batch * classes * count if joined else classes * count

    def body(ins, outs):
        corners, values, by, most_buffer, shared_buffer, threshold_buffer = ins
        listed, total = outs[0], outs[-1]
        limit = element(shared_buffer, shared, "float32")
        least = element(threshold_buffer, threshold, dtype)
        wanted = element(most_buffer, most, "int32")

        def box(i, n):
            return [corners[i, n, c] for c in range(4)]

        def entry(i, row, column):
            return listed[row, column + 1] if joined else listed[i, row, column]

        def store(i, c, n, end, taken):
            row = end[0]
            if joined:
                listed[row, 0], listed[row, 1] = tirx.Cast("int64", i), tirx.Cast("int64", c)
                listed[row, 2] = tirx.Cast("int64", n)
            else:
                listed[i, row, 0], listed[i, row, 1] = tirx.Cast("int64", c), tirx.Cast("int64", n)
                outs[1][i, row] = tirx.Cast("float32", values[i, c, n])
            end[0] = end[0] + 1
            taken[0] = taken[0] + 1

        def consider(i, c, n, end, taken):
            """List box n unless a listed one of its class overlaps it; scores below 0 are not compared."""
            good = local("int32", 1)
            with T.serial(0, taken[0]) as k, when(good[0] == 1, values[i, c, n] > tirx.const(0, dtype)):
                other = box(i, tirx.Cast("int32", entry(i, end[0] - taken[0] + k, 1)))
                with when(tirx.Cast("float32", overlap(other, box(i, n), str(boxes.dtype))) >= limit):
                    good[0] = tirx.const(0, "int32")
            with when(good[0] == 1):
                store(i, c, n, end, taken)

        def per_class(i, c, end):
            taken = local("int32", 0)
            most_here = tirx.Select(wanted > 0, wanted, tirx.Cast("int32", count))
            with T.serial(0, count) as j:
                n = by[i, c, j]
                value = values[i, c, n]
                above = [value > least, value > tirx.const(-1, dtype)]
                with when(limit > tirx.const(0, "float32"), *above, taken[0] < most_here):
                    consider(i, c, n, end, taken)

        def blank(i):
            with T.serial(0, rows) as row:
                if joined:
                    for column in range(3):
                        listed[row, column] = tirx.const(0, "int64")
                else:
                    for column in range(2):
                        listed[i, row, column] = tirx.const(0, "int64")
                    outs[1][i, row] = tirx.const(0, "float32")

        if joined:
            with T.serial(0, 1) as one:
                blank(one)
                end = local("int32", 0)
                with T.serial(0, batch) as i, T.serial(0, classes) as c:
                    per_class(i, c, end)
                total[one] = tirx.Cast("int64", end[0])
        else:
            with T.serial(0, batch) as i:
                blank(i)
                end = local("int32", 0)
                with T.serial(0, classes) as c:
                    per_class(i, c, end)
                total[i] = tirx.Cast("int64", end[0])

    inputs = [boxes, scores, order, most, shared, threshold]
    if joined:
        return kernel("all_class_nms", inputs, [(rows, 3), (1,)], ["int64", "int64"], body)
    shapes = [(batch, rows, 2), (batch, rows), (batch,)]
    return kernel("all_class_nms", inputs, shapes, ["int64", "float32", "int64"], body)


def select_strictly(boxes, scores, order, most: int, shared: float, threshold: float):
    """Select boxes of each class that overlap no selected one by more than a threshold.

    Boxes are (top, left, bottom, right), one without area overlaps nothing.
    Returns scores (batch, classes, boxes), -inf behind the last, and box indices.
    """
    batch, classes, count = scores.shape
    dtype = str(scores.dtype)
    zero = tirx.const(0, dtype)

    def body(ins, outs):
        (corners, values, by), (chosen, places) = ins, outs

        def overlaps(i, n, m):
            a, b = ([corners[i, box, k] for k in range(4)] for box in (n, m))
            area_a, area_b = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
            height = te.max(te.min(a[2], b[2]) - te.max(a[0], b[0]), zero)
            width = te.max(te.min(a[3], b[3]) - te.max(a[1], b[1]), zero)
            common = height * width
            over = common / (area_a + area_b - common) > tirx.const(shared, dtype)
            none = tirx.any(area_a <= zero, area_b <= zero)
            return tirx.if_then_else(none, tirx.const(shared < 0, "bool"), over)

        with T.serial(0, batch) as i, T.serial(0, classes) as c:
            taken = local("int32", 0)
            with T.serial(0, count) as j:
                chosen[i, c, j] = tirx.const(float("-inf"), dtype)
                places[i, c, j] = tirx.const(0, "int32")
            with T.serial(0, count) as j:
                n = by[i, c, j]
                with when(values[i, c, n] >= tirx.const(threshold, dtype), taken[0] < most):
                    good = local("int32", 1)
                    with T.serial(0, taken[0]) as k, when(overlaps(i, places[i, c, k], n)):
                        good[0] = tirx.const(0, "int32")
                    with when(good[0] == 1):
                        chosen[i, c, taken[0]] = values[i, c, n]
                        places[i, c, taken[0]] = n
                        taken[0] = taken[0] + 1

    return kernel("regular_nms", [boxes, scores, order], [scores.shape, scores.shape], [dtype, "int32"], body)


def best_of_classes(most: int, boxes, scores, places, order):
    """Return the ``most`` best of all classes: boxes, classes, scores, numbers; 0 behind the last."""
    batch, classes, count = scores.shape
    dtype = str(scores.dtype)

    def at(i, m):
        spot = order[i, te.min(m, classes * count - 1)]
        return tirx.floordiv(spot, tirx.Cast("int32", count)), tirx.floormod(spot, tirx.Cast("int32", count))

    def there(i, m):
        c, k = at(i, m)
        return tirx.all(m < classes * count, scores[i, c, k] > tirx.const(float("-inf"), dtype))

    def corner(i, m, side):
        c, k = at(i, m)
        return tirx.if_then_else(
            there(i, m), boxes[i, places[i, c, k], side], tirx.const(0, str(boxes.dtype))
        )

    def value(i, m):
        c, k = at(i, m)
        return tirx.if_then_else(there(i, m), scores[i, c, k], tirx.const(0, dtype))

    def label(i, m):
        return tirx.if_then_else(there(i, m), tirx.Cast("float32", at(i, m)[0]), tirx.const(0, "float32"))

    step = te.reduce_axis((0, most), "m")
    return [
        te.compute((batch, most, 4), corner, name="T_boxes"),
        te.compute((batch, most), label, name="T_classes"),
        te.compute((batch, most), value, name="T_scores"),
        te.compute(
            (batch,), lambda i: te.sum(tirx.Cast("int32", there(i, step.var)), axis=step), name="T_number"
        ),
    ]
