"""Operators that sample images at coordinates, against numpy that goes place by place.

Values lie in -1 to 1 and are computed in float32, which the tolerances allow for.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from image_reference import attributes, image, resized
from running import run, run_ops


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
