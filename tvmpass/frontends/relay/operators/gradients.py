"""Gradients of pools and convolutions, as `relay.transform.gradient` leaves them in a program."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax, te, tirx

from ..table import Attrs, CannotConvert, Emitter, Table
from .facts import Dim, dtype_of, shape_of
from .layouts import is_plain, known, packed, padding_of, per_axis, unpacked
from .shapes import require_same, transposed

TABLE = Table()


@TABLE.operator("nn.max_pool2d_grad")
def max_pool2d_grad(emit: Emitter, attrs: Attrs, gradient, x):
    """Convert the gradient of max_pool2d: it goes to the first largest element of each window."""
    return _pool_grad(emit, attrs, gradient, x, _to_largest)


@TABLE.operator("nn.avg_pool2d_grad")
def avg_pool2d_grad(emit: Emitter, attrs: Attrs, gradient, x):
    """Convert the gradient of avg_pool2d: every element of a window gets its share."""
    return _pool_grad(emit, attrs, gradient, x, partial(_shared, bool(attrs.count_include_pad)))


def _pool_grad(emit: Emitter, attrs: Attrs, gradient, x, kernel):
    layout = attrs.word("layout") or "NCHW"
    plain = layout if is_plain(layout) else "NCHW"
    if plain not in ("NCHW", "NHWC"):
        raise CannotConvert(f"layout={layout!r} is not NCHW, NHWC or a packed NCHW")
    if attrs.ints("dilation") not in ([1], [1, 1]):
        raise CannotConvert("Relay ignores the dilation of a pool's gradient")
    size, strides = (per_axis(attrs.ints(name), 2, name) for name in ("pool_size", "strides"))
    padding = padding_of(attrs.ints("padding"), 2)
    gradient, x = unpacked(emit, gradient, layout, plain), unpacked(emit, x, layout, plain)
    axes = (plain.index("H"), plain.index("W"))
    result = emit.te(partial(kernel, axes, size, strides, padding), gradient, x, name="pool2d_grad")
    return packed(emit, result, plain, layout)


def _windows(axes, size, strides, padding, outputs, index):
    """Yield per axis the steps over windows that may cover an element, their place, and whether one does."""
    for i, axis in enumerate(axes):
        step = te.reduce_axis((0, -(-size[i] // strides[i])), f"w{i}")
        at = index[axis] + padding[i]
        place = tirx.floordiv(at, strides[i]) - step.var
        there = tirx.all(place >= 0, place < outputs[axis], at - place * strides[i] < size[i])
        yield step, place, there


def _moved(axes, index, places) -> list[Any]:
    """Return an index with other places on the pooled axes."""
    moved = list(index)
    for axis, place in zip(axes, places):
        moved[axis] = place
    return moved


def _shared(include: bool, axes, size, strides, padding, gradient: te.Tensor, x: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, str(gradient.dtype))

    def count(places):
        number: Any = 1
        for i, axis in enumerate(axes):
            first = places[i] * strides[i] - padding[i]
            length = te.min(first + size[i], x.shape[axis]) - te.max(first, 0)
            number = number * (size[i] if include else length)
        return number if include else te.max(number, 1)

    def compute(*index):
        steps, places, there = zip(*_windows(axes, size, strides, padding, gradient.shape, index))
        share = gradient(*_moved(axes, index, places)) / tirx.Cast(str(gradient.dtype), count(places))
        return te.sum(tirx.if_then_else(tirx.all(*there), share, zero), axis=list(steps))

    return te.compute(x.shape, compute, name="T_avg_pool_grad")


def _to_largest(axes, size, strides, padding, gradient: te.Tensor, x: te.Tensor) -> te.Tensor:
    dtype = str(x.dtype)
    lowest = te.min_value(dtype)

    def first_largest(a, b):
        ahead = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] < b[0]))
        return tirx.Select(ahead, a[0], b[0]), tirx.Select(ahead, a[1], b[1])

    reducer = te.comm_reducer(
        first_largest, lambda *_: (tirx.const(2**31 - 1, "int32"), lowest), name="first_largest"
    )

    def winner(*index):
        steps = [te.reduce_axis((0, length), f"k{i}") for i, length in enumerate(size)]
        places = [index[axis] * strides[i] + steps[i].var - padding[i] for i, axis in enumerate(axes)]
        inside = [tirx.all(place >= 0, place < x.shape[axis]) for place, axis in zip(places, axes)]
        value = tirx.if_then_else(tirx.all(*inside), x(*_moved(axes, index, places)), lowest)
        return reducer((steps[0].var * size[1] + steps[1].var, value), axis=steps)

    chosen = te.compute(gradient.shape, winner, name="T_max_pool_winner")[0]
    zero = tirx.const(0, str(gradient.dtype))

    def compute(*index):
        steps, places, there = zip(*_windows(axes, size, strides, padding, gradient.shape, index))
        offsets = [index[axis] + padding[i] - places[i] * strides[i] for i, axis in enumerate(axes)]
        window = _moved(axes, index, places)
        mine = chosen(*window) == tirx.Cast("int32", offsets[0] * size[1] + offsets[1])
        gets = tirx.if_then_else(tirx.all(*there), tirx.Select(mine, gradient(*window), zero), zero)
        return te.sum(gets, axis=list(steps))

    return te.compute(x.shape, compute, name="T_max_pool_grad")


@TABLE.operator("nn.conv2d_backward_weight")
def conv2d_backward_weight(emit: Emitter, attrs: Attrs, gradient, x):
    """Convert the gradient of conv2d's weight: a convolution over the batch.

    The attributes name layouts otherwise than elsewhere: ``data_layout`` is the
    gradient's, ``kernel_layout`` the image's, ``out_layout`` the weight's.
    """
    size = attrs.ints("kernel_size")
    if not size or len(size) != 2:
        raise CannotConvert("kernel_size must be stated")
    if int(attrs.groups) != 1:
        raise CannotConvert("the gradient of a weight in groups")
    gradient = unpacked(emit, gradient, attrs.word("data_layout") or "NCHW", "NCHW")
    layout = attrs.word("kernel_layout") or "NCHW"
    x = unpacked(emit, x, "NCHW" if layout == "OIHW" else layout, "NCHW")
    require_same(shape_of(gradient)[0], shape_of(x)[0], "the batches of the operands")
    strides, dilation = (per_axis(attrs.ints(name), 2, name) for name in ("strides", "dilation"))
    padding = padding_of(attrs.ints("padding"), 2)
    # What does not fill a last window has no part in the gradient: padding is cut by it.
    for i in range(2):
        outputs = known(shape_of(gradient)[2 + i], "the size of the gradient")
        used = (outputs - 1) * strides[i] + (size[i] - 1) * dilation[i] + 1
        padding[i + 2] = used - known(shape_of(x)[2 + i], "the size of the image") - padding[i]
    cut: dict[int, Dim] = {i + 2: shape_of(x)[i + 2] + min(padding[i + 2], 0) for i in range(2)}
    if any(end < 0 for end in padding[2:]):
        x = emit(relax.op.strided_slice(x, list(cut), [0, 0], list(cut.values())))
    made = relax.op.nn.conv2d(
        transposed(emit, x, [1, 0, 2, 3]),
        transposed(emit, gradient, [1, 0, 2, 3]),
        strides=dilation,
        padding=[*padding[:2], *(max(end, 0) for end in padding[2:])],
        dilation=strides,
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_dtype=attrs.word("out_dtype") or dtype_of(gradient),
    )
    result = transposed(emit, emit(made), [1, 0, 2, 3])
    return packed(emit, result, "OIHW", attrs.word("out_layout") or "OIHW")
