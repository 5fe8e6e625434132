"""Slices, windows and layouts, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from running import check, floats, refused, run

from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.operators.slices import Slice
from tvmpass.frontends.relay.table import CannotConvert


def test_strided_slices():
    x = floats(5, 6, 3)
    check(
        """(strided_slice(%x, begin=[1], end=[4], strides=[2]),
        strided_slice(%x, begin=[0, -4], end=[5, -1], strides=[1, 2]),
        strided_slice(%x, begin=[4, 5], end=[-6, 0], strides=[-1, -2]),
        strided_slice(%x, begin=[-1], end=[0], strides=[-1], axes=[1]),
        strided_slice(%x, begin=[1, 0], end=[100, 2], strides=[1, 1], axes=[-1, 0]),
        strided_slice(%x, begin=[0, 2], end=[-1, 3], strides=[1], slice_mode="size"),
        strided_slice(%x, begin=[2], end=[2], strides=[1]),
        strided_slice(%x, begin=[0], end=[2147483647], strides=[1]))""",
        {"x": x},
        x[1:4:2],
        x[:, -4:-1:2],
        x[::-1, 5:0:-2],
        x[:, :0:-1],
        x[:2, :, 1:],
        x[:, 2:5],
        x[2:2],
        x,
    )


def test_strided_slice_with_bounds_left_out():
    x = floats(4, 5)
    check(
        """(strided_slice(%x, begin=[None, 1], end=[2, None], strides=[1]),
        strided_slice(%x, begin=[None], end=[None], strides=[-1]),
        strided_slice(%x, begin=[3], end=[-5], strides=[-2]))""",
        {"x": x},
        x[:2, 1:],
        x[:0:-1],  # where an end is left out, a negative stride ends before the first element
        x[::-2],
    )


def test_every_slice_of_short_axes():
    """Where Relay does not refuse a slice, it is that of Python."""
    for length, step in itertools.product(range(4), (1, 2, 3, -1, -2)):
        for begin, end in itertools.product(range(-5, 6), repeat=2):
            wanted = range(*slice(begin, end, step).indices(length))
            part = Slice(begin, end, step)
            try:
                first, last = part.bounds(length)
            except CannotConvert:
                assert len(wanted) == 0
                continue
            assert len(wanted) == part.count(length)
            assert list(wanted) == list(range(first, last, step))


def test_slice_modes_differ_in_the_end_alone():
    x = floats(6)
    check(
        """(strided_slice(%x, begin=[-4], end=[3], strides=[1], slice_mode="size"),
        strided_slice(%x, begin=[1], end=[4], strides=[2], slice_mode="size"),
        strided_slice(%x, begin=[1], end=[4], strides=[2]))""",
        {"x": x},
        x[2:5],
        x[1:5],
        x[1:4:2],
    )


def test_slices_that_are_refused():
    x = floats(4, 5)
    refused("strided_slice(%x, begin=[3], end=[1], strides=[1])", {"x": x}, "backwards")
    refused("strided_slice(%x, begin=[1], end=[3], strides=[0])", {"x": x}, "stride is 0")
    refused("strided_slice(%x, begin=[1], end=[3], strides=[1], axes=[2])", {"x": x}, "out of range")


def test_slices_of_unknown_sizes():
    x = floats(5, 4)
    text = """def @main(%x: Tensor[(?, 4), float32]) {
      (strided_slice(%x, begin=[1, 1], end=[2147483647, 3], strides=[1, 1]),
       strided_slice(%x, begin=[0], end=[-1], strides=[2]),
       strided_slice(%x, begin=[-2], end=[2147483647], strides=[1]),
       slice_like(%x, %x))
    }"""
    for one, other in zip(run(text, x), [x[1:, 1:3], x[:-1:2], x[-2:], x]):
        np.testing.assert_array_equal(one, other)
    text = "def @main(%x: Tensor[(?, 4), float32]) { strided_slice(%x, begin=[2], end=[0], strides=[-1]) }"
    with pytest.raises(RelayError, match="--shape"):
        run(text, x)


def test_slice_like():
    x = floats(4, 5, 6)
    check(
        "(slice_like(%x, %y), slice_like(%x, %y, axes=[-2]), slice_like(%x, %z))",
        {"x": x, "y": floats(2, 3, 6), "z": floats(3, 1)},
        x[:2, :3],
        x[:, :3],
        x[:3, :1],
    )
    refused("slice_like(%x, %y)", {"x": floats(2, 2), "y": floats(3, 2)}, "has no 3")


@pytest.mark.parametrize("constant", [True, False])
def test_strided_set(constant):
    x, value = floats(5, 6), -floats(2, 3)
    expected = x.copy()
    expected[1:5:2, -4:-1] = value
    bounds = [np.array([1, -4], "int32"), np.array([5, -1], "int32"), np.array([2, 1], "int32")]
    if constant:
        body = """strided_set(%x, %v, stack((1, -4)), stack((5, -1)), stack((2, 1)))"""
        check(body, {"x": x, "v": value}, expected)
    else:
        body = "strided_set(%x, %v, %b, %e, stack((2, 1)))"
        check(body, {"x": x, "v": value, "b": bounds[0], "e": bounds[1]}, expected)


def test_strided_set_backwards():
    x, value = floats(6), -floats(6)
    expected = x.copy()
    expected[4:1:-1] = value[:3]
    body = "strided_set(%x, %v, stack((4,)), stack((1,)), stack((-1,)))"
    check(body, {"x": x, "v": value}, expected)
    refused(
        "strided_set(%x, %v, stack((0,)), stack((6,)), stack((1,)))", {"x": x, "v": value[:4]}, "6 elements"
    )


def test_sliding_window():
    x = floats(2, 3, 7, 8)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 4), (2, 3))[:, :, ::2, ::1]
    check(
        "sliding_window(%x, axis=2, window_shape=[3, 4], strides=[2, 1])",
        {"x": x},
        np.ascontiguousarray(windows),
    )
    refused("sliding_window(%x, axis=3, window_shape=[9], strides=[1])", {"x": x}, "no window")


def test_layouts():
    x = floats(2, 8, 3, 5)
    blocked = x.reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2)
    narrow = x.reshape(2, 4, 2, 3, 5).transpose(0, 1, 3, 4, 2)
    check(
        """let %a = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW4c");
        (layout_transform(%x, src_layout="NCHW", dst_layout="NHWC"), %a,
        layout_transform(%a, src_layout="NCHW4c", dst_layout="NCHW"),
        layout_transform(%a, src_layout="NCHW4c", dst_layout="NCHW2c"),
        layout_transform(%a, src_layout="NCHW4c", dst_layout="NHWC"),
        layout_transform(%x, src_layout="NCHW", dst_layout="NCHW"))""",
        {"x": x},
        x.transpose(0, 2, 3, 1),
        blocked,
        x,
        narrow,
        x.transpose(0, 2, 3, 1),
        x,
    )


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_layout_of_a_part_block_is_filled_with_zeros(dtype):
    x = floats(1, 3, 2, 2).astype(dtype)
    filled = np.concatenate([x, np.zeros((1, 1, 2, 2), dtype)], 1)
    blocked = filled.reshape(1, 1, 4, 2, 2).transpose(0, 1, 3, 4, 2)
    check(
        """let %a = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW4c");
        (%a, layout_transform(%a, src_layout="NCHW4c", dst_layout="NCHW"))""",
        {"x": x},
        blocked,
        filled,
    )


def test_layout_with_an_axis_split_twice():
    x = floats(8, 16, 1, 1)
    nested = x.reshape(2, 4, 4, 2, 2, 1, 1).transpose(0, 2, 5, 6, 3, 1, 4)
    check(
        """let %a = layout_transform(%x, src_layout="OIHW", dst_layout="OIHW2i4o2i");
        (%a, layout_transform(%a, src_layout="OIHW2i4o2i", dst_layout="OIHW"))""",
        {"x": x},
        nested,
        x,
    )


def test_layouts_that_are_refused():
    x = floats(1, 4, 2, 2)
    refused('layout_transform(%x, src_layout="NCHW", dst_layout="NCDHW")', {"x": x}, "other axes")
    refused('layout_transform(%x, src_layout="NCHW", dst_layout="NC-HW")', {"x": x}, "not a layout")
    refused('layout_transform(%x, src_layout="NC4c", dst_layout="NC")', {"x": x}, "no layout")


def test_auto_scheduler_layouts():
    x = floats(8, 6)
    split = x.reshape(2, 4, 3, 2).transpose(0, 2, 1, 3)
    check('auto_scheduler_layout_transform(%x, src_layout="8a6b", dst_layout="2a3b4a2b")', {"x": x}, split)
    refused(
        'auto_scheduler_layout_transform(%x, src_layout="8a6b", dst_layout="2a3b2a2b")', {"x": x}, "not split"
    )
