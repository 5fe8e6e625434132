"""Quantised sums, products, concatenation, curves, softmax and pooling are exact."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import qnn_reference as reference
from qnn_programs import run_all, run_qnn, whole

from tvmpass.frontends.relay.errors import RelayError

SCALES = np.array([0.05, 0.013, 0.5], "float32")
POINTS = np.array([3, -4, 0], "int32")


OPERATORS = ("add", "subtract", "mul")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_binary(dtype):
    a, b = whole((4, 25), dtype), whole((4, 25), dtype, 1)
    cases = list(product(OPERATORS, ((0.25, 1), (0.1, 3), (0.004, 0))))
    bodies = [f"qnn.{name}(%a, %b, 0.1f, 3, 0.2f, -4, {scale}f, {point})" for name, (scale, point) in cases]
    for (name, target), result in zip(cases, run_all(bodies, {"a": a, "b": b}), strict=True):
        expected = reference.binary(name, a, b, (0.1, 3), (0.2, -4), target)
        np.testing.assert_array_equal(result, expected, err_msg=f"{name} {target}")


def test_binary_broadcasts():
    a, b = whole((2, 3, 5), "int8"), whole((3, 1), "int8", 1)
    bodies = [f"qnn.{name}(%a, %b, 0.1f, 3, 0.2f, -4, 0.25f, 1)" for name in OPERATORS]
    for name, result in zip(OPERATORS, run_all(bodies, {"a": a, "b": b}), strict=True):
        expected = reference.binary(name, a, np.broadcast_to(b, a.shape), (0.1, 3), (0.2, -4), (0.25, 1))
        np.testing.assert_array_equal(result, expected, err_msg=name)


def test_binary_per_channel():
    a, b = whole((2, 3, 5), "int8"), whole((2, 3, 5), "int8", 1)
    other, points = SCALES[::-1].copy(), POINTS[::-1].copy()
    constants = {"s": SCALES, "p": POINTS, "t": other, "q": points}
    cases = list(product(OPERATORS, (1, -2)))
    bodies = [
        f"qnn.{name}(%a, %b, %s, %p, %t, %q, 0.25f, 1, lhs_axis={axis}, rhs_axis={axis})"
        for name, axis in cases
    ]
    for (name, axis), result in zip(cases, run_all(bodies, {"a": a, "b": b}, constants), strict=True):
        expected = reference.binary(name, a, b, (SCALES, POINTS), (other, points), (0.25, 1), axis)
        np.testing.assert_array_equal(result, expected, err_msg=f"{name} {axis}")


def test_concatenate():
    a, b = whole((2, 5), "int8"), whole((2, 4), "int8", 1)
    body = "qnn.concatenate((%a, %b), (0.1f, 0.15f), (3, 0), 0.15f, 0, axis=-1)"
    expected = np.concatenate([reference.requantize(a, (0.1, 3), (0.15, 0), "int8"), b], axis=-1)
    np.testing.assert_array_equal(run_qnn(body, {"a": a, "b": b}), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_leaky_relu(dtype):
    x, alphas = whole((60,), dtype), (0.25, 0.9, 0.01)
    bodies = [f"qnn.leaky_relu(%x, 0.125f, 60, 0.1f, 17, alpha={alpha}f)" for alpha in alphas]
    for alpha, result in zip(alphas, run_all(bodies, {"x": x}), strict=True):
        expected = reference.leaky_relu(x, alpha, (0.125, 60), (0.1, 17))
        np.testing.assert_array_equal(result, expected, err_msg=str(alpha))


def test_softmax():
    x = whole((2, 7, 9), "int8")
    cases = list(product((-1, 1), (0.05, 0.3, 1.0)))
    bodies = [f"qnn.softmax(%x, {s}f, 5, 0.00390625f, -128, axis={axis})" for axis, s in cases]
    for (axis, scale), result in zip(cases, run_all(bodies, {"x": x}), strict=True):
        expected = reference.softmax(x, (scale, 5), (0.00390625, -128), axis)
        np.testing.assert_array_equal(result, expected, err_msg=f"{axis} {scale}")


CURVES = {
    "tanh": math.tanh,
    "exp": math.exp,
    "sqrt": lambda v: math.sqrt(v) if v >= 0 else math.nan,
    "rsqrt": lambda v: 1 / math.sqrt(v) if v > 0 else (math.inf if v == 0 else math.nan),
    "erf": math.erf,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "hardswish": lambda v: v * min(max(v + 3, 0), 6) / 6,
    "log": lambda v: math.log(v) if v > 0 else (-math.inf if v == 0 else math.nan),
    "abs": abs,
}


@pytest.mark.parametrize(("dtype", "point"), [("int8", -11), ("uint8", 128)])
def test_curves(dtype, point):
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype).reshape(16, 16)
    found = run_all([f"qnn.{name}(%x, 0.037f, {point}, 0.0093f, 3)" for name in CURVES], {"x": x})
    real = reference.dequantize(x, 0.037, np.int32(point))
    for name, result in zip(CURVES, found, strict=True):
        curve = np.array([CURVES[name](float(v)) for v in real.reshape(-1)]).reshape(x.shape)
        exact = curve / float(np.float32(0.0093))
        expected = reference.quantize(curve.astype("float32"), 0.0093, np.int32(3), dtype)
        # Tables are filled in float32: where the exact result is at a half either neighbour is right.
        with np.errstate(invalid="ignore"):
            clear = ~np.isfinite(exact) | (np.abs(np.abs(exact - np.floor(exact)) - 0.5) > 1e-3)
        assert clear.sum() > 240
        np.testing.assert_array_equal(result[clear], expected[clear], err_msg=name)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool2d_truncates(same, include):
    x = whole((1, 3, 5, 5), "int8")
    target = (0.1, 3) if same else (0.15, -2)
    body = (
        f"qnn.avg_pool2d(%x, 0.1f, 3, {target[0]}f, {target[1]}, pool_size=[2, 2], strides=[2, 2], "
        f"padding=[1, 1, 0, 0], count_include_pad={include})"
    )
    value = reference.requantize(x, (0.1, 3), target, "int32").astype("int64")
    total = np.pad(value, ((0, 0), (0, 0), (1, 0), (1, 0))).reshape(1, 3, 3, 2, 3, 2).sum((3, 5))
    count = np.full((3, 3), 4)
    if not include:
        count = np.outer([1, 2, 2], [1, 2, 2])
    expected = reference.saturate(np.sign(total) * (np.abs(total) // count), "int8")
    np.testing.assert_array_equal(run_qnn(body, {"x": x}), expected)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("qnn.mul(%x, %x, %s, 0, 0.1f, 0, 1f, 0)", "both scalars or both"),
        ("qnn.mul(%x, %x, %s, 0, %s, 0, 1f, 0, lhs_axis=1, rhs_axis=0)", "lhs_axis and rhs_axis differ"),
        ("qnn.softmax(%x, 1.5f, 0, 1f, 0)", "input scale of qnn.softmax"),
        ("qnn.tanh(%w, 0.1f, 0, 0.1f, 0)", "takes int8 or uint8"),
    ],
)
def test_refusals(body, why):
    arrays = {"x": whole((3, 3), "int8"), "w": whole((3, 3), "int16")}
    with pytest.raises(RelayError, match=why):
        run_qnn(body, arrays, {"s": SCALES})
