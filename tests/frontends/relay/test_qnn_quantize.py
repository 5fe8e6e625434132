"""qnn.quantize, dequantize, requantize and their simulated forms are exact."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import qnn_reference as reference
from qnn_programs import run_all, run_qnn, whole

from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.operators.qnn_quantize import fixed_point

SCALES = np.array([0.05, 0.013, 0.5, 0.0007], "float32")
POINTS = np.array([3, -4, 0, 17], "int32")


def halves(shape) -> np.ndarray:
    """Return floats among which are exact halves of the step 0.5, zeros and infinities."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(shape).astype("float32") * 20
    values.reshape(-1)[:12] = [0.25, -0.25, 0.75, -0.75, 1.25, -1.25, 0.0, -0.0, np.inf, -np.inf, 1e30, -1e30]
    return values


def test_quantize_rounds_half_away_from_zero_and_saturates():
    x = halves((6, 7))
    dtypes = ["int8", "uint8", "int16", "uint16"]
    found = run_all([f'qnn.quantize(%x, 0.5f, 3, out_dtype="{dtype}")' for dtype in dtypes], {"x": x})
    for dtype, result in zip(dtypes, found, strict=True):
        np.testing.assert_array_equal(result, reference.quantize(x, 0.5, np.int32(3), dtype))
        assert result.dtype == dtype


def test_quantize_to_int32():
    x = np.array([1.25, -1.25, 0.75, 1e6, -3e9], "float32")
    found = run_qnn('qnn.quantize(%x, 0.5f, -2, out_dtype="int32")', {"x": x})
    np.testing.assert_array_equal(found, reference.quantize(x, 0.5, np.int32(-2), "int32"))


