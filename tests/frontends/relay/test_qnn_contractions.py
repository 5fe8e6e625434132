"""qnn.dense, batch_matmul, conv2d and conv2d_transpose are exact."""

from __future__ import annotations

import numpy as np
import pytest
import qnn_reference as reference
from qnn_programs import run_all, run_qnn, whole

from tvmpass.frontends.relay.errors import RelayError

POINTS = [(0, 0), (12, 0), (0, -3), (12, -3)]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_dense(dtype):
    x, w = whole((3, 40), dtype), whole((5, 40), "int8", 1)
    found = run_all(
        [f'qnn.dense(%x, %w, {z}, {v}, 0.1f, 0.2f, units=5, out_dtype="int32")' for z, v in POINTS],
        {"x": x, "w": w},
    )
    for (zero, weight_zero), result in zip(POINTS, found, strict=True):
        expected = (x.astype("int64") - zero) @ (w.astype("int64") - weight_zero).T
        np.testing.assert_array_equal(result, expected)


def test_dense_of_int8_does_not_wrap():
    x = np.full((1, 600), -128, "int8")
    found = run_qnn('qnn.dense(%x, %x, 0, 0, 0.1f, 0.2f, units=1, out_dtype="int32")', {"x": x})
    assert found.dtype == "int32" and found[0, 0] == 128 * 128 * 600


@pytest.mark.parametrize("bound", [True, False])
def test_dense_zero_point_per_unit(bound):
    x, w = whole((2, 3, 8), "uint8"), whole((5, 8), "uint8", 1)
    points = {"z": np.array([0, 3, 128, 255, -7], "int32")}
    arrays, constants = ({"x": x, "w": w}, points) if bound else ({"x": x, "w": w, **points}, {})
    body = 'qnn.dense(%x, %w, 12, %z, 0.1f, 0.2f, units=None, out_dtype="int64")'
    found = run_qnn(body, arrays, constants)
    expected = (x.astype("int64") - 12) @ (w.astype("int64") - points["z"][:, None]).T
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == "int64"


@pytest.mark.parametrize("stated", ["", "transpose_b=True, "])
def test_batch_matmul_is_transposed_in_old_and_new_texts(stated):
    x, y = whole((2, 3, 8), "uint8"), whole((2, 4, 8), "int8", 1)
    body = f'qnn.batch_matmul(%x, %y, 7, -2, 0.1f, 0.2f, {stated}out_dtype="int32")'
    expected = (x.astype("int64") - 7) @ (y.astype("int64") + 2).transpose(0, 2, 1)
    np.testing.assert_array_equal(run_qnn(body, {"x": x, "y": y}), expected)


