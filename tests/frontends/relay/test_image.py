"""Operators on images, against a numpy reference that works axis by axis.

Values lie in -1 to 1 and are computed in float32: the tolerance is 2e-6, that of
cubic interpolation, whose weights are sums of larger terms, 1e-5.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from running import run, run_ops

from tvmpass.frontends.relay.errors import RelayError

MODES = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
ROUNDINGS = ["", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")


def source(i: int, length: int, size: int, mode: str, begin: float = 0.0, end: float = 1.0) -> float:
    """Return where result ``i`` of ``size`` lies in a source of ``length``."""
    scale = length / size
    if mode == "align_corners":
        return i * (length - 1) / (size - 1) if size > 1 else 0.0
    if mode == "asymmetric":
        return i * scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) * scale
    if mode == "tf_crop_and_resize":
        if size == 1:
            return 0.5 * (begin + end) * (length - 1)
        return begin * (length - 1) + i * (end - begin) * (length - 1) / (size - 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return 0.0
    return (i + 0.5) * scale - 0.5


def rounded(at: float, rounding: str) -> int:
    if rounding == "round":
        return int(math.copysign(math.floor(abs(at) + 0.5), at))
    return {
        "round_prefer_floor": lambda: math.ceil(at - 0.5),
        "round_prefer_ceil": lambda: math.floor(at + 0.5),
        "floor": lambda: math.floor(at + 1e-5),
        "ceil": lambda: math.ceil(at - 1e-5),
    }[rounding]()


def weights(length: int, size: int, method: str, mode: str, rounding: str, exclude: bool = False, roi=(0, 1)):
    """Return the matrix that resizes one axis, and which results lie outside."""
    made, outside = np.zeros((size, length)), np.zeros(size, bool)
    for i in range(size):
        at = source(i, length, size, mode, *roi)
        outside[i] = mode == "tf_crop_and_resize" and not 0 <= at <= length - 1
        if method == "nearest_neighbor":
            taps = [(rounded(at, rounding), 1.0)]
        elif method == "linear":
            low = math.floor(at)
            taps = [(low, 1 - (at - low)), (low + 1, at - low)]
        else:
            low, a = math.floor(at), -0.5
            taps = []
            for place in range(low - 1, low + 3):
                d = abs(at - place)
                near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                taps.append((place, near if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)))
            if exclude:
                taps = [(place, w * (0 <= place < length)) for place, w in taps]
                taps = [(place, w / sum(w for _, w in taps)) for place, w in taps]
        for place, weight in taps:
            made[i, min(max(place, 0), length - 1)] += weight
    return made, outside


def resized(x, axes, size, method, mode, rounding="", roi=None, outside=0.0, exclude=False):
    """Return an image with some axes resized."""
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    made, beyond = x.astype("float64"), np.zeros([1] * x.ndim, bool)
    for n, (axis, extent) in enumerate(zip(axes, size)):
        region = (roi[n], roi[n + len(axes)]) if roi else (0, 1)
        matrix, out = weights(x.shape[axis], extent, method, mode, rounding, exclude, region)
        made = np.moveaxis(np.tensordot(matrix, made, (1, axis)), 0, axis)
        beyond = beyond | out.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.where(beyond, outside, made).astype(x.dtype)


def attributes(**given) -> str:
    return "".join(f', {name}="{v}"' if isinstance(v, str) else f", {name}={v}" for name, v in given.items())


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


def pixel(x: np.ndarray, places: tuple[int, ...]) -> float:
    inside = all(0 <= place < extent for place, extent in zip(places, x.shape))
    return float(x[places]) if inside else 0.0


def reflected(at: float, length: int, align: bool) -> float:
    low, span = (0.0, length - 1) if align else (-0.5, length)
    times, extra = divmod(abs(at - low), span)
    return low + (extra if times % 2 == 0 else span - extra)


def sampled(x: np.ndarray, grid: np.ndarray, method: str, padding: str, align: bool) -> np.ndarray:
    """Return the image at the grid's places, one by one, in double precision."""
    rank = x.ndim - 2
    made = np.zeros((*x.shape[:2], *grid.shape[2:]))
    for n, *place in np.ndindex(x.shape[0], *grid.shape[2:]):
        at = []
        for axis in range(rank):
            g, length = float(grid[(n, rank - 1 - axis, *place)]), x.shape[axis + 2]
            v = (g + 1) * (length - 1) / 2 if align else (g + 1) * length / 2 - 0.5
            if padding == "reflection":
                v = reflected(v, length, align)
            at.append(v if padding == "zeros" else min(max(v, 0), length - 1))
        for c in range(x.shape[1]):
            if method == "nearest":
                made[(n, c, *place)] = pixel(x[n, c], tuple(int(np.rint(v)) for v in at))
                continue
            total = 0.0
            for corner in itertools.product((0, 1), repeat=rank):
                low = [math.floor(v) for v in at]
                weight = math.prod(v - b if k else 1 - (v - b) for v, b, k in zip(at, low, corner))
                total += weight * pixel(x[n, c], tuple(b + k for b, k in zip(low, corner)))
            made[(n, c, *place)] = total
    return made.astype("float32")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample(padding, align):
    x, solid = image(2, 2, 4, 5), image(1, 2, 3, 4, 5)
    rng = np.random.default_rng(1)
    grid = rng.uniform(-1.4, 1.4, (2, 2, 3, 3)).astype("float32")
    points = rng.uniform(-1.4, 1.4, (1, 3, 2, 2, 3)).astype("float32")
    stated = attributes(padding_mode=padding, align_corners=align)
    made = run_ops(
        f"""(image.grid_sample(%x, %g{stated}), image.grid_sample(%x, %g, method="nearest"{stated}),
        image.grid_sample(%y, %p, layout="NCDHW"{stated}))""",
        {"x": x, "g": grid, "y": solid, "p": points},
    )
    expected = [
        sampled(x, grid, "bilinear", padding, align),
        sampled(x, grid, "nearest", padding, align),
        sampled(solid, points, "bilinear", padding, align),
    ]
    for one, other in zip(made, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_bicubic_grid_sample_meets_the_pixels():
    x = image(1, 1, 5, 5)
    rows, columns = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5), indexing="ij")
    grid = np.stack([columns, rows])[None].astype("float32")
    made = run_ops('image.grid_sample(%x, %g, method="bicubic", padding_mode="border")', {"x": x, "g": grid})
    np.testing.assert_allclose(made[0], x, rtol=0, atol=1e-5)


