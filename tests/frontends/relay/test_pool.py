"""Pools of Relay: what ceil_mode and padding count, layouts, adaptive sizes, dtypes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from nn_reference import adaptive_pool, packed, pool
from running import converted, run_ops

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(13)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


check = partial(running.check, rtol=1e-5, atol=1e-6)


def test_windows_with_padding_dilation_and_strides():
    x = normal(1, 2, 8, 9)
    check(
        "(nn.max_pool2d(%x, pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 0, 1]),"
        " nn.max_pool2d(%x, pool_size=[2, 2], dilation=[2, 3]),"
        " nn.avg_pool2d(%x, pool_size=[3, 3], strides=[2, 2], padding=[1]),"
        " nn.avg_pool2d(%x, pool_size=[3, 3], padding=[1, 1], count_include_pad=True),"
        " nn.avg_pool2d(%x, pool_size=[2, 2], dilation=[2, 2], padding=[1, 1, 1, 1]))",
        {"x": x},
        pool(x, "max", [3, 2], [2, 1], [1, 0, 0, 1]),
        pool(x, "max", [2, 2], [1, 1], [0] * 4, [2, 3]),
        pool(x, "avg", [3, 3], [2, 2], [1] * 4),
        pool(x, "avg", [3, 3], [1, 1], [1] * 4, include=True),
        pool(x, "avg", [2, 2], [1, 1], [1] * 4, [2, 2]),
    )


@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_ceil_mode_keeps_a_window_that_starts_in_the_padding(size):
    x = normal(1, 1, size, size)
    attrs = "pool_size=[3, 2], strides=[3, 4], padding=[1, 1, 1, 1], ceil_mode=True"
    arguments = [3, 2], [3, 4], [1] * 4
    expected = [pool(x, "max", *arguments, ceil=True), pool(x, "avg", *arguments, ceil=True)]
    with np.errstate(invalid="ignore"):
        expected.append(pool(x, "avg", *arguments, ceil=True, include=True))
    got = run_ops(
        f"(nn.max_pool2d(%x, {attrs}), nn.avg_pool2d(%x, {attrs}),"
        f" nn.avg_pool2d(%x, {attrs}, count_include_pad=True))",
        {"x": x},
    )
    lowest = np.finfo("float32").min
    for one, other in zip(got, expected):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, np.maximum(other, lowest), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "window", "stride", "dilation", "padding"),
    [
        (3, 2, 1, 1, (2, 0)),
        (3, 2, 1, 1, (0, 3)),
        (1, 2, 1, 2, (1, 1)),
        (2, 2, 1, 3, (2, 2)),
        (5, 3, 2, 1, (1, 1)),
        (4, 2, 3, 2, (1, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_maximum_of_padding_alone_is_the_lowest_finite_number(
    size, window, stride, dilation, padding, dtype
):
    x = -np.arange(1, size + 1, dtype=dtype).reshape(1, 1, size)
    lowest = np.finfo(dtype).min
    wide = np.pad(x[0, 0], padding, constant_values=lowest)
    reach = (window - 1) * dilation + 1
    wanted = [wide[i : i + reach : dilation].max() for i in range(0, len(wide) - reach + 1, stride)]
    attrs = f"pool_size=[{window}], strides=[{stride}], dilation=[{dilation}], padding={list(padding)}"
    check(f"nn.max_pool1d(%x, {attrs})", {"x": x}, np.array(wanted, dtype).reshape(1, 1, -1))


def test_one_and_three_axes():
    x, v = normal(2, 3, 9), normal(1, 2, 5, 6, 4)
    check(
        "(nn.max_pool1d(%x, pool_size=[3], strides=[2], padding=[1, 1]),"
        " nn.avg_pool1d(%x, pool_size=[4], strides=[3], padding=[1, 0], ceil_mode=True,"
        " count_include_pad=True),"
        " nn.avg_pool1d(%x, pool_size=[4], strides=[4], dilation=[2], padding=[2, 0], ceil_mode=True),"
        " nn.max_pool3d(%v, pool_size=[2, 2, 2], strides=[2, 2, 2], ceil_mode=True),"
        " nn.avg_pool3d(%v, pool_size=[2, 3, 2], padding=[1, 1, 0]))",
        {"x": x, "v": v},
        pool(x, "max", [3], [2], [1, 1]),
        pool(x, "avg", [4], [3], [1, 0], ceil=True, include=True),
        pool(x, "avg", [4], [4], [2, 0], [2], ceil=True),
        pool(v, "max", [2] * 3, [2] * 3, [0] * 6, ceil=True),
        pool(v, "avg", [2, 3, 2], [1] * 3, [1, 1, 0, 1, 1, 0]),
    )


def test_layouts():
    x = normal(1, 8, 6, 5)
    last = x.transpose(0, 2, 3, 1).copy()
    expected = pool(x, "max", [3, 3], [2, 2], [1] * 4)
    mean = pool(x, "avg", [2, 2], [2, 2], [0] * 4, ceil=True, include=True)
    check(
        '(nn.max_pool2d(%l, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], layout="NHWC"),'
        ' nn.max_pool2d(%p, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], layout="NCHW4c"),'
        " nn.avg_pool2d(%l, pool_size=[2, 2], strides=[2, 2], ceil_mode=True, count_include_pad=True,"
        ' layout="NHWC"),'
        ' nn.global_avg_pool2d(%l, layout="NHWC"), nn.global_max_pool2d(%p, layout="NCHW4c"),'
        ' nn.max_pool2d(%w, pool_size=[3, 2], strides=[2, 1], layout="WNHC"))',
        {"l": last, "p": packed(x, 1, 4), "w": x.transpose(3, 0, 2, 1).copy()},
        expected.transpose(0, 2, 3, 1),
        packed(expected, 1, 4),
        mean.transpose(0, 2, 3, 1),
        x.mean((2, 3), keepdims=True).transpose(0, 2, 3, 1),
        packed(x.max((2, 3), keepdims=True), 1, 4),
        pool(x, "max", [3, 2], [2, 1], [0] * 4).transpose(3, 0, 2, 1),
    )


def test_adaptive_pools():
    x, y, z = normal(2, 3, 7), normal(1, 2, 7, 6), normal(1, 2, 4, 5, 6)
    check(
        "(nn.adaptive_avg_pool1d(%x, output_size=[3]), nn.adaptive_max_pool1d(%x, output_size=[5]),"
        " nn.adaptive_avg_pool2d(%y, output_size=[3]), nn.adaptive_max_pool2d(%y, output_size=[3, 4]),"
        " nn.adaptive_max_pool2d(%y, output_size=[7, 3]), nn.adaptive_avg_pool2d(%y, output_size=[1, 1]),"
        " nn.adaptive_max_pool3d(%z, output_size=[2, 2, 4]),"
        " nn.adaptive_avg_pool3d(%z, output_size=[3, 5, 2]),"
        " nn.adaptive_avg_pool2d(%y), contrib.adaptive_max_pool2d(%y, output_size=[3, 4]))",
        {"x": x, "y": y, "z": z},
        adaptive_pool(x, "mean", [3]),
        adaptive_pool(x, "max", [5]),
        adaptive_pool(y, "mean", [3, 3]),
        adaptive_pool(y, "max", [3, 4]),
        adaptive_pool(y, "max", [7, 3]),
        adaptive_pool(y, "mean", [1, 1]),
        adaptive_pool(z, "max", [2, 2, 4]),
        adaptive_pool(z, "mean", [3, 5, 2]),
        y,
        adaptive_pool(y, "max", [3, 4]),
    )


def test_a_maximum_keeps_nan():
    x = normal(1, 1, 4, 4)
    x[0, 0, 1, 2] = np.nan
    got = run_ops(
        "(nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2]),"
        " nn.adaptive_max_pool2d(%x, output_size=[3, 3]),"
        " nn.global_max_pool2d(%x))",
        {"x": x},
    )
    assert np.isnan(got[0][0, 0]).tolist() == [[False, True], [False, False]]
    assert np.isnan(got[1][0, 0]).tolist() == [
        [False, True, True],
        [False, True, True],
        [False, False, False],
    ]
    assert np.isnan(got[2]).all()


def test_integers_are_averaged_towards_zero():
    x = RNG.integers(-9, 9, (1, 2, 4, 4)).astype("int32")
    total = x.reshape(1, 2, 2, 2, 2, 2).sum((3, 5))
    check(
        "(nn.avg_pool2d(%x, pool_size=[2, 2], strides=[2, 2]), nn.global_avg_pool2d(%x),"
        " nn.max_pool2d(%x, pool_size=[3, 3], padding=[1, 1]),"
        " nn.adaptive_max_pool2d(%x, output_size=[3, 3]),"
        " nn.adaptive_avg_pool2d(%x, output_size=[3, 3]), nn.adaptive_max_pool2d(%b, output_size=[3, 3]))",
        {"x": x, "b": x.astype("uint8")},
        np.trunc(total / 4).astype("int32"),
        np.trunc(x.sum((2, 3), keepdims=True) / 16).astype("int32"),
        pool(x.astype("float32"), "max", [3, 3], [1, 1], [1] * 4).astype("int32"),
        adaptive_pool(x, "max", [3, 3]),
        np.trunc(adaptive_pool(x.astype("float64"), "mean", [3, 3])).astype("int32"),
        adaptive_pool(x.astype("uint8"), "max", [3, 3]),
        rtol=0,
        atol=0,
    )


def test_sizes_that_are_not_known():
    mod = converted(
        "def @main(%x: Tensor[(?, 2, ?, 8), float32])"
        " { (nn.max_pool2d(%x, pool_size=[3, 3], strides=[2, 2], ceil_mode=True), nn.global_avg_pool2d(%x)) }"
    )
    first, second = mod["main"].ret_ty.fields
    assert int(first.shape[3]) == 4
    assert [int(dim) for dim in list(second.shape)[1:]] == [2, 1, 1]


def test_what_relay_does_not_compute_is_refused():
    with pytest.raises(TvmpassError, match="averages of int8"):
        converted("def @main(%x: Tensor[(1, 1, 4, 4), int8]) { nn.avg_pool2d(%x, pool_size=[2, 2]) }")
    with pytest.raises(TvmpassError, match="has other axes than NCHW"):
        converted(
            "def @main(%x: Tensor[(1, 1, 4, 4), float32])"
            ' { nn.max_pool2d(%x, pool_size=[2, 2], layout="NCXW") }'
        )
