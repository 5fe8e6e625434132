"""Gradients of pools and of convolution weights, against sums over windows."""

from __future__ import annotations

import numpy as np
import pytest
from nn_reference import convolution, pool
from running import converted, run_ops

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(31)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def pool_gradient(kind, x, gradient, size, strides, padding, include=False):
    """Return where the gradient of (1, c, h, w) goes, window by window."""
    result = np.zeros_like(x)
    for c, i, j in np.ndindex(gradient.shape[1:]):
        rows, columns = (
            [p * strides[a] - padding[a] + k for k in range(size[a])] for a, p in enumerate((i, j))
        )
        inside = [(r, s) for r in rows for s in columns if 0 <= r < x.shape[2] and 0 <= s < x.shape[3]]
        if kind == "max":
            r, s = max(inside, key=lambda place: x[0, c, place[0], place[1]])
            result[0, c, r, s] += gradient[0, c, i, j]
        else:
            for r, s in inside:
                count = size[0] * size[1] if include else len(inside)
                result[0, c, r, s] += gradient[0, c, i, j] / count
    return result


@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [([2, 2], [2, 2], [0] * 4), ([3, 2], [1, 2], [1, 0, 1, 1]), ([3, 3], [2, 2], [1] * 4)],
)
def test_gradients_of_pools(size, strides, padding):
    x = RNG.integers(0, 4, (1, 2, 5, 6)).astype("float32")
    gradient = normal(*pool(x, "max", size, strides, padding).shape)
    attrs = f"pool_size={size}, strides={strides}, padding={padding}"
    got = run_ops(
        f"(nn.max_pool2d_grad(%g, %x, {attrs}), nn.avg_pool2d_grad(%g, %x, {attrs}),"
        f" nn.avg_pool2d_grad(%g, %x, {attrs}, count_include_pad=True),"
        f' nn.max_pool2d_grad(%h, %y, {attrs}, layout="NHWC"))',
        {
            "g": gradient,
            "x": x,
            "h": gradient.transpose(0, 2, 3, 1).copy(),
            "y": x.transpose(0, 2, 3, 1).copy(),
        },
    )
    largest = pool_gradient("max", x, gradient, size, strides, padding)
    expected = [
        largest,
        pool_gradient("avg", x, gradient, size, strides, padding),
        pool_gradient("avg", x, gradient, size, strides, padding, include=True),
        largest.transpose(0, 2, 3, 1),
    ]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "strides", "padding", "dilation"),
    [
        ([3, 3], [1, 1], [1] * 4, [1, 1]),
        ([3, 2], [2, 2], [0, 1, 0, 1], [1, 1]),
        ([2, 2], [2, 1], [1] * 4, [2, 2]),
    ],
)
def test_gradient_of_a_weight(size, strides, padding, dilation):
    x = normal(2, 3, 6, 7)
    outputs = convolution(x, np.zeros((4, 3, *size), "float32"), strides, padding, dilation)
    gradient = normal(*outputs.shape)
    expected = np.zeros((4, 3, *size), "float32")
    for place in np.ndindex(expected.shape):
        weight = np.zeros_like(expected)
        weight[place] = 1
        expected[place] = (convolution(x, weight, strides, padding, dilation) * gradient).sum()
    attrs = f"kernel_size={size}, strides={strides}, padding={padding}, dilation={dilation}"
    got = run_ops(
        f'(nn.conv2d_backward_weight(%g, %x, {attrs}, kernel_layout="NCHW", out_layout="OIHW"),'
        f' nn.conv2d_backward_weight(%h, %y, {attrs}, data_layout="NHWC", kernel_layout="NHWC",'
        ' out_layout="HWIO"))',
        {
            "g": gradient,
            "x": x,
            "h": gradient.transpose(0, 2, 3, 1).copy(),
            "y": x.transpose(0, 2, 3, 1).copy(),
        },
    )
    np.testing.assert_allclose(got[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[1], expected.transpose(2, 3, 1, 0), rtol=1e-4, atol=1e-4)


def test_a_weight_in_groups_is_refused():
    types = "%g: Tensor[(1, 4, 4, 4), float32], %x: Tensor[(1, 4, 6, 6), float32]"
    with pytest.raises(TvmpassError, match="in groups"):
        converted(f"def @main({types}) {{ nn.conv2d_backward_weight(%g, %x, kernel_size=[3, 3], groups=2) }}")
