"""A small graph per family of CUDA schedules, in three shapes of which one is odd."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from scripts.cuda.cases import Case

op = relax.op

DTYPES = ("float32", "float16", "bfloat16")
SHAPES = 3
"""How many shapes each family has."""
ODD = 1
"""The odd one of them."""


def case(family: str, dtype: str, shape: int) -> Case:
    """Return a family's graph in one of its shapes."""
    return FAMILIES[family](family, dtype, shape)


def depth(made: Case) -> int:
    """Bound the terms that are summed for one result: a tolerance grows with its root."""
    return max(math.prod(shape) for shape, _ in made.inputs[:1])


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x):
    made = np.exp(x - x.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True)


def _case(family: str, dtype: str, body, shapes, reference, draw=None) -> Case:
    inputs = tuple(s if isinstance(s[-1], str) else (s, dtype) for s in shapes)
    return Case(family, family, dtype, body, inputs, reference, 0.0, draw)


def elementwise(family: str, dtype: str, shape: int) -> Case:
    """gelu(x + bias) * y."""
    m, n = ((64, 128), (37, 131), (3, 4096))[shape]
    return _case(
        family, dtype,
        lambda x, b, y: op.multiply(op.nn.gelu_tanh(op.add(x, b)), y),
        [(m, n), (n,), (m, n)],
        lambda x, b, y: _gelu(x + b) * y,
    )  # fmt: skip


def movement(family: str, dtype: str, shape: int) -> Case:
    """Swap the inner dims, then join with another array."""
    b, m, n = ((2, 64, 96), (3, 33, 70), (1, 128, 5))[shape]
    return _case(
        family, dtype,
        lambda x, y: op.concat([op.permute_dims(x, [0, 2, 1]), y], axis=1),
        [(b, m, n), (b, 5, m)],
        lambda x, y: np.concatenate([x.transpose(0, 2, 1), y], 1),
    )  # fmt: skip


def gather(family: str, dtype: str, shape: int) -> Case:
    """Rows of a table by number."""
    rows, width, count = ((64, 256, 32), (19, 45, 23), (7, 1024, 3))[shape]

    def draw(generator):
        from scripts.cuda.cases import numpy_dtype

        table = generator.standard_normal((rows, width)).astype(numpy_dtype(dtype))
        return [table, generator.integers(0, rows, (count,), "int64")]

    shapes = [(rows, width), ((count,), "int64")]
    return _case(family, dtype, lambda t, i: op.take(t, i, axis=0), shapes, lambda t, i: t[i], draw)


def reduce_rows(family: str, dtype: str, shape: int) -> Case:
    """Sums of squares along the last dim."""
    m, n = ((16, 512), (13, 517), (300, 24))[shape]
    return _case(
        family, dtype,
        lambda x: op.sum(op.multiply(x, x), axis=1), [(m, n)], lambda x: (x * x).sum(1),
    )  # fmt: skip


def reduce_columns(family: str, dtype: str, shape: int) -> Case:
    """Largest values along the first dim."""
    m, n = ((128, 64), (65, 77), (9, 1000))[shape]
    return _case(family, dtype, lambda x: op.max(x, axis=0), [(m, n)], lambda x: x.max(0))


def reduce_all(family: str, dtype: str, shape: int) -> Case:
    """The mean of everything."""
    m, n = ((64, 64), (31, 67), (1, 2000))[shape]
    return _case(family, dtype, lambda x: op.mean(x), [(m, n)], lambda x: np.asarray(x.mean()))


def softmax(family: str, dtype: str, shape: int) -> Case:
    """Softmax of rows."""
    m, n = ((16, 128), (9, 101), (4, 1500))[shape]
    return _case(family, dtype, lambda x: op.nn.softmax(x, axis=-1), [(m, n)], _softmax)


def layer_norm(family: str, dtype: str, shape: int) -> Case:
    """Layer norm of a sum."""
    m, n = ((16, 128), (11, 97), (3, 768))[shape]

    def reference(x, y, gamma, beta):
        x = x + y
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    return _case(
        family, dtype,
        lambda x, y, g, b: op.nn.layer_norm(op.add(x, y), g, b, axes=[-1], epsilon=1e-5),
        [(m, n), (m, n), (n,), (n,)],
        reference,
    )  # fmt: skip


