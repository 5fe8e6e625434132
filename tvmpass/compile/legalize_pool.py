"""Pooling: maxima keep NaN and infinities, averages of integers keep their dtype.

TVM's own maximum starts at the smallest finite number, which it gives for a window
of negative infinities, and loses a NaN that a later element meets.  Its average of
int32 is int64, which contradicts the operator's type, and where windows are dilated its
vectorised count of what lies in the padding is wrong.
"""

from __future__ import annotations

from tvm import sym, te, tirx, topi

from .legalize_elementwise import Legalize
from .legalize_reduce import lowest, max_reducer


def _pooled(x: te.Tensor, attrs, deduced: list, reducer, name: str) -> te.Tensor:
    """Return the largest element of each window; padding never wins."""
    layout = str(attrs.layout)
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    rank = len(axes)
    simplify = sym.Analyzer().simplify
    size, stride, spread, pads = (
        [int(v) for v in values] for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    before, after, shape = [0] * len(layout), [0] * len(layout), list(x.shape)
    for i, axis in enumerate(axes):
        reach = spread[i] * (size[i] - 1) + 1
        spare = x.shape[axis] + pads[i] + pads[i + rank] - reach
        rounding = stride[i] - 1 if attrs.ceil_mode else 0
        shape[axis] = simplify(tirx.floordiv(spare + rounding, stride[i]) + 1)
        if isinstance(deduced[axis], tirx.IntImm):
            # Relax drops a last window that ceil_mode would start beyond the input.
            shape[axis] = deduced[axis]
        before[axis] = pads[i]
        # What the last window may reach over the padded end, which ceil_mode allows.
        over = simplify((shape[axis] - 1) * stride[i] - spare)
        known = isinstance(over, tirx.IntImm)
        after[axis] = max(pads[i + rank] + (int(over) if known else rounding), 0)
    dtype = str(x.dtype)
    if any(before) or any(after):
        x = topi.nn.pad(x, before, after, tirx.const(lowest(dtype), dtype), name="pad_temp")
    steps = [te.reduce_axis((0, length), f"r{i}") for i, length in enumerate(size)]

    def compute(*index):
        place = list(index)
        for i, axis in enumerate(axes):
            place[axis] = index[axis] * stride[i] + steps[i].var * spread[i]
        return reducer(x(*place), axis=steps)

    return te.compute(shape, compute, name=f"T_{name}")


def _max_pool(nan: bool, name: str) -> Legalize:
    def legalize(bb, call):
        attrs = call.attrs
        layout = str(attrs.layout)
        if attrs.out_layout != attrs.layout or not layout.isalpha() or not layout.isupper():
            return None
        reducer = max_reducer(nan)
        return bb.call_te(
            lambda x: _pooled(x, attrs, list(call.ty.shape.values), reducer, name),
            call.args[0],
            primfunc_name_hint=name,
        )

    return legalize


def _dilated_average(x: te.Tensor, attrs, shape: list) -> te.Tensor:
    """Return the average of each window over what lies in the input; integers are truncated.

    The elements of a window are counted one by one: TVM's quotient of a negative
    number is rounded down where its loop is vectorised.
    """
    layout, dtype = str(attrs.layout), str(x.dtype)
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    size, stride, spread, pads = (
        [int(v) for v in values] for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    simplify = sym.Analyzer().simplify
    before, after = [0] * len(layout), [0] * len(layout)
    for i, axis in enumerate(axes):
        before[axis] = pads[i]
        after[axis] = pads[i + len(axes)]
        if attrs.ceil_mode:
            end = (shape[axis] - 1) * stride[i] + spread[i] * (size[i] - 1) + 1
            over = simplify(end - x.shape[axis] - before[axis] - after[axis])
            after[axis] += max(int(over), 0) if isinstance(over, tirx.IntImm) else stride[i] - 1
    padded = topi.nn.pad(x, before, after, tirx.const(0, dtype), name="pad_temp")
    steps = [te.reduce_axis((0, length), f"r{i}") for i, length in enumerate(size)]

    def window(*index):
        place = list(index)
        for i, axis in enumerate(axes):
            place[axis] = index[axis] * stride[i] + steps[i].var * spread[i]
        return te.sum(padded(*place), axis=steps)

    total = te.compute(shape, window, name="T_avg_pool_sum")

    def count(i: int, axis: int) -> te.Tensor:
        step = te.reduce_axis((0, size[i]), f"c{i}")

        def inside(o):
            place = o * stride[i] + step.var * spread[i] - pads[i]
            return te.sum(tirx.Cast("int32", tirx.all(place >= 0, place < x.shape[axis])), axis=step)

        return te.compute((shape[axis],), inside, name=f"T_avg_pool_count{i}")

    counts = [count(i, axis) for i, axis in enumerate(axes)]

    def mean(*index):
        number = tirx.const(1, "int32")
        for part, axis in zip(counts, axes):
            number = number * part(index[axis])
        return topi.divide(total(*index), tirx.Cast(dtype, te.max(number, tirx.const(1, "int32"))))

    return te.compute(shape, mean, name="T_avg_pool")


def _whole_average(rank: int) -> Legalize:
    """Average integers in their own dtype, truncating; most windows of floats are left to TVM."""
    pool = (topi.nn.pool1d, topi.nn.pool2d, topi.nn.pool3d)[rank - 1]

    def legalize(bb, call):
        attrs, dtype = call.attrs, str(call.ty.dtype)
        dilated = any(int(step) != 1 for step in attrs.dilation) and not attrs.count_include_pad
        if attrs.out_layout != attrs.layout or not (dilated or dtype.startswith(("int", "uint"))):
            return None

        def average(x):
            if dilated:
                return _dilated_average(x, attrs, list(call.ty.shape.values))
            made = pool(
                x,
                kernel=attrs.pool_size,
                stride=attrs.strides,
                dilation=attrs.dilation,
                padding=attrs.padding,
                pool_type="avg",
                ceil_mode=attrs.ceil_mode,
                layout=attrs.layout,
                count_include_pad=attrs.count_include_pad,
            )
            return topi.cast(made, dtype)

        return bb.call_te(average, call.args[0], primfunc_name_hint=f"avg_pool{rank}d")

    return legalize


def poolings(nan: bool) -> dict[str, Legalize]:
    """Return the legalisations of pooling; without ``nan`` a maximum may lose NaN."""
    ranks = (1, 2, 3)
    largest = {f"relax.nn.max_pool{rank}d": _max_pool(nan, f"max_pool{rank}d") for rank in ranks}
    return largest | {f"relax.nn.avg_pool{rank}d": _whole_average(rank) for rank in ranks}
