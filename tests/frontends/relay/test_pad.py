"""Padding and moves of space in Relay: modes, blocks, scaling, queues."""

from __future__ import annotations

import numpy as np
import pytest
from nn_reference import packed
from running import check, converted

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(29)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


WIDTHS = [(1, 2), (0, 0), (2, 1)]
PRINTED = "[[1, 2], [0, 0], [2, 1]]"


def test_a_constant_around():
    x, v = normal(3, 2, 4), np.array(1.5, "float32")
    y, b = RNG.integers(-9, 9, (3, 2, 4)).astype("int8"), RNG.integers(0, 2, (3, 2, 4)).astype("bool")
    big = np.array([[2**53 + 1]], "int64")
    check(
        f"(nn.pad(%x, 0.5f, pad_width={PRINTED}), nn.pad(%x, %v, pad_width={PRINTED}),"
        f" nn.pad(%y, 3, pad_width={PRINTED}), nn.pad(%b, True, pad_width={PRINTED}),"
        " nn.pad(%n, 9007199254740993i64, pad_width=[[1, 0], [0, 1]]),"
        f" nn.pad(%x, inff, pad_width={PRINTED}))",
        {"x": x, "v": v, "y": y, "b": b, "n": big},
        np.pad(x, WIDTHS, constant_values=np.float32(0.5)),
        np.pad(x, WIDTHS, constant_values=1.5),
        np.pad(y, WIDTHS, constant_values=3),
        np.pad(b, WIDTHS, constant_values=True),
        np.pad(big, [(1, 0), (0, 1)], constant_values=2**53 + 1),
        np.pad(x, WIDTHS, constant_values=np.inf),
    )


def test_widths_that_are_a_tensor():
    x = normal(3, 5)
    check(
        '(dyn.nn.pad(%x, full(1, shape=[2, 2], dtype="int32"), 2f),'
        ' dyn.nn.pad(%x, full(2, shape=[2, 2], dtype="int64"), 2f, pad_mode="reflect"))',
        {"x": x},
        np.pad(x, 1, constant_values=2),
        np.pad(x, 2, "reflect"),
    )


def test_the_value_may_be_an_attribute_as_before_release_0_8():
    x = normal(2, 3)
    check(
        "(nn.pad(%x, pad_width=[[1, 0], [0, 1]], pad_value=2f), nn.pad(%x, pad_width=[[1, 0], [0, 1]]))",
        {"x": x},
        np.pad(x, [(1, 0), (0, 1)], constant_values=2),
        np.pad(x, [(1, 0), (0, 1)]),
    )


def test_a_negative_width_cuts_off():
    x = normal(3, 5)
    check(
        "(nn.pad(%x, 0f, pad_width=[[-1, 2], [1, -2]]), nn.pad(%x, 0f, pad_width=[[-1, 0], [0, -2]]))",
        {"x": x},
        np.pad(x[1:, :3], [(0, 2), (1, 0)]),
        x[1:, :3],
    )


def test_edges_and_reflections():
    x = normal(3, 2, 4)
    y = RNG.integers(-9, 9, (3, 2, 4)).astype("int32")
    widths = [(1, 2), (1, 0), (2, 3)]
    printed = "[[1, 2], [1, 0], [2, 3]]"
    mirrored = "[[3, 2], [1, 2], [0, 4]]"
    check(
        f'(nn.pad(%x, 0f, pad_width={printed}, pad_mode="edge"),'
        f' nn.pad(%y, 0, pad_width={printed}, pad_mode="edge"),'
        f' nn.pad(%x, 0f, pad_width={printed}, pad_mode="reflect"),'
        f' nn.mirror_pad(%x, mode="REFLECT", pad_width={printed}),'
        f" nn.mirror_pad(%x, pad_width={mirrored}), nn.mirror_pad(%y, pad_width={mirrored}))",
        {"x": x, "y": y},
        np.pad(x, widths, "edge"),
        np.pad(y, widths, "edge"),
        np.pad(x, widths, "reflect"),
        np.pad(x, widths, "reflect"),
        np.pad(x, [(3, 2), (1, 2), (0, 4)], "symmetric"),
        np.pad(y, [(3, 2), (1, 2), (0, 4)], "symmetric"),
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ('nn.pad(%x, 0f, pad_width=[[3, 0], [0, 0]], pad_mode="reflect")', "cannot be reflected by 3"),
        ('nn.pad(%x, 0f, pad_width=[[-1, 0], [0, 0]], pad_mode="edge")', "negative width"),
        ('nn.pad(%x, 0f, pad_width=[[1, 0], [0, 0]], pad_mode="wrap")', "is not constant, edge or reflect"),
        ("nn.pad(%x, 0f, pad_width=[[1, 0]])", "1 pairs for 2 axes"),
        ("nn.mirror_pad(%x, pad_width=[[4, 0], [0, 0]])", "cannot be reflected by 4"),
    ],
)
def test_padding_that_cannot_be_is_refused(call, reason):
    with pytest.raises(TvmpassError, match=reason):
        converted(f"def @main(%x: Tensor[(3, 4), float32]) {{ {call} }}")


