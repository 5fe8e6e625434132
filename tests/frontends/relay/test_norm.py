"""Normalisations of Relay: which axes are reduced, center and scale, the results of batch_norm."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from running import run_ops

RNG = np.random.default_rng(17)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


check = partial(running.check, rtol=1e-5, atol=2e-6)


def along(vector, axis, rank):
    return vector.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def standardized(x, axes, epsilon=1e-5):
    mean = x.mean(axes, keepdims=True, dtype="float64")
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    return ((x - mean) / np.sqrt(variance + epsilon)).astype("float32")


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("flags", ["", ", center=False", ", scale=False", ", center=False, scale=False"])
def test_batch_norm_gives_its_statistics_back(axis, flags):
    x = normal(2, 3, 4)
    n = x.shape[axis]
    gamma, beta, mean, variance = normal(n), normal(n), normal(n), RNG.uniform(0.5, 2, n).astype("float32")
    expected = (x - along(mean, axis, 3)) / np.sqrt(along(variance, axis, 3) + 1e-3)
    if "scale" not in flags:
        expected = expected * along(gamma, axis, 3)
    if "center" not in flags:
        expected = expected + along(beta, axis, 3)
    check(
        f"%0 = nn.batch_norm(%x, %g, %b, %m, %v, axis={axis}, epsilon=0.001f{flags});\n(%0.0, %0.1, %0.2)",
        {"x": x, "g": gamma, "b": beta, "m": mean, "v": variance},
        expected.astype("float32"),
        mean,
        variance,
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layer_norm(axis):
    x = normal(2, 3, 4)
    gamma, beta = normal(x.shape[axis]), normal(x.shape[axis])
    plain = standardized(x, axis)
    check(
        f"(nn.layer_norm(%x, %g, %b, axis={axis}), nn.layer_norm(%x, %g, %b, axis={axis}, scale=False),"
        f" nn.layer_norm(%x, %g, %b, axis={axis}, center=False, epsilon=0.5f))",
        {"x": x, "g": gamma, "b": beta},
        plain * along(gamma, axis, 3) + along(beta, axis, 3),
        plain + along(beta, axis, 3),
        standardized(x, axis, 0.5) * along(gamma, axis, 3),
    )


def test_group_norm_reduces_the_axes_behind_the_channels():
    x, y = normal(2, 4, 3, 2), normal(2, 3, 2, 4)
    gamma, beta = normal(4), normal(4)
    first = standardized(x.reshape(2, 2, 2, 3, 2), (2, 3, 4)).reshape(x.shape)
    last = standardized(y.reshape(2, 3, 2, 2, 2), 4).reshape(y.shape)
    check(
        "(nn.group_norm(%x, %g, %b, num_groups=2), nn.group_norm(%x, %g, %b, num_groups=2, scale=False),"
        " nn.group_norm(%y, %g, %b, num_groups=2, axis=3))",
        {"x": x, "y": y, "g": gamma, "b": beta},
        first * along(gamma, 1, 4) + along(beta, 1, 4),
        first + along(beta, 1, 4),
        last * gamma + beta,
    )


def test_instance_norm_reduces_all_but_batch_and_channels():
    x = normal(2, 3, 4, 5)
    gamma, beta, wide, low = normal(3), normal(3), normal(5), normal(5)
    check(
        "(nn.instance_norm(%x, %g, %b), nn.instance_norm(%x, %w, %l, axis=-1, center=False))",
        {"x": x, "g": gamma, "b": beta, "w": wide, "l": low},
        standardized(x, (2, 3)) * along(gamma, 1, 4) + along(beta, 1, 4),
        standardized(x, (1, 2)) * wide,
    )


def test_l2_normalize_bounds_the_squared_norm():
    x = normal(2, 3, 4)
    x[0, :, 0] = 1e-4
    squares = (x * x).sum(1, keepdims=True)
    check(
        "(nn.l2_normalize(%x, eps=0.001f, axis=[1]), nn.l2_normalize(%x, eps=1e-05f, axis=[1, 2]))",
        {"x": x},
        x / np.sqrt(np.maximum(squares, np.float32(0.001))),
        x / np.sqrt((x * x).sum((1, 2), keepdims=True)),
    )


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_norm(axis, size):
    x = normal(1, 6, 3, 7)
    squares = np.moveaxis(
        np.pad(np.moveaxis(x * x, axis, 0), [(size // 2,) * 2, (0, 0), (0, 0), (0, 0)]), 0, axis
    )
    window = sum(np.take(squares, range(i, i + x.shape[axis]), axis) for i in range(size))
    check(
        f"nn.lrn(%x, size={size}, axis={axis}, bias=1f, alpha=0.5f, beta=0.6f)",
        {"x": x},
        (x / (1 + 0.5 / size * window) ** 0.6).astype("float32"),
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_family(axis):
    x = normal(3, 4, 5) * 4
    top = np.exp(x - x.max(axis, keepdims=True))
    soft = top / top.sum(axis, keepdims=True)
    check(
        f"(nn.softmax(%x, axis={axis}), nn.fast_softmax(%x, axis={axis}), nn.log_softmax(%x, axis={axis}))",
        {"x": x},
        soft,
        soft,
        np.log(soft),
    )


def test_dropout_drops_nothing():
    x = normal(2, 3)
    check("%0 = nn.dropout(%x, rate=0.7f);\n(%0.0, %0.1)", {"x": x}, x, np.ones_like(x))


def test_bfloat16():
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = normal(2, 4, 3, 3).astype(dtype)
    gamma, beta = normal(4).astype(dtype), normal(4).astype(dtype)
    wide = standardized(x.astype("float32").reshape(2, 2, 2, 3, 3), (2, 3, 4)).reshape(x.shape)
    expected = wide * along(gamma, 1, 4).astype("float32") + along(beta, 1, 4).astype("float32")
    (got,) = run_ops("nn.group_norm(%x, %g, %b, num_groups=2)", {"x": x, "g": gamma, "b": beta})
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype("float32"), expected, rtol=0.05, atol=0.05)