@pytest.mark.parametrize(("dtype", "weight_dtype"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_conv2d(dtype, weight_dtype):
    x, w = whole((2, 4, 7, 7), dtype), whole((6, 4, 3, 3), weight_dtype, 1)
    found = run_all(
        [
            f"qnn.conv2d(%x, %w, {zero}, {weight_zero}, 0.1f, 0.2f, strides=[2, 1], padding=[1, 0, 2, 1], "
            'channels=6, kernel_size=[3, 3], out_dtype="int32")'
            for zero, weight_zero in POINTS
        ],
        {"x": x, "w": w},
    )
    for (zero, weight_zero), result in zip(POINTS, found, strict=True):
        expected = reference.conv2d(x, w, zero, weight_zero, (2, 1), (1, 0, 2, 1))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv2d_dilation_and_groups(groups):
    x, w = whole((1, 4, 9, 8), "uint8"), whole((8, 4 // groups, 3, 2), "int8", 1)
    body = (
        "qnn.conv2d(%x, %w, 10, 2, 0.1f, 0.2f, padding=[1, 1, 1, 1], dilation=[2, 2], "
        f'groups={groups}, channels=8, kernel_size=[3, 2], out_dtype="int32")'
    )
    expected = reference.conv2d(x, w, 10, 2, (1, 1), (1, 1, 1, 1), (2, 2), groups)
    np.testing.assert_array_equal(run_qnn(body, {"x": x, "w": w}), expected)


LAYOUTS = {"OIHW": (0, 1, 2, 3), "HWIO": (2, 3, 1, 0), "HWOI": (2, 3, 0, 1), "OHWI": (0, 2, 3, 1)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_conv2d_nhwc(layout, per_channel):
    x, w = whole((1, 4, 6, 5), "uint8"), whole((6, 4, 3, 3), "uint8", 1)
    points = np.array([0, 1, 128, 255, 7, 100], "int32") if per_channel else np.array(128, "int32")
    body = (
        "qnn.conv2d(%x, %w, 10, %z, 0.1f, 0.2f, padding=[1, 1, 1, 1], channels=6, kernel_size=[3, 3], "
        f'data_layout="NHWC", kernel_layout="{layout}", out_dtype="int32")'
    )
    arrays = {"x": x.transpose(0, 2, 3, 1).copy(), "w": w.transpose(LAYOUTS[layout]).copy()}
    found = run_qnn(body, arrays, {"z": points})
    expected = reference.conv2d(x, w, 10, points.reshape(-1, 1, 1, 1), padding=(1, 1, 1, 1))
    np.testing.assert_array_equal(found, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_conv2d_depthwise(per_channel, known):
    x, w = whole((1, 4, 6, 5), "uint8"), whole((4, 1, 3, 3), "uint8", 1)
    points = np.array([0, 1, 128, 255], "int32") if per_channel else np.array(128, "int32")
    body = (
        "qnn.conv2d(%x, %w, 10, %z, 0.1f, 0.2f, padding=[1, 1, 1, 1], groups=4, channels=4, "
        'kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI", out_dtype="int32")'
    )
    arrays = {"x": x.transpose(0, 2, 3, 1).copy(), "w": w.transpose(2, 3, 0, 1).copy()}
    if known:
        found = run_qnn(body, arrays, {"z": points})
    else:
        found = run_qnn(body, {**arrays, "z": points})
    expected = reference.conv2d(x, w, 10, points.reshape(-1, 1, 1, 1), padding=(1, 1, 1, 1), groups=4)
    np.testing.assert_array_equal(found, expected.transpose(0, 2, 3, 1))


def test_conv2d_to_int16_wraps_and_int64_does_not():
    x, w = whole((1, 4, 5, 5), "uint8"), whole((2, 4, 3, 3), "int8", 1)
    expected = reference.conv2d(x, w, 0, 0)
    for dtype in ("int16", "int64"):
        body = f'qnn.conv2d(%x, %w, 0, 0, 0.1f, 0.2f, channels=2, kernel_size=[3, 3], out_dtype="{dtype}")'
        np.testing.assert_array_equal(run_qnn(body, {"x": x, "w": w}), expected.astype(dtype))


@pytest.mark.parametrize("layout", ["IOHW", "OIHW"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_conv2d_transpose(layout, per_channel):
    x, w = whole((1, 3, 4, 5), "uint8"), whole((3, 2, 3, 3), "int8", 1)
    points = np.array([4, -3], "int32") if per_channel else np.array(-3, "int32")
    body = (
        "qnn.conv2d_transpose(%x, %w, 10, %z, 0.1f, 0.2f, strides=[2, 2], padding=[1, 1, 1, 1], channels=2, "
        f'kernel_size=[3, 3], kernel_layout="{layout}", out_dtype="int32")'
    )
    found = run_qnn(body, {"x": x, "w": w}, {"z": points})
    shifted, weight = x.astype("int64") - 10, w.astype("int64") - points.reshape(-1, 1, 1)
    full = np.zeros((1, 2, 9, 11), "int64")
    for i in range(4):
        for j in range(5):
            full[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum(
                "i,iohw->ohw", shifted[0, :, i, j], weight
            )
    np.testing.assert_array_equal(found, full[:, :, 1:-1, 1:-1])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('qnn.dense(%x, %x, %z, 0, 0.1f, 0.2f, units=3, out_dtype="int32")', "must be a scalar"),
        ('qnn.dense(%x, %x, 0, 0, 0.1f, 0.2f, units=3, out_dtype="float32")', "out_dtype float32"),
        (
            'qnn.contrib_dense_pack(%x, %x, 0, 0, 0.1f, 0.2f, units=3, out_dtype="int32")',
            "contrib_dense_pack",
        ),
    ],
)
def test_refusals(body, why):
    with pytest.raises(RelayError, match=why):
        run_qnn(body, {"x": whole((3, 3), "int8"), "z": np.array([1, 2, 3], "int32")})
