"""exp, tanh, erf and sigmoid as arithmetic, against numpy in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te, tirx

from schedules.cpu.vector_math import vectorize_math
from tests.tir_passes.cases import compile_all, function, run, tensor

EXACT = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}
SPECIAL = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        88.72283,
        88.7229,
        -87.33655,
        -103.9,
        -104.5,
        1e38,
        -1e38,
    ],
    np.float32,
)


def kernel(name: str, size: int, dtype: str = "float32"):
    x = tensor("x", size, dtype=dtype)
    return function(x, te.compute((size,), lambda i: getattr(tirx, name)(x[i]), name="y"))


def values(name: str, low: float, high: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (x, result, exact result) on a dense grid with the special values behind it."""
    x = np.concatenate([np.linspace(low, high, 60001).astype(np.float32), SPECIAL])
    func = vectorize_math(kernel(name, len(x)))
    got = run(compile_all({"f": func}), "f", [x, np.zeros_like(x)])
    with np.errstate(over="ignore", invalid="ignore"):
        return x, got, EXACT[name](x.astype(np.float64))


@pytest.mark.parametrize("name", EXACT)
def test_calls_are_gone(name):
    assert f"T.{name}" not in vectorize_math(kernel(name, 8)).script()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("exp", -105.0, 90.0), ("tanh", -10, 10), ("erf", -6, 6), ("sigmoid", -100, 100)],
)
def test_special_values_are_those_of_the_library(name, low, high):
    _, got, exact = values(name, low, high)
    with np.errstate(over="ignore"):
        expected = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize(
    ("name", "low", "high", "limit"), [("exp", -104.0, 88.7, 2.0), ("sigmoid", -87.0, 87.0, 4.0)]
)
def test_error_in_units_of_the_last_place(name, low, high, limit):
    _, got, exact = values(name, low, high)
    with np.errstate(over="ignore"):
        single = exact.astype(np.float32)
    known = np.isfinite(single) & np.isfinite(got)
    error = np.abs(got[known].astype(np.float64) - exact[known]) / np.spacing(np.abs(single[known])).astype(
        np.float64
    )
    assert error.max() <= limit


@pytest.mark.parametrize(("name", "limit"), [("tanh", 4e-7), ("erf", 5e-7)])
def test_absolute_error_and_range(name, limit):
    x, got, exact = values(name, -12.0, 12.0)
    known = ~np.isnan(x)
    assert np.abs(got[known] - exact[known]).max() <= limit
    assert np.abs(got[known]).max() == 1.0


def test_other_types_keep_their_calls():
    assert "T.exp" in vectorize_math(kernel("exp", 8, "float64")).script()


def test_nested_calls():
    x = tensor("x", 33)
    func = function(x, te.compute((33,), lambda i: tirx.exp(-tirx.tanh(tirx.exp(x[i]))), name="y"))
    data = np.linspace(-3, 3, 33).astype(np.float32)
    got = run(compile_all({"f": vectorize_math(func)}), "f", [data, np.zeros_like(data)])
    np.testing.assert_allclose(got, np.exp(-np.tanh(np.exp(data.astype(np.float64)))), rtol=2e-6)