def test_dilation():
    x, y = normal(2, 3), RNG.integers(-9, 9, (2, 3)).astype("int32")
    first, second = np.full((3, 7), np.float32(0.5)), np.full((2, 5), 7, "int32")
    first[::2, ::3], second[:, ::2] = x, y
    check(
        "(nn.dilate(%x, strides=[2, 3], dilation_value=0.5f),"
        " nn.dilate(%y, strides=[1, 2], dilation_value=7f))",
        {"x": x, "y": y},
        first,
        second,
    )


def to_space(x, block, mode):
    n, c, h, w = x.shape
    c //= block * block
    if mode == "DCR":
        return (
            x.reshape(n, block, block, c, h, w)
            .transpose(0, 3, 4, 1, 5, 2)
            .reshape(n, c, h * block, w * block)
        )
    return x.reshape(n, c, block, block, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c, h * block, w * block)


@pytest.mark.parametrize("mode", ["DCR", "CDR", "CRD"])
def test_depth_to_space_and_back(mode):
    x = normal(2, 12, 3, 4)
    expected = to_space(x, 2, mode)
    last = (0, 2, 3, 1)
    deep = to_space(x, 2, "DCR")
    check(
        f'(nn.depth_to_space(%x, block_size=2, mode="{mode}"),'
        f' nn.depth_to_space(%l, block_size=2, mode="{mode}", layout="NHWC"),'
        f' nn.space_to_depth(%d, block_size=2, mode="{mode}"),'
        ' nn.space_to_depth(%e, block_size=2, layout="NHWC"))',
        {"x": x, "l": x.transpose(last).copy(), "d": deep, "e": deep.transpose(last).copy()},
        expected,
        expected.transpose(last),
        x,
        x.transpose(last),
    )


def test_space_to_batch_and_back():
    x = normal(2, 3, 4, 2)
    wide = np.pad(x, [(0, 0), (1, 2), (0, 2), (0, 0)], constant_values=0.5)
    blocks = wide.reshape(2, 3, 2, 2, 3, 2).transpose(2, 4, 0, 1, 3, 5).reshape(12, 3, 2, 2)
    check(
        "(nn.space_to_batch_nd(%x, block_shape=[2, 3], paddings=[[1, 2], [0, 2]], pad_value=0.5f),"
        " nn.batch_to_space_nd(%b, block_shape=[2, 3], crops=[[1, 2], [0, 2]]),"
        " nn.batch_to_space_nd(%b, block_shape=[3], crops=[[0, 0]]))",
        {"x": x, "b": blocks},
        blocks,
        x,
        blocks.reshape(3, 4, 3, 2, 2).transpose(1, 2, 0, 3, 4).reshape(4, 9, 2, 2),
    )


def test_space_to_batch_of_integers():
    x = RNG.integers(-9, 9, (1, 3, 2)).astype("int32")
    wide = np.pad(x, [(0, 0), (1, 0), (0, 0)], constant_values=4)
    check(
        "nn.space_to_batch_nd(%x, block_shape=[2], paddings=[[1, 0]], pad_value=4f)",
        {"x": x},
        wide.reshape(1, 2, 2, 2).transpose(2, 0, 1, 3).reshape(2, 2, 2),
    )