def test_affine_grid():
    matrices = image(2, 2, 3)
    made = run_ops("image.affine_grid(%x, target_shape=[3, 4])", {"x": matrices})[0]
    rows, columns = np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 4), indexing="ij")
    places = np.stack([columns, rows, np.ones((3, 4))])
    np.testing.assert_allclose(made, np.einsum("nij,jhw->nihw", matrices, places), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crop_and_resize(method, layout):
    x = image(2, 3, 6, 7)
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.3, 0.83, 0.6], [0.5, 1.2, -0.15, 0]], "float32")
    images = np.array([1, 0, 1], "int32")
    crops = [
        resized(
            x[n : n + 1], [2, 3], [4, 5], method.replace("bi", ""), "tf_crop_and_resize", "round", box, 0.25
        )
        for n, box in zip(images, boxes.tolist())
    ]
    expected = np.concatenate(crops)
    stored = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    stated = attributes(layout=layout, method=method, extrapolation_value=0.25)
    made = run_ops(
        f"image.crop_and_resize(%x, %b, %i, crop_size=[4, 5]{stated})", {"x": stored, "b": boxes, "i": images}
    )[0]
    made = made if layout == "NCHW" else made.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(made, expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dilation(layout):
    x, weight = image(1, 2, 7, 8), image(2, 2, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1)))
    rows, columns = (padded.shape[2] - 3) // 2 + 1, padded.shape[3] - 4
    expected = np.empty((1, 2, rows, columns), "float32")
    for i, j in np.ndindex(rows, columns):
        window = padded[0, :, 2 * i : 2 * i + 3 : 2, j : j + 5 : 2]
        expected[0, :, i, j] = (window + weight).max((1, 2))
    stated = attributes(strides=[2, 1], padding=[1, 2, 0, 1], dilations=[2, 2])
    if layout == "NHWC":
        stated += attributes(data_layout="NHWC", kernel_layout="HWI")
        x, weight = (np.ascontiguousarray(v) for v in (x.transpose(0, 2, 3, 1), weight.transpose(1, 2, 0)))
        expected = expected.transpose(0, 2, 3, 1)
    made = run_ops(f"image.dilation2d(%x, %w{stated})", {"x": x, "w": weight})[0]
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-6)


def test_a_region_matters_only_where_images_are_cropped():
    x = image(1, 2, 4, 5)
    plain, given = (
        run_ops(f'image.resize2d(%x, size=[3, 3]{roi}, method="nearest_neighbor")', {"x": x})
        for roi in ("", ", roi=[0f, 0.5f, 0f]")
    )
    assert np.array_equal(plain[0], given[0])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_bicubic_grid_sample_of_a_row(padding):
    x = image(1, 1, 1, 6)
    places = np.linspace(-1.9, 1.9, 9)
    grid = np.stack([places, np.full(9, 0.0)])[None, :, None].astype("float32")
    stated = attributes(method="bicubic", padding_mode=padding, align_corners=False)
    made = run_ops(f"image.grid_sample(%x, %g{stated})", {"x": x, "g": grid})[0]
    expected = []
    for place in grid[0, 0, 0]:
        at = (float(place) + 1) * 6 / 2 - 0.5
        low, total = math.floor(at), 0.0
        for tap in range(low - 1, low + 3):
            d = abs(at - tap)
            near, far = 1.25 * d**3 - 2.25 * d**2 + 1, -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
            read = int(min(max(reflected(tap, 6, False), 0), 5)) if padding == "reflection" else tap
            read = min(max(read, 0), 5) if padding == "border" else read
            total += (near if d <= 1 else far) * pixel(x[0, 0, 0], (read,))
        expected.append(total)
    np.testing.assert_allclose(made[0, 0, 0], expected, rtol=0, atol=1e-5)


def test_grid_sample_of_an_unknown_size():
    x, grid = image(2, 1, 4, 5), np.random.default_rng(1).uniform(-1.2, 1.2, (2, 2, 3, 3)).astype("float32")
    text = """def @main(%x: Tensor[(2, 1, ?, ?), float32], %g: Tensor[(2, 2, 3, 3), float32]) {
      image.grid_sample(%x, %g, padding_mode="reflection")
    }"""
    expected = sampled(x, grid, "bilinear", "reflection", True)
    np.testing.assert_allclose(run(text, x, grid)[0], expected, rtol=0, atol=1e-5)
