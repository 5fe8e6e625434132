"""Convolutions of Relay: layouts, groups, padding, dtypes, transposed, packed, deformable."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from nn_reference import convolution, packed, transposed_convolution
from running import converted

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(7)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


check = partial(running.check, **TOLERANCE)


def test_padding_may_be_one_number_one_per_axis_or_all():
    x, w = normal(1, 2, 6, 7), normal(3, 2, 3, 3)
    check(
        "(nn.conv2d(%x, %w, padding=[1]), nn.conv2d(%x, %w, padding=[1, 2], strides=[2, 1]),"
        " nn.conv2d(%x, %w, padding=[0, 1, 2, 3], dilation=[2, 1]))",
        {"x": x, "w": w},
        convolution(x, w, [1, 1], [1, 1, 1, 1]),
        convolution(x, w, [2, 1], [1, 2, 1, 2]),
        convolution(x, w, [1, 1], [0, 1, 2, 3], [2, 1]),
    )


def test_one_and_three_axes_and_their_layouts():
    x, w = normal(2, 4, 9), normal(6, 2, 3)
    v, k = normal(1, 2, 4, 5, 6), normal(3, 2, 2, 3, 2)
    check(
        "(nn.conv1d(%x, %w, padding=[1, 0], groups=2),"
        ' nn.conv1d(%xl, %wl, padding=[1, 0], groups=2, data_layout="NWC", kernel_layout="WIO"),'
        " nn.conv3d(%v, %k, padding=[1, 0, 1, 0, 1, 0], strides=[1, 2, 1]),"
        ' nn.conv3d(%vl, %kl, padding=[1, 0, 1], data_layout="NDHWC", kernel_layout="DHWIO"))',
        {
            "x": x,
            "w": w,
            "xl": x.transpose(0, 2, 1).copy(),
            "wl": w.transpose(2, 1, 0).copy(),
            "v": v,
            "k": k,
            "vl": v.transpose(0, 2, 3, 4, 1).copy(),
            "kl": k.transpose(2, 3, 4, 1, 0).copy(),
        },
        convolution(x, w, [1], [1, 0], groups=2),
        convolution(x, w, [1], [1, 0], groups=2).transpose(0, 2, 1),
        convolution(v, k, [1, 2, 1], [1, 0, 1, 0, 1, 0]),
        convolution(v, k, [1, 1, 1], [1, 0, 1, 1, 0, 1]).transpose(0, 2, 3, 4, 1),
    )


@pytest.mark.parametrize("kernel_layout", ["OIHW", "HWIO", "HWOI", "OHWI"])
@pytest.mark.parametrize("data_layout", ["NCHW", "NHWC", "HWCN"])
def test_two_axes_in_any_layouts(data_layout, kernel_layout):
    x, w = normal(2, 4, 5, 6), normal(6, 2, 3, 2)
    order, kernel_order = (["NCHW".index(c) for c in data_layout], ["OIHW".index(c) for c in kernel_layout])
    check(
        f"nn.conv2d(%x, %w, groups=2, padding=[1, 1, 0, 0], channels=6, kernel_size=[3, 2],"
        f' data_layout="{data_layout}", kernel_layout="{kernel_layout}")',
        {"x": x.transpose(order).copy(), "w": w.transpose(kernel_order).copy()},
        convolution(x, w, [1, 1], [1, 1, 0, 0], groups=2).transpose(order),
    )


def test_the_result_may_have_its_own_layout():
    x, w = normal(1, 2, 4, 4), normal(3, 2, 3, 3)
    check(
        'nn.conv2d(%x, %w, out_layout="NHWC")',
        {"x": x, "w": w},
        convolution(x, w, [1, 1], [0] * 4).transpose(0, 2, 3, 1),
    )


@pytest.mark.parametrize("form", ["OIHW", "HWOI", "HWIO"])
def test_depthwise_weights_state_channels_and_multiplier(form):
    x, w = normal(1, 3, 5, 5), normal(3, 2, 3, 3)
    expected = convolution(x, w.reshape(6, 1, 3, 3), [1, 1], [1] * 4, groups=3)
    last = form != "OIHW"
    check(
        f"nn.conv2d(%x, %w, groups=3, channels=6, kernel_size=[3, 3], padding=[1, 1],"
        f' data_layout="{"NHWC" if last else "NCHW"}", kernel_layout="{form}")',
        {
            "x": x.transpose(0, 2, 3, 1).copy() if last else x,
            "w": w.transpose(["OIHW".index(c) for c in form]).copy(),
        },
        expected.transpose(0, 2, 3, 1) if last else expected,
    )


def test_depthwise_weights_of_a_grouped_convolution():
    x, w = normal(1, 3, 5, 5), normal(6, 1, 3, 3)
    check("nn.conv2d(%x, %w, groups=3)", {"x": x, "w": w}, convolution(x, w, [1, 1], [0] * 4, groups=3))


def test_weights_of_groups_on_an_axis_of_their_own():
    x, w = normal(1, 4, 5, 5), normal(2, 3, 2, 3, 3)
    check(
        'nn.conv2d(%x, %w, groups=2, kernel_layout="GOIHW")',
        {"x": x, "w": w},
        convolution(x, w.reshape(6, 2, 3, 3), [1, 1], [0] * 4, groups=2),
    )


def test_integers_accumulate_in_the_stated_dtype_and_wrap_without_one():
    x = RNG.integers(-128, 128, (1, 3, 5, 5)).astype("int8")
    w = RNG.integers(-128, 128, (4, 3, 3, 3)).astype("int8")
    check(
        '(nn.conv2d(%x, %w, out_dtype="int32"), nn.conv2d(%x, %w))',
        {"x": x, "w": w},
        convolution(x, w, [1, 1], [0] * 4, dtype="int32"),
        convolution(x, w, [1, 1], [0] * 4, dtype="int32").astype("int8"),
        rtol=0,
    )


def test_packed_channels():
    x, w = normal(1, 8, 5, 5), normal(6, 8, 3, 3)
    depth = normal(8, 1, 3, 3)
    blocks = w.reshape(3, 2, 2, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy()
    check(
        "(nn.contrib_conv2d_NCHWc(%x, %w, padding=[1, 1], channels=6, kernel_size=[3, 3],"
        ' data_layout="NCHW4c", kernel_layout="OIHW4i2o", out_layout="NCHW2c"),'
        ' nn.contrib_depthwise_conv2d_NCHWc(%x, %d, groups=8, data_layout="NCHW4c",'
        ' kernel_layout="OIHW1i4o"))',
        {
            "x": packed(x, 1, 4),
            "w": blocks,
            "d": depth.reshape(2, 4, 1, 1, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy(),
        },
        packed(convolution(x, w, [1, 1], [1] * 4), 1, 2),
        packed(convolution(x, depth, [1, 1], [0] * 4, groups=8), 1, 4),
    )


def test_transposed_convolutions():
    x, w = normal(1, 4, 5), normal(4, 3, 3)
    y, k = normal(2, 4, 4, 3), normal(4, 3, 3, 2)
    z, v = normal(1, 2, 3, 3, 2), normal(2, 3, 2, 2, 3)
    check(
        "(nn.conv1d_transpose(%x, %w, strides=[2], padding=[1, 0], output_padding=[1], groups=2),"
        " nn.conv1d_transpose(%x, %w, strides=[2], output_padding=[1, 1]),"
        " nn.conv2d_transpose(%y, %k, strides=[2, 3], padding=[1, 0, 0, 1], output_padding=[1, 2]),"
        " nn.conv2d_transpose(%y, %k, channels=6, kernel_size=[3, 2], groups=2),"
        " nn.conv2d_transpose(%y, %k, dilation=[2, 1], padding=[1, 1]),"
        " nn.conv3d_transpose(%z, %v, strides=[1, 2, 1], padding=[0, 1, 0]))",
        {"x": x, "w": w, "y": y, "k": k, "z": z, "v": v},
        transposed_convolution(x, w, [2], [1, 0], [1], groups=2),
        transposed_convolution(x, w, [2], [0, 0], [1]),
        transposed_convolution(y, k, [2, 3], [1, 0, 0, 1], [1, 2]),
        transposed_convolution(y, k, [1, 1], [0] * 4, [0, 0], groups=2),
        transposed_convolution(y, k, [1, 1], [1] * 4, [0, 0], [2, 1]),
        transposed_convolution(z, v, [1, 2, 1], [0, 1, 0, 0, 1, 0], [0, 0, 0]),
    )


@pytest.mark.parametrize(
    ("layout", "order"), [("IOHW", (0, 1, 2, 3)), ("OIHW", (1, 0, 2, 3)), ("HWOI", (2, 3, 1, 0))]
)
def test_transposed_convolution_with_channels_last(layout, order):
    x, w = normal(1, 4, 4, 3), normal(4, 3, 3, 2)
    check(
        f'nn.conv2d_transpose(%x, %w, strides=[2, 2], channels=3, kernel_size=[3, 2], data_layout="NHWC",'
        f' kernel_layout="{layout}")',
        {"x": x.transpose(0, 2, 3, 1).copy(), "w": w.transpose(order).copy()},
        transposed_convolution(x, w, [2, 2], [0] * 4, [0, 0]).transpose(0, 2, 3, 1),
    )


def test_old_programs_name_the_axes_of_transposed_weights_the_other_way():
    x, w = normal(1, 4, 4, 3), normal(4, 3, 3, 2)
    check(
        'nn.conv2d_transpose(%x, %w, channels=3, kernel_size=[3, 2], kernel_layout="OIHW")',
        {"x": x, "w": w},
        transposed_convolution(x, w, [1, 1], [0] * 4, [0, 0]),
    )


def test_a_batch_that_is_not_known():
    text = "def @main(%x: Tensor[(?, 2, 5, 5), float32], %w: Tensor[(3, 2, 3, 3), float32])"
    mod = converted(text + " { nn.conv2d(%x, %w, padding=[1, 1, 1, 1]) }")
    assert [int(dim) for dim in list(mod["main"].ret_ty.shape)[1:]] == [3, 5, 5]


def bilinear(image, y, x):
    """Return a sample between pixels; what lies outside counts as 0."""
    total = 0.0
    for row in (int(np.floor(y)), int(np.floor(y)) + 1):
        for column in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def test_deformable_convolution():
    x, w = normal(1, 2, 4, 4), normal(3, 2, 2, 2)
    offset = RNG.uniform(-1, 1, (1, 8, 3, 3)).astype("float32")
    expected = np.zeros((1, 3, 3, 3), "float32")
    for i, j, a, b, c in np.ndindex(3, 3, 2, 2, 2):
        y, z = i + a + offset[0, 4 * a + 2 * b, i, j], j + b + offset[0, 4 * a + 2 * b + 1, i, j]
        inside = 0 <= y < 4 and 0 <= z < 4
        expected[0, :, i, j] += w[:, c, a, b] * (bilinear(x[0, c], y, z) if inside else 0)
    check(
        "(nn.deformable_conv2d(%x, %o, %w, channels=3, kernel_size=[2, 2]),"
        ' nn.deformable_conv2d(%xl, %ol, %w, data_layout="NHWC"))',
        {
            "x": x,
            "o": offset,
            "w": w,
            "xl": x.transpose(0, 2, 3, 1).copy(),
            "ol": offset.transpose(0, 2, 3, 1).copy(),
        },
        expected,
        expected.transpose(0, 2, 3, 1),
    )


def test_correlation_of_patches():
    a, b = normal(1, 2, 5, 5), normal(1, 2, 5, 5)
    wide = np.pad(b, [(0, 0), (0, 0), (1, 1), (1, 1)])
    patch = np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)])[:, :, 1:6, 1:6]
    expected = np.stack(
        [(patch * wide[:, :, i : i + 5, j : j + 5]).sum(1) / 2 for i in range(3) for j in range(3)], axis=1
    )
    check("nn.correlation(%a, %b, padding=[1, 1])", {"a": a, "b": b}, expected)


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ("channels=4", "channels=4, but the weight makes 3"),
        ("kernel_size=[2, 2]", "but the weight has"),
        ("padding=[1, 2, 3]", "padding of 3 numbers"),
        ('data_layout="NCXW"', "has other axes than NCHW"),
        ('data_layout="nchw"', "is not a layout"),
        ("dilation=[3, 1]", "does not fit axis H"),
    ],
)
def test_contradictions_are_refused(attrs, reason):
    text = "def @main(%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(3, 2, 3, 3), float32])"
    with pytest.raises(TvmpassError, match=reason):
        converted(f"{text} {{ nn.conv2d(%x, %w, {attrs}) }}")