def linear(x, axis, size, aligned):
    """Return the linear scaling of one axis, from its first pixel on."""
    length = x.shape[axis]
    step = (length - 1) / (size - 1) if aligned else length / size
    at = np.arange(size) * step
    low = np.minimum(np.floor(at).astype(int), length - 1)
    high = np.minimum(low + 1, length - 1)
    part = (at - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return x.take(low, axis) * (1 - part) + x.take(high, axis) * part


def test_scaling_of_images():
    x = normal(1, 4, 3, 4)
    near = x.repeat(2, 2).repeat(3, 3)
    smooth = linear(linear(x, 2, 6, False), 3, 6, False).astype("float32")
    aligned = linear(linear(x, 2, 6, True), 3, 8, True).astype("float32")
    check(
        "(nn.upsampling(%x, scale_h=2f, scale_w=3f),"
        ' nn.upsampling(%l, scale_h=2f, scale_w=3f, layout="NHWC"),'
        ' nn.upsampling(%p, scale_h=2f, scale_w=3f, layout="NCHW2c"),'
        " dyn.nn.upsampling(%x, 2f, 3f),"
        ' nn.upsampling(%x, scale_h=2f, scale_w=1.5f, method="BILINEAR"),'
        ' nn.upsampling(%x, scale_h=2f, scale_w=2f, method="bilinear", align_corners=True))',
        {"x": x, "l": x.transpose(0, 2, 3, 1).copy(), "p": packed(x, 1, 2)},
        near,
        near.transpose(0, 2, 3, 1),
        packed(near, 1, 2),
        near,
        smooth,
        aligned,
        rtol=1e-5,
        atol=1e-5,
    )


def test_scaling_of_volumes():
    x = normal(1, 2, 2, 3, 2)
    near = x.repeat(2, 2).repeat(2, 3).repeat(3, 4)
    smooth = linear(linear(linear(x, 2, 4, False), 3, 6, False), 4, 4, False).astype("float32")
    scales = "scale_d=2f, scale_h=2f"
    check(
        f'(nn.upsampling3d(%x, {scales}, scale_w=3f, coordinate_transformation_mode="asymmetric"),'
        f' nn.upsampling3d(%l, {scales}, scale_w=3f, layout="NDHWC",'
        ' coordinate_transformation_mode="asymmetric"),'
        ' dyn.nn.upsampling3d(%x, 2f, 2f, 3f, coordinate_transformation_mode="asymmetric"),'
        f' nn.upsampling3d(%x, {scales}, scale_w=2f, method="trilinear",'
        ' coordinate_transformation_mode="asymmetric"))',
        {"x": x, "l": x.transpose(0, 2, 3, 4, 1).copy()},
        near,
        near.transpose(0, 2, 3, 4, 1),
        near,
        smooth,
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_queue_drops_what_is_oldest():
    x, buffer = normal(2, 2), normal(2, 5)
    check(
        "(nn.fifo_buffer(%x, %b, axis=1), nn.fifo_buffer(%x, %b, axis=-1))",
        {"x": x, "b": buffer},
        *[np.concatenate([buffer[:, 2:], x], 1)] * 2,
    )


def test_sizes_that_are_not_known():
    mod = converted(
        "def @main(%x: Tensor[(?, 4, ?, 6), float32])"
        " { (nn.depth_to_space(%x, block_size=2), nn.space_to_depth(%x, block_size=2),"
        " nn.upsampling(%x, scale_h=2f, scale_w=2f),"
        " nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]),"
        " nn.space_to_batch_nd(%x, block_shape=[2], paddings=[[1, 1]])) }"
    )
    shapes = [list(field.shape) for field in mod["main"].ret_ty.fields]
    assert [int(shape[3]) for shape in shapes] == [12, 3, 12, 8, 6]
    assert [int(shape[1]) for shape in shapes] == [1, 16, 4, 4, 3]