def matmul(family: str, dtype: str, shape: int) -> Case:
    """gelu(x @ w / √k + bias)."""
    m, n, k = ((64, 128, 64), (33, 70, 45), (128, 64, 192))[shape]
    scale = 1 / math.sqrt(k)
    return _case(
        family, dtype,
        lambda x, w, b: op.nn.gelu_tanh(
            op.add(op.multiply(op.matmul(x, w), relax.const(scale, dtype)), b)
        ),
        [(m, k), (k, n), (n,)],
        lambda x, w, b: _gelu((x @ w) * scale + b),
    )  # fmt: skip


def batched_matmul(family: str, dtype: str, shape: int) -> Case:
    """Products of pairs of matrices, the second transposed."""
    b, m, n, k = ((4, 64, 64, 32), (3, 37, 29, 23), (2, 16, 128, 64))[shape]
    return _case(
        family, dtype,
        lambda x, y: op.matmul(x, op.permute_dims(y, [0, 2, 1])),
        [(b, m, k), (b, n, k)],
        lambda x, y: x @ y.transpose(0, 2, 1),
    )  # fmt: skip


def matvec(family: str, dtype: str, shape: int) -> Case:
    """One row times a matrix."""
    n, k = ((128, 256), (77, 131), (1000, 64))[shape]
    return _case(
        family, dtype,
        lambda x, w, b: op.add(op.matmul(x, w), b), [(1, k), (k, n), (n,)], lambda x, w, b: x @ w + b,
    )  # fmt: skip


def _conv(family, dtype, n, side, ci, co, kernel, stride, groups=1) -> Case:
    pad, per = kernel // 2, ci // groups

    def body(x, w, b):
        made = op.nn.conv2d(x, w, strides=stride, padding=pad, groups=groups)
        return op.nn.relu(op.add(made, b))

    def reference(x, w, b):
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
        windows = windows[:, :, ::stride, ::stride]
        if groups > 1:
            made = np.einsum("bchwij,cij->bchw", windows, w[:, 0], optimize=True)
        else:
            made = np.einsum("bchwij,ocij->bohw", windows, w, optimize=True)
        return np.maximum(made + b, 0)

    shapes = [(n, ci, side, side), (co, per, kernel, kernel), (1, co, 1, 1)]
    return _case(family, dtype, body, shapes, reference)


def conv3x3(family: str, dtype: str, shape: int) -> Case:
    """relu(conv 3x3 + bias)."""
    return _conv(family, dtype, *((1, 16, 16, 32), (1, 13, 6, 10), (2, 8, 32, 16))[shape], 3, 1)


def conv_strided(family: str, dtype: str, shape: int) -> Case:
    """The same with stride 2."""
    return _conv(family, dtype, *((1, 32, 3, 16), (2, 15, 3, 9), (1, 16, 16, 32))[shape], 3, 2)


def conv1x1(family: str, dtype: str, shape: int) -> Case:
    """relu(conv 1x1 + bias)."""
    return _conv(family, dtype, *((1, 16, 32, 64), (1, 11, 25, 19), (2, 8, 64, 16))[shape], 1, 1)


def depthwise(family: str, dtype: str, shape: int) -> Case:
    """relu(depthwise conv 3x3 + bias)."""
    n, side, c = ((1, 16, 32), (1, 17, 21), (2, 8, 64))[shape]
    return _conv(family, dtype, n, side, c, c, 3, 1, groups=c)


def max_pool(family: str, dtype: str, shape: int) -> Case:
    """Largest value of windows of 3x3, stride 2."""
    n, c, side = ((1, 16, 16), (1, 7, 15), (2, 3, 33))[shape]

    def reference(x):
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
        return windows[:, :, ::2, ::2].max((4, 5))

    return _case(
        family, dtype,
        lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
        [(n, c, side, side)],
        reference,
    )  # fmt: skip


def scan(family: str, dtype: str, shape: int) -> Case:
    """Running sums along rows: a kernel without a recipe."""
    m, n = ((8, 64), (5, 67), (2, 300))[shape]
    return _case(family, dtype, lambda x: op.cumsum(x, axis=1), [(m, n)], lambda x: x.cumsum(1))


FAMILIES: dict[str, Callable[[str, str, int], Case]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        elementwise, movement, gather, reduce_rows, reduce_columns, reduce_all, softmax, layer_norm, matmul,
        batched_matmul, matvec, conv3x3, conv_strided, conv1x1, depthwise, max_pool, scan,
    )
}  # fmt: skip
