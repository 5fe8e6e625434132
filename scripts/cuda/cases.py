"""One small graph for every family of CUDA schedules, each with its float64 meaning.

Each comes in two sizes: ``small`` has odd extents and is checked, ``large`` is
big enough to be timed.  ``flops`` and ``bytes`` are what the mathematics needs
(every input read once, every output written once), not what a schedule does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import relax

from tvmpass.testing.graphs import graph

op = relax.op

SMALL, LARGE = "small", "large"
FLOAT_TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest error over the largest value wanted: some ten roundings of the result's own type."""


@dataclass(frozen=True)
class Case:
    """A graph, its inputs (``(shape, dtype)`` each) and its meaning in numpy.

    ``family`` is the kernel kind that the graph is about.
    """

    name: str
    family: str
    dtype: str
    body: Callable[..., relax.Expr]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    reference: Callable[..., np.ndarray]
    flops: float
    draw: Callable[[np.random.Generator], list[np.ndarray]] | None = None

    def module(self):
        """Return the graph as a Relax module."""
        return graph(self.body, *self.inputs)

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Draw the inputs: normal values of standard deviation 1, rounded to their dtype."""
        generator = np.random.default_rng(seed)
        if self.draw is not None:
            return self.draw(generator)
        return [generator.standard_normal(shape).astype(numpy_dtype(dtype)) for shape, dtype in self.inputs]

    def wanted(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the result in float64 (integers stay as they are)."""
        return self.reference(*[a.astype("float64") if a.dtype.kind not in "iu" else a for a in arrays])

    def bytes(self) -> int:
        """Return the bytes of all inputs and of the output."""
        made = self.module()["main"].ret_ty
        output = ([int(extent) for extent in made.shape.values], str(made.dtype))
        return sum(math.prod(shape) * numpy_dtype(dtype).itemsize for shape, dtype in (*self.inputs, output))


def numpy_dtype(name: str) -> np.dtype:
    """Return numpy's dtype; bfloat16 comes from ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference over the largest absolute value wanted; inf for another shape."""
    if got.shape != wanted.shape or not np.isfinite(got.astype("float64")).all():
        return math.inf
    scale = float(np.abs(wanted).max()) or 1.0
    return float(np.abs(got.astype("float64") - wanted).max()) / scale


def cases(size: str) -> dict[str, Case]:
    """Return every case of a size by its name."""
    made = [make(size, dtype) for make, dtypes in FAMILIES for dtype in dtypes]
    return {case.name: case for case in made}