def test_quantize_gives_the_greatest_value_for_nan():
    found = run_qnn('qnn.quantize(%x, 0.5f, 0, out_dtype="int8")', {"x": np.array([np.nan, 1], "float32")})
    np.testing.assert_array_equal(found, np.array([127, 2], "int8"))


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("bound", [True, False])
def test_quantize_per_channel(axis, bound):
    x = halves((2, 4, 5))
    parameters = {"s": SCALES, "z": POINTS}
    arrays = {"x": x} if bound else {"x": x, **parameters}
    found = run_qnn(
        f'qnn.quantize(%x, %s, %z, out_dtype="int8", axis={axis})', arrays, parameters if bound else None
    )
    np.testing.assert_array_equal(found, reference.quantize(x, SCALES, POINTS, "int8", axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
def test_dequantize(dtype):
    x = whole((3, 5), dtype)
    found = run_qnn('qnn.dequantize(%x, 0.1f, 128, out_dtype="float32")', {"x": x})
    np.testing.assert_array_equal(found, reference.dequantize(x, 0.1, np.int32(128)))


def test_dequantize_per_channel_and_scalar_zero_point():
    x = whole((2, 4, 3), "uint8")
    found = run_qnn("qnn.dequantize(%x, %s, 7, axis=1)", {"x": x}, {"s": SCALES})
    np.testing.assert_array_equal(found, reference.dequantize(x, SCALES, np.int32(7), 1))


def test_dequantize_to_float16_saturates():
    x = np.array([[-128, 0, 127]], "int8")
    found = run_qnn('qnn.dequantize(%x, 1000f, 0, out_dtype="float16")', {"x": x})
    np.testing.assert_array_equal(found, np.array([[-65504, 0, 65504]], "float16"))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_scalars_and_empty_tensors(shape):
    x = np.ones(shape, "float32")
    found = run_qnn('qnn.quantize(%x, 0.5f, 1, out_dtype="int8")', {"x": x})
    np.testing.assert_array_equal(found, np.full(shape, 3, "int8"))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_requantize(rounding):
    x = np.concatenate([whole((40,), "int32"), np.arange(-30, 30, dtype="int32")])
    # Ratios below one, above one, and one.
    cases = list(product((0.31, 0.002, 0.05), ("int8", "uint8", "int16", "int32")))
    found = run_all(
        [
            f'qnn.requantize(%x, 0.05f, 5, {scale}f, -2, rounding="{rounding}", out_dtype="{dtype}")'
            for scale, dtype in cases
        ],
        {"x": x},
    )
    for (scale, dtype), result in zip(cases, found, strict=True):
        expected = reference.requantize(x, (0.05, 5), (scale, -2), dtype, rounding=rounding)
        np.testing.assert_array_equal(result, expected, err_msg=f"{scale} {dtype}")


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_requantize_halves(rounding):
    x = np.arange(-9, 10, dtype="int32")
    body = f'qnn.requantize(%x, 0.25f, 0, 0.5f, 0, rounding="{rounding}", out_dtype="int8")'
    expected = reference.requantize(x, (0.25, 0), (0.5, 0), "int8", rounding=rounding)
    np.testing.assert_array_equal(run_qnn(body, {"x": x}), expected)
    assert expected[10] == 1 and expected[8] == (0 if rounding == "UPWARD" else -1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_requantize_narrow_inputs(dtype):
    x = whole((4, 9), dtype)
    found = run_qnn('qnn.requantize(%x, 0.05f, 100, 0.07f, 3, out_dtype="int8")', {"x": x})
    np.testing.assert_array_equal(found, reference.requantize(x, (0.05, 100), (0.07, 3), "int8"))


@pytest.mark.parametrize("points", [np.int32(0), POINTS])
def test_requantize_per_channel(points):
    x = whole((2, 4, 3), "int32")
    cases = list(product(("UPWARD", "TONEAREST"), (1, -2)))
    found = run_all(
        [
            f'qnn.requantize(%x, %s, %z, 0.02f, 1, axis={axis}, rounding="{rounding}", out_dtype="int8")'
            for rounding, axis in cases
        ],
        {"x": x},
        {"s": SCALES, "z": np.asarray(points)},
    )
    for (rounding, axis), result in zip(cases, found, strict=True):
        expected = reference.requantize(x, (SCALES, points), (0.02, 1), "int8", axis, rounding)
        np.testing.assert_array_equal(result, expected, err_msg=f"{rounding} {axis}")


@pytest.mark.parametrize("scales", [np.float32(0.05), SCALES])
def test_requantize_in_floats(scales):
    x = whole((2, 4, 30), "int32") // 50
    cases = list(product(("float32", "float64"), ("UPWARD", "TONEAREST")))
    found = run_all(
        [
            f'qnn.requantize(%x, %s, 5, 0.31f, -2, axis=1, rounding="{rounding}", '
            f'compute_dtype="{compute}", out_dtype="int8")'
            for compute, rounding in cases
        ],
        {"x": x},
        {"s": np.asarray(scales)},
    )
    for (compute, rounding), result in zip(cases, found, strict=True):
        source = (scales, np.int32(5))
        expected = reference.requantize(x, source, (0.31, -2), "int8", 1, rounding, compute)
        np.testing.assert_array_equal(result, expected, err_msg=f"{compute} {rounding}")


def test_requantize_in_floats_rounds_the_product_before_the_sum():
    x = np.random.default_rng(3).integers(-3000, 3000, (64, 4, 257)).astype("int32")
    body = 'qnn.requantize(%x, %s, 5, 0.31f, -2, axis=1, compute_dtype="float32", out_dtype="int8")'
    found = run_qnn(body, {"x": x}, {"s": SCALES}, level=3)
    expected = reference.requantize(x, (SCALES, np.int32(5)), (0.31, -2), "int8", 1, compute="float32")
    np.testing.assert_array_equal(found, expected)


def test_requantize_with_zero_points_that_are_inputs():
    x = whole((3, 4), "uint8")
    arrays = {"x": x, "a": np.array(9, "int32"), "b": np.array(-3, "int32")}
    found = run_qnn('qnn.requantize(%x, 0.05f, %a, 0.04f, %b, out_dtype="int8")', arrays)
    np.testing.assert_array_equal(found, reference.requantize(x, (0.05, 9), (0.04, -3), "int8"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('qnn.requantize(%x, %s, 0, 0.5f, 0, out_dtype="int8")', "input_scale must be constant"),
        ('qnn.requantize(%x, 0.5f, 0, %s, 0, out_dtype="int8")', "output_scale must be one constant"),
        ('qnn.requantize(%x, 0.5f, 0, 0f, 0, out_dtype="int8")', "output_scale is 0"),
        ('qnn.requantize(%x, 1e-30f, 0, 1f, 0, out_dtype="int8")', "64-bit fixed point"),
        ('qnn.requantize(%x, 0.5f, 0, 1f, 0, rounding="DOWN", out_dtype="int8")', "UPWARD and TONEAREST"),
        ('qnn.requantize(%x, 0.5f, 0, 1f, 0, compute_dtype="int8", out_dtype="int8")', "compute_dtype"),
        ('qnn.requantize(%x, 0.5f, 0, 1f, 0, out_dtype="float32")', "no dtype of quantised values"),
    ],
)
def test_requantize_refuses(body, why):
    with pytest.raises(RelayError, match=why):
        run_qnn(body, {"x": whole((3,), "int32"), "s": np.array(0.5, "float32")})


@pytest.mark.parametrize("code", [0, 1, 2, 3])
@pytest.mark.parametrize("bound", [True, False])
def test_simulated_forms(code, bound):
    x = halves((2, 4, 5))
    x[np.isinf(x)] = 9
    dtype = {1: "int8", 2: "uint8", 3: "int32"}.get(code)
    one = {"c": np.array(code, "int32")}
    arrays, constants = ({"x": x}, one) if bound else ({"x": x, **one}, {})
    constants |= {"s": SCALES, "z": POINTS}
    found = run_qnn("qnn.simulated_quantize(%x, %c, %s, %z, axis=1)", arrays, constants)
    expected = x
    if dtype:
        steps = reference.round_away(x / SCALES.reshape(4, 1)) + POINTS.reshape(4, 1).astype("float32")
        info = np.iinfo(dtype)
        expected = np.clip(steps, np.float32(info.min), np.float32(info.max))
    np.testing.assert_array_equal(found, expected)

    found = run_qnn("qnn.simulated_dequantize(%x, %c, %s, %z, axis=1)", arrays, constants)
    expected = (x - POINTS.reshape(4, 1).astype("float32")) * SCALES.reshape(4, 1) if dtype else x
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 0.25, 3.7, 1 - 2**-40, 1e-6, 0.1 / 0.3, 123456.789])
def test_fixed_point_numbers(ratio):
    assert fixed_point(ratio) == reference.q31(ratio)
