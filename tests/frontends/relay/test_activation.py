"""Activations and losses of Relay."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from running import converted

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(19)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


check = partial(running.check, rtol=1e-5, atol=1e-6)


def test_relu_keeps_nan_and_takes_integers():
    x = normal(2, 3)
    x[0, 0] = np.nan
    y = RNG.integers(-5, 5, (2, 3)).astype("int8")
    check("(nn.relu(%x), nn.relu(%y))", {"x": x, "y": y}, np.maximum(x, 0), np.maximum(y, 0))


def test_slopes_below_zero():
    x, slope = normal(2, 3, 4), normal(3)
    y = RNG.integers(-9, 9, (2, 3)).astype("int32")
    check(
        "(nn.leaky_relu(%x), nn.leaky_relu(%x, alpha=0.1f), nn.prelu(%x, %s), nn.prelu(%x, %t, axis=2),"
        " nn.leaky_relu(%y, alpha=2f))",
        {"x": x, "s": slope, "t": np.float32([0.5, -1, 2, 0]), "y": y},
        np.where(x > 0, x, x * np.float32(0.25)),
        np.where(x > 0, x, x * np.float32(0.1)),
        np.where(x > 0, x, x * slope[:, None]),
        np.where(x > 0, x, x * np.float32([0.5, -1, 2, 0])),
        np.where(y > 0, y, y * 2),
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_bias_along_any_axis(axis):
    x = normal(2, 3, 4)
    bias = normal(x.shape[axis])
    shape = [-1 if i == axis % 3 else 1 for i in range(3)]
    check(f"nn.bias_add(%x, %b, axis={axis})", {"x": x, "b": bias}, x + bias.reshape(shape))


def test_batch_flatten():
    x, vector, empty = normal(2, 3, 4), normal(5), np.zeros((0, 3, 2), "float32")
    check(
        "(nn.batch_flatten(%x), nn.batch_flatten(%v), nn.batch_flatten(%e))",
        {"x": x, "v": vector, "e": empty},
        x.reshape(2, 12),
        vector.reshape(5, 1),
        empty.reshape(0, 6),
    )


def test_flattening_a_batch_that_is_not_known():
    mod = converted("def @main(%x: Tensor[(?, 3, 4), float32]) { nn.batch_flatten(%x) }")
    assert int(mod["main"].ret_ty.shape[1]) == 12


def test_cross_entropy():
    x = RNG.uniform(0.1, 1, (4, 3)).astype("float32")
    y = RNG.uniform(0, 1, (4, 3)).astype("float32")
    check(
        "(nn.cross_entropy(%x, %y), nn.cross_entropy_with_logits(%x, %y))",
        {"x": x, "y": y},
        np.float32(-(np.log(x) * y).sum() / 4),
        np.float32(-(x * y).sum() / 4),
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_negative_log_likelihood_ignores_a_target_outside_the_classes(dtype):
    x, weights = normal(2, 3, 4), RNG.uniform(0.5, 1, 3).astype("float32")
    targets = RNG.integers(0, 3, (2, 4)).astype(dtype)
    targets[0, 1] = -100
    counts = targets != -100
    safe = np.where(counts, targets, 0)
    chosen = np.take_along_axis(x, safe[:, None].astype("int64"), 1)[:, 0]
    loss = np.where(counts, -chosen * weights[safe], 0).astype("float32")
    total = np.where(counts, weights[safe], 0).sum()
    check(
        '(nn.nll_loss(%x, %t, %w, reduction="none", ignore_index=-100),'
        ' nn.nll_loss(%x, %t, %w, reduction="sum", ignore_index=-100),'
        " nn.nll_loss(%x, %t, %w, ignore_index=-100))",
        {"x": x, "t": targets, "w": weights},
        loss,
        loss.sum(),
        np.float32(loss.sum() / total),
    )


def test_negative_log_likelihood_of_one_sample():
    x, weights = normal(3), RNG.uniform(0.5, 1, 3).astype("float32")
    check(
        'nn.nll_loss(%x, %t, %w, reduction="none", ignore_index=-100)',
        {"x": x, "t": np.array(1, "int64"), "w": weights},
        np.float32(-x[1] * weights[1]),
    )


def test_a_bias_of_another_size_is_refused():
    with pytest.raises(TvmpassError, match="a bias of 4 for an axis of 3"):
        converted("def @main(%x: Tensor[(2, 3), float32], %b: Tensor[(4), float32]) { nn.bias_add(%x, %b) }")


@pytest.mark.parametrize(
    ("slope", "message"),
    [
        ("(1, 3), float32", "a slope of rank 2, 1 is needed"),
        ("(4), float32", "a slope of 4 for an axis of 3"),
        ("(3), float64", "a slope of float64 for float32"),
    ],
)
def test_a_slope_is_one_number_per_channel(slope, message):
    text = f"def @main(%x: Tensor[(2, 3), float32], %s: Tensor[{slope}]) {{ nn.prelu(%x, %s) }}"
    with pytest.raises(TvmpassError, match=message):
        converted(text)


@pytest.mark.parametrize(
    "call", ["nn.relu(%x)", "nn.bias_add(%x, %b)", "nn.dense(%x, %x, units=None)", "nn.prelu(%x, %b)"]
)
def test_truth_values_are_refused(call):
    with pytest.raises(TvmpassError, match="not defined on bool"):
        converted(f"def @main(%x: Tensor[(2, 3), bool], %b: Tensor[(3), bool]) {{ {call} }}")
