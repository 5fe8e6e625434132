"""Resizing, against a numpy reference that works axis by axis.

Values lie in -1 to 1 and are computed in float32: the tolerance is 2e-6, that of
cubic interpolation, whose weights are sums of larger terms, 1e-5.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from image_reference import attributes, image, resized
from running import run, run_ops

from tvmpass.frontends.relay.errors import RelayError

MODES = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
ROUNDINGS = ["", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def compare(bodies: list[str], x: np.ndarray, expected: list[np.ndarray], tolerance: float) -> None:
    made = run_ops(f"({', '.join(bodies)},)", {"x": x})
    for body, one, other in zip(bodies, made, expected):
        assert one.shape == other.shape and one.dtype == other.dtype, body
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=body)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [[8, 15], [3, 10], [7, 4], [1, 3]])
def test_nearest_in_every_rounding(mode, size):
    if mode == "align_corners" and 1 in size:
        return  # refused: test_images_that_are_refused
    x = image(1, 2, 4, 5)
    bodies = [
        "image.resize2d(%x, size=" + str(size)
        + attributes(method="nearest_neighbor", coordinate_transformation_mode=mode, rounding_method=rounding)
        + ")"
        for rounding in ROUNDINGS
    ]  # fmt: skip
    expected = []
    for rounding in ROUNDINGS:
        made = x
        for axis, extent in zip((2, 3), size):
            # Relay divides whole numbers where the factor is one, whatever the rounding.
            whole = mode == "asymmetric" and extent % x.shape[axis] == 0
            made = resized(made, [axis], [extent], "nearest_neighbor", mode, "floor" if whole else rounding)
        expected.append(made)
    compare(bodies, x, expected, 0)


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_interpolation_in_every_mode(method):
    x, tolerance = image(2, 3, 4, 5), 2e-6 if method == "linear" else 1e-5
    sizes = [[8, 10], [3, 7], [2, 2]]
    bodies, expected = [], []
    for mode, size in itertools.product(MODES, sizes):
        given = {} if mode == "half_pixel" else {"coordinate_transformation_mode": mode}
        given |= {} if method == "linear" else {"method": method}
        bodies.append(f"image.resize2d(%x, size={size}{attributes(**given)})")
        expected.append(resized(x, [2, 3], size, method, mode))
    compare(bodies, x, expected, tolerance)


def test_cubic_that_excludes_what_is_outside():
    x = image(1, 1, 5, 6)
    body = "image.resize2d(%x, size=[7, 9]" + attributes(method="cubic", cubic_exclude=1) + ")"
    expected = resized(x, [2, 3], [7, 9], "cubic", "half_pixel", exclude=True)
    inner = (slice(None), slice(None), slice(2, 5), slice(2, 6))
    made = run_ops(body, {"x": x})[0]
    np.testing.assert_allclose(made[inner], expected[inner], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
@pytest.mark.parametrize("layout", ["NHWC", "HWCN", "NCHW4c"])
def test_layouts_of_images(method, layout):
    x = image(2, 8, 4, 5)
    stored = {
        "NHWC": lambda v: v.transpose(0, 2, 3, 1),
        "HWCN": lambda v: v.transpose(2, 3, 1, 0),
        "NCHW4c": lambda v: v.reshape(2, 2, 4, *v.shape[2:]).transpose(0, 1, 3, 4, 2),
    }[layout]
    body = "image.resize2d(%x, size=[9, 3]" + attributes(layout=layout, method=method) + ")"
    expected = resized(x, [2, 3], [9, 3], method, "half_pixel", "round")
    compare([body], np.ascontiguousarray(stored(x)), [stored(expected)], 2e-6)


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor", "cubic"])
def test_crops_of_an_image(method):
    x, roi = image(1, 2, 6, 7), [0.1, -0.2, 0.8, 1.1]
    given = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.5}
    given["method"] = method
    body = f"image.resize2d(%x, size=[5, 4], roi=[0.1f, -0.2f, 0.8f, 1.1f]{attributes(**given)})"
    expected = resized(x, [2, 3], [5, 4], method, "tf_crop_and_resize", "round", roi, 0.5)
    compare([body], x, [expected], 1e-5)


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_other_ranks(method, mode):
    given = attributes(method=method, coordinate_transformation_mode=mode)
    line, solid = image(2, 3, 6), image(1, 2, 3, 4, 5)
    made = run_ops(
        f"""(image.resize1d(%x, size=[9]{given}), image.resize1d(%w, size=[4], layout="NWC"{given}),
        image.resize3d(%y, size=[6, 3, 7]{given}))""",
        {"x": line, "w": np.ascontiguousarray(line.transpose(0, 2, 1)), "y": solid},
    )
    expected = [
        resized(line, [2], [9], method, mode, "round"),
        resized(line, [2], [4], method, mode, "round").transpose(0, 2, 1),
        resized(solid, [2, 3, 4], [6, 3, 7], method, mode, "round"),
    ]
    for one, other in zip(made, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16"])
def test_dtypes_of_images(dtype):
    x = np.arange(24).reshape(1, 1, 4, 6).astype(dtype)
    made = run_ops(
        """(image.resize2d(%x, size=[8, 9]), image.resize2d(%x, size=[8, 9], out_dtype="float32"),
        image.resize2d(%x, size=[2, 3], method="nearest_neighbor"))""",
        {"x": x},
    )
    exact = resized(x.astype("float64"), [2, 3], [8, 9], "linear", "half_pixel")
    nearest = resized(x.astype("float64"), [2, 3], [2, 3], "nearest_neighbor", "half_pixel", "round")
    np.testing.assert_allclose(made[1], exact, rtol=0, atol=4e-6)
    if dtype == "float16":
        np.testing.assert_allclose(made[0], exact, rtol=1e-3, atol=0)
    else:
        # Relay cuts off what does not fit an integer.
        np.testing.assert_array_equal(made[0], np.trunc(made[1]))
    np.testing.assert_array_equal(made[2], nearest.astype(dtype))
    assert [str(one.dtype) for one in made] == [dtype, "float32", dtype]


def test_resize_of_older_releases():
    x = image(1, 2, 4, 6)
    compare(
        [
            "image.resize(%x, size=[8, 9], align_corners=True)",
            'image.resize(%x, size=[8, 9], coordinate_transformation_mode="half_pixel")',
            'image.resize(%x, size=[8, 9], align_corners=False, method="nearest_neighbor")',
            "image.resize(%x, size=[3, 9]"
            + attributes(method="nearest_neighbor", coordinate_transformation_mode="half_pixel")
            + ")",
        ],
        x,
        [
            resized(x, [2, 3], [8, 9], "linear", "align_corners"),
            resized(x, [2, 3], [8, 9], "linear", "half_pixel"),
            resized(x, [2, 3], [8, 9], "nearest_neighbor", "asymmetric", "floor"),
            resized(x, [2, 3], [3, 9], "nearest_neighbor", "asymmetric", "floor"),
        ],
        2e-6,
    )
    with pytest.raises(RelayError, match="default changed"):
        run_ops("image.resize(%x, size=[8, 9])", {"x": x})


def test_an_image_of_unknown_size():
    x = image(1, 2, 4, 5)
    text = "def @main(%x: Tensor[(?, 2, ?, ?), float32]) { image.resize2d(%x, size=[8, 7]) }"
    np.testing.assert_allclose(
        run(text, x)[0], resized(x, [2, 3], [8, 7], "linear", "half_pixel"), rtol=0, atol=2e-6
    )
    text = text.replace("7]", '7], method="nearest_neighbor"')
    with pytest.raises(RelayError, match="--shape"):
        run(text, x)


def test_images_that_are_refused():
    x = image(1, 1, 4, 4)
    for words in ('method="lanczos"', 'coordinate_transformation_mode="half"', 'rounding_method="up"'):
        with pytest.raises(RelayError, match=r"image\.resize2d"):
            run_ops(f"image.resize2d(%x, size=[2, 2], {words})", {"x": x})
    with pytest.raises(RelayError, match="corners"):
        run_ops('image.resize2d(%x, size=[1, 2], coordinate_transformation_mode="align_corners")', {"x": x})