def _scalar(value: float, dtype: str):
    return relax.const(value, dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def elementwise(size: str, dtype: str) -> Case:
    """gelu(x + bias) * y: three reads and one write per element."""
    m, n = (37, 131) if size == SMALL else (4096, 4096)
    return Case(
        f"elementwise-{dtype}",
        "elementwise",
        dtype,
        lambda x, bias, y: op.multiply(op.nn.gelu_tanh(op.add(x, bias)), y),
        (((m, n), dtype), ((n,), dtype), ((m, n), dtype)),
        lambda x, bias, y: _gelu_tanh(x + bias) * y,
        flops=12.0 * m * n,
    )


def transpose(size: str, dtype: str) -> Case:
    """Swap the inner dims, then join two of them: bytes only."""
    b, m, n = (3, 33, 70) if size == SMALL else (16, 1024, 2048)
    return Case(
        f"transpose-{dtype}",
        "movement",
        dtype,
        lambda x, y: op.concat([op.permute_dims(x, [0, 2, 1]), y], axis=1),
        (((b, m, n), dtype), ((b, 5, m), dtype)),
        lambda x, y: np.concatenate([x.transpose(0, 2, 1), y], 1),
        flops=0.0,
    )


def gather(size: str, dtype: str) -> Case:
    """Rows of a table by number."""
    rows, width, count = (19, 45, 23) if size == SMALL else (50000, 768, 16384)

    def draw(generator):
        table = generator.standard_normal((rows, width)).astype(numpy_dtype(dtype))
        return [table, generator.integers(0, rows, size=(count,), dtype="int64")]

    return Case(
        f"gather-{dtype}",
        "movement",
        dtype,
        lambda table, ids: op.take(table, ids, axis=0),
        (((rows, width), dtype), ((count,), "int64")),
        lambda table, ids: table[ids],
        flops=0.0,
        draw=draw,
    )


def reduce_rows(size: str, dtype: str) -> Case:
    """Sum of squares along the last, contiguous dim."""
    m, n = (13, 517) if size == SMALL else (8192, 4096)
    return Case(
        f"reduce-rows-{dtype}",
        "reduce",
        dtype,
        lambda x: op.sum(op.multiply(x, x), axis=1),
        (((m, n), dtype),),
        lambda x: (x * x).sum(1),
        flops=2.0 * m * n,
    )


def reduce_columns(size: str, dtype: str) -> Case:
    """Maximum along the first dim: neighbouring threads read neighbouring columns."""
    m, n = (65, 77) if size == SMALL else (4096, 8192)
    return Case(
        f"reduce-columns-{dtype}",
        "reduce",
        dtype,
        lambda x: op.max(x, axis=0),
        (((m, n), dtype),),
        lambda x: x.max(0),
        flops=1.0 * m * n,
    )


def softmax(size: str, dtype: str) -> Case:
    """Softmax of scaled rows."""
    m, n = (9, 101) if size == SMALL else (16384, 1024)
    return Case(
        f"softmax-{dtype}",
        "norm-softmax",
        dtype,
        lambda x: op.nn.softmax(op.multiply(x, _scalar(0.125, dtype)), axis=-1),
        (((m, n), dtype),),
        lambda x: _softmax(x * 0.125),
        flops=6.0 * m * n,
    )


def layer_norm(size: str, dtype: str) -> Case:
    """Layer norm of the sum of two values, as between the blocks of a transformer."""
    m, n = (11, 96) if size == SMALL else (16384, 1024)

    def reference(x, residual, gamma, beta):
        y = x + residual
        centred = y - y.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    return Case(
        f"layer-norm-{dtype}",
        "norm-softmax",
        dtype,
        lambda x, r, gamma, beta: op.nn.layer_norm(op.add(x, r), gamma, beta, axes=[-1], epsilon=1e-5),
        (((m, n), dtype), ((m, n), dtype), ((n,), dtype), ((n,), dtype)),
        reference,
        flops=9.0 * m * n,
    )


def matmul(size: str, dtype: str) -> Case:
    """gelu(x @ w + bias)."""
    m, n, k = (33, 70, 45) if size == SMALL else (2048, 4096, 1024)
    scale = 1.0 / math.sqrt(k)
    return Case(
        f"matmul-{dtype}",
        "matmul",
        dtype,
        lambda x, w, bias: op.nn.gelu_tanh(op.add(op.multiply(op.matmul(x, w), _scalar(scale, dtype)), bias)),
        (((m, k), dtype), ((k, n), dtype), ((n,), dtype)),
        lambda x, w, bias: _gelu_tanh((x @ w) * scale + bias),
        flops=2.0 * m * n * k,
    )


def matvec(size: str, dtype: str) -> Case:
    """One row times a matrix: the matrix is read once."""
    n, k = (77, 130) if size == SMALL else (8192, 8192)
    return Case(
        f"matvec-{dtype}",
        "matmul",
        dtype,
        lambda x, w, bias: op.add(op.matmul(x, w), bias),
        (((1, k), dtype), ((k, n), dtype), ((n,), dtype)),
        lambda x, w, bias: x @ w + bias,
        flops=2.0 * n * k,
    )


def attention(size: str, dtype: str) -> Case:
    """softmax(q kᵀ / √d) v for several heads: batched products with a softmax between."""
    heads, length, width = (3, 37, 24) if size == SMALL else (96, 512, 64)
    shape = (heads, length, width)
    scale = 1.0 / math.sqrt(width)

    def body(q, k, v):
        scores = op.matmul(q, op.permute_dims(k, [0, 2, 1]))
        return op.matmul(op.nn.softmax(op.multiply(scores, _scalar(scale, dtype)), axis=-1), v)

    return Case(
        f"attention-{dtype}",
        "matmul",
        dtype,
        body,
        ((shape, dtype),) * 3,
        lambda q, k, v: _softmax(q @ k.transpose(0, 2, 1) * scale) @ v,
        flops=4.0 * heads * length * length * width,
    )


def _conv_reference(x, w, bias, stride: int, pad: int, groups: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    if groups > 1:
        made = np.einsum("bchwij,cij->bchw", windows, w[:, 0], optimize=True)
    else:
        made = np.einsum("bchwij,ocij->bohw", windows, w, optimize=True)
    return np.maximum(made + bias, 0)


def _conv(name, family, dtype, batch, side, ci, co, kernel, stride, groups=1) -> Case:
    pad = kernel // 2
    out = (side + 2 * pad - kernel) // stride + 1

    def body(x, w, bias):
        made = op.nn.conv2d(x, w, strides=stride, padding=pad, groups=groups)
        return op.nn.relu(op.add(made, bias))

    per = ci // groups
    return Case(
        f"{name}-{dtype}",
        family,
        dtype,
        body,
        (((batch, ci, side, side), dtype), ((co, per, kernel, kernel), dtype), ((1, co, 1, 1), dtype)),
        lambda x, w, bias: _conv_reference(x, w, bias, stride, pad, groups),
        flops=2.0 * batch * out * out * co * per * kernel * kernel,
    )


def conv3x3(size: str, dtype: str) -> Case:
    """relu(conv 3x3 + bias)."""
    dims = (1, 13, 6, 10) if size == SMALL else (16, 56, 128, 128)
    return _conv("conv3x3", "conv", dtype, *dims, 3, 1)


def conv_strided(size: str, dtype: str) -> Case:
    """The same with stride 2 and few input channels, as at the head of a network."""
    dims = (2, 15, 3, 8) if size == SMALL else (16, 224, 3, 32)
    return _conv("conv3x3-stride2", "conv", dtype, *dims, 3, 2)


def conv1x1(size: str, dtype: str) -> Case:
    """relu(conv 1x1 + bias)."""
    dims = (1, 11, 24, 20) if size == SMALL else (16, 28, 512, 256)
    return _conv("conv1x1", "conv", dtype, *dims, 1, 1)


def depthwise(size: str, dtype: str) -> Case:
    """relu(depthwise 3x3 + bias)."""
    dims = (1, 17, 20, 20) if size == SMALL else (16, 56, 256, 256)
    return _conv("depthwise", "depthwise", dtype, *dims, 3, 1, groups=dims[2])


def max_pool(size: str, dtype: str) -> Case:
    """Maximum over windows of 3x3, stride 2."""
    n, c, side = (1, 7, 15) if size == SMALL else (16, 64, 112)

    def reference(x):
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
        return windows[:, :, ::2, ::2].max((4, 5))

    return Case(
        f"max-pool-{dtype}",
        "pool",
        dtype,
        lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
        (((n, c, side, side), dtype),),
        reference,
        flops=9.0 * n * c * (side // 2) ** 2,
    )


def scan(size: str, dtype: str) -> Case:
    """Running sums along rows: a kernel without a recipe."""
    m, n = (5, 67) if size == SMALL else (1024, 4096)
    return Case(
        f"cumulative-sum-{dtype}",
        "other",
        dtype,
        lambda x: op.cumsum(x, axis=1),
        (((m, n), dtype),),
        lambda x: x.cumsum(1),
        flops=1.0 * m * n,
    )


def erf_gelu(size: str, dtype: str) -> Case:
    """x * (1 + erf(x / √2)) / 2, spelled out."""
    m, n = (29, 63) if size == SMALL else (1024, 4096)
    half, root = _scalar(0.5, dtype), _scalar(1 / math.sqrt(2), dtype)
    one = _scalar(1.0, dtype)
    return Case(
        f"erf-gelu-{dtype}",
        "elementwise",
        dtype,
        lambda x: op.multiply(op.multiply(x, half), op.add(op.erf(op.multiply(x, root)), one)),
        (((m, n), dtype),),
        lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
        flops=20.0 * m * n,
    )


def mask(size: str, dtype: str) -> Case:
    """Values where a condition holds, a constant elsewhere."""
    m, n = (21, 45) if size == SMALL else (4096, 4096)
    return Case(
        f"where-{dtype}",
        "elementwise",
        dtype,
        lambda x, y: op.where(op.greater(x, y), x, op.nn.relu(op.negative(y))),
        (((m, n), dtype),) * 2,
        lambda x, y: np.where(x > y, x, np.maximum(-y, 0)),
        flops=3.0 * m * n,
    )


F32, HALF, ALL = ("float32",), ("float32", "float16"), ("float32", "float16", "bfloat16")

FAMILIES: tuple[tuple[Callable[[str, str], Case], tuple[str, ...]], ...] = (
    (elementwise, ALL),
    (erf_gelu, F32),
    (mask, HALF),
    (transpose, HALF),
    (gather, HALF),
    (reduce_rows, HALF),
    (reduce_columns, HALF),
    (softmax, HALF),
    (layer_norm, HALF),
    (matmul, ALL),
    (matvec, HALF),
    (attention, HALF),
    (conv3x3, HALF),
    (conv_strided, F32),
    (conv1x1, HALF),
    (depthwise, HALF),
    (max_pool, F32),
    (scan, F32),
)
