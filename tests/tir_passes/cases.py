"""Small kernels of every kind, and their numeric comparison."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import te, tirx, topi

from tir_passes.recipes import Recipe, apply_recipe, finish, recipes
from tvmpass.compile.target import parse_target
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import Kernel, classify
from tvmpass.core.options import Options
from tvmpass.core.padding import FINITE_ATTR, padded_factors

OPTIONS = Options(threads=1)
TARGET = parse_target("llvm", threads=1)


def tensor(name: str, *shape, dtype: str = "float32"):
    return te.placeholder(shape, dtype, name=name)


def relu(x):
    return te.compute(
        x.shape,
        lambda *i: tirx.Select(tirx.const(0.0, "float32") > x(*i), tirx.const(0.0, "float32"), x(*i)),
        name="relu",
    )


def function(*tensors) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors))


def matmul(m, n, k, dtype="float32", epilogue=True) -> tirx.PrimFunc:
    a, b, bias = (
        tensor("a", m, k, dtype=dtype),
        tensor("b", k, n, dtype=dtype),
        tensor("bias", n, dtype=dtype),
    )
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    if not epilogue:
        return function(a, b, c)
    added = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="added")
    return function(a, b, bias, relu(added) if dtype == "float32" else added)


def matmul_after_exp(m, n, k) -> tirx.PrimFunc:
    x, b = tensor("x", m, k), tensor("b", k, n)
    a = te.compute((m, k), lambda i, j: tirx.exp(x[i, j]), name="a")
    r = te.reduce_axis((0, k), name="k")
    return function(x, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c"))


def batched_matmul(batch, m, n, k, transposed=False) -> tirx.PrimFunc:
    a = tensor("a", batch, m, k)
    b = tensor("b", batch, n, k) if transposed else tensor("b", batch, k, n)
    r = te.reduce_axis((0, k), name="k")
    at = (lambda z, j: b[z, j, r]) if transposed else (lambda z, j: b[z, r, j])
    c = te.compute((batch, m, n), lambda z, i, j: te.sum(a[z, i, r] * at(z, j), axis=r), name="c")
    return function(a, b, te.compute(c.shape, lambda *i: c(*i) * tirx.const(0.5, "float32"), name="scaled"))


def padded(x, pad):
    if not pad:
        return x
    n, h, w, c = x.shape
    return te.compute(
        (n, h + 2 * pad, w + 2 * pad, c),
        lambda b, i, j, k: tirx.if_then_else(
            tirx.all(i >= pad, i < h + pad, j >= pad, j < w + pad),
            x[b, i - pad, j - pad, k],
            tirx.const(0.0, "float32"),
        ),
        name="pad_temp",
    )


def conv(batch, h, w, ci, co, k, stride=1, pad=0, dilation=1, groups=1) -> tirx.PrimFunc:
    x, weight, bias = tensor("x", batch, h, w, ci), tensor("w", k, k, ci // groups, co), tensor("bias", co)
    y = padded(x, pad)
    reach = (k - 1) * dilation + 1
    oh, ow = (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1
    rc, ry, rx = (
        te.reduce_axis((0, ci // groups), "rc"),
        te.reduce_axis((0, k), "ry"),
        te.reduce_axis((0, k), "rx"),
    )

    def channel(o):
        return rc if groups == 1 else tirx.floordiv(o, co // groups) * (ci // groups) + rc

    out = te.compute(
        (batch, oh, ow, co),
        lambda b, i, j, o: te.sum(
            y[b, i * stride + ry * dilation, j * stride + rx * dilation, channel(o)] * weight[ry, rx, rc, o],
            axis=[ry, rx, rc],
        ),
        name="out",
    )
    residual = tensor("residual", batch, oh, ow, co)
    added = te.compute(out.shape, lambda b, i, j, o: out[b, i, j, o] + bias[o], name="added")
    summed = (
        te.compute(out.shape, lambda *i: relu(added)(*i) + residual(*i), name="summed") if False else added
    )
    last = te.compute(out.shape, lambda *i: summed(*i) * tirx.sigmoid(summed(*i)) + residual(*i), name="last")
    return function(x, weight, bias, residual, last)


def conv_nchw(h, w, ci, co, k) -> tirx.PrimFunc:
    x, weight = tensor("x", 1, ci, h, w), tensor("w", co, ci, k, k)
    return function(x, weight, topi.nn.conv2d_nchw(x, weight, 1, 0, 1))


def finite(func):
    """Return a kernel whose weights are known to be finite."""
    return func.with_attr(FINITE_ATTR, sorted(padded_factors(func)))


def depthwise(batch, h, w, c, k, stride=1, pad=0, dilation=1) -> tirx.PrimFunc:
    x, weight, bias = tensor("x", batch, h, w, c), tensor("w", k, k, 1, c), tensor("bias", c)
    y = padded(x, pad)
    reach = (k - 1) * dilation + 1
    oh, ow = (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1
    ry, rx = te.reduce_axis((0, k), "ry"), te.reduce_axis((0, k), "rx")
    out = te.compute(
        (batch, oh, ow, c),
        lambda b, i, j, o: te.sum(
            y[b, i * stride + ry * dilation, j * stride + rx * dilation, o] * weight[ry, rx, 0, o],
            axis=[ry, rx],
        ),
        name="out",
    )
    return function(
        x,
        weight,
        bias,
        relu(te.compute(out.shape, lambda b, i, j, o: out[b, i, j, o] + bias[o], name="added")),
    )


def max_pool(h, w, c, k, stride, pad) -> tirx.PrimFunc:
    x = tensor("x", 1, h, w, c)
    return function(x, topi.nn.pool2d(x, (k, k), (stride, stride), (1, 1), (pad,) * 4, "max", layout="NHWC"))


def average_pool(h, w, c, k, stride) -> tirx.PrimFunc:
    x = tensor("x", 1, h, w, c)
    return function(x, topi.nn.pool2d(x, (k, k), (stride, stride), (1, 1), (0,) * 4, "avg", layout="NHWC"))


def mean(shape, axes, keepdims=True) -> tirx.PrimFunc:
    x = tensor("x", *shape)
    total = topi.sum(x, axes, keepdims)
    return function(
        x, te.compute(total.shape, lambda *i: total(*i) * tirx.const(0.25, "float32"), name="scaled")
    )


def nan_max(rows, columns) -> tirx.PrimFunc:
    """A maximum along rows that keeps NaN, as tvmpass legalises it."""
    x = tensor("x", rows, columns)

    def combine(a, b):
        return tirx.Select(tirx.isnan(a), a, tirx.Select(a > b, a, b))

    reducer = te.comm_reducer(combine, lambda dtype: tirx.const(-np.inf, dtype), name="max")
    k = te.reduce_axis((0, columns), name="k")
    return function(x, te.compute((rows,), lambda i: reducer(x[i, k], axis=k), name="top"))


def softmax(*shape, axis=-1) -> tirx.PrimFunc:
    x = tensor("x", *shape)
    return function(x, topi.nn.softmax(x, axis))


def layer_norm(rows, columns) -> tirx.PrimFunc:
    x, scale, shift = tensor("x", rows, columns), tensor("scale", columns), tensor("shift", columns)
    inverse = (
        tirx.const(1.0 / columns, "float32") if isinstance(columns, int) else 1.0 / columns.astype("float32")
    )
    k, k2 = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "k2")
    total = te.compute((rows, 1), lambda i, _: te.sum(x[i, k], axis=k), name="total")
    mean_ = te.compute((rows, 1), lambda i, j: total[i, j] * inverse, name="mean")
    square = te.compute(
        (rows, 1),
        lambda i, _: te.sum((x[i, k2] - mean_[i, 0]) * (x[i, k2] - mean_[i, 0]), axis=k2),
        name="square",
    )
    return function(
        x,
        scale,
        shift,
        te.compute(
            (rows, columns),
            lambda i, j: (
                (x[i, j] - mean_[i, 0])
                / tirx.sqrt(square[i, 0] * inverse + tirx.const(1e-5, "float32"))
                * scale[j]
                + shift[j]
            ),
            name="normed",
        ),
    )


def elementwise(*shape) -> tirx.PrimFunc:
    x, y = tensor("x", *shape), tensor("y", shape[-1])
    total = te.compute(shape, lambda *i: x(*i) + y[i[-1]], name="total")
    return function(x, y, te.compute(shape, lambda *i: tirx.tanh(total(*i)) * total(*i), name="product"))


def transpose(shape, axes) -> tirx.PrimFunc:
    x = tensor("x", *shape)
    return function(x, topi.transpose(x, axes))


def concat(rows, *columns) -> tirx.PrimFunc:
    parts = [tensor(f"x{i}", rows, c) for i, c in enumerate(columns)]
    return function(*parts, topi.concatenate(parts, 1))


def pad_last(rows, columns, before, after) -> tirx.PrimFunc:
    x = tensor("x", rows, columns)
    return function(x, topi.nn.pad(x, (0, before), (0, after)))


def repeat(shape, times) -> tirx.PrimFunc:
    x = tensor("x", *shape)
    return function(x, topi.repeat(topi.repeat(x, times, 1), times, 2))


# Name -> (maker, kind). Extents are odd on purpose: 42 and 18 leave tails in
# every vector width, 13 and 7 in the rows, 3 is a first layer's channels.
KERNELS: dict[str, tuple[Callable[[], tirx.PrimFunc], str]] = {
    "matmul": (lambda: matmul(13, 42, 20), "matmul"),
    "matmul-wide": (lambda: matmul(5, 99, 33), "matmul"),
    "matmul-one-row": (lambda: matmul(1, 18, 7), "matmul"),
    "matmul-narrow": (lambda: matmul(9, 3, 8), "matmul"),
    "matmul-plain": (lambda: matmul(12, 32, 16, epilogue=False), "matmul"),
    "matmul-double": (lambda: matmul(7, 21, 10, dtype="float64"), "matmul"),
    "matmul-int": (lambda: matmul(7, 21, 10, dtype="int32"), "matmul"),
    "matmul-prologue": (lambda: matmul_after_exp(9, 18, 20), "matmul"),
    "matmul-half": (lambda: matmul(7, 21, 10, dtype="float16"), "matmul"),
    "matmul-one-column": (lambda: batched_matmul(2, 9, 1, 37), "matmul"),
    "batched": (lambda: batched_matmul(3, 10, 18, 12), "matmul"),
    "batched-transposed": (lambda: batched_matmul(2, 6, 19, 8, transposed=True), "matmul"),
    "conv-1x1": (lambda: conv(1, 7, 5, 12, 18, 1), "conv"),
    "conv-1x1-stride": (lambda: conv(1, 7, 9, 8, 24, 1, stride=2), "conv"),
    "conv-3x3": (lambda: conv(2, 9, 7, 5, 24, 3, pad=1), "conv"),
    "conv-stride": (lambda: conv(1, 13, 11, 3, 8, 3, stride=2, pad=1), "conv"),
    "conv-dilated": (lambda: conv(1, 11, 10, 4, 10, 3, pad=2, dilation=2), "conv"),
    "conv-groups": (lambda: conv(1, 6, 6, 8, 32, 3, pad=1, groups=2), "conv"),
    "conv-groups-narrow": (lambda: conv(1, 6, 6, 12, 18, 3, pad=1, groups=3), "conv"),
    "conv-nchw": (lambda: conv_nchw(8, 21, 5, 6, 3), "conv"),
    "depthwise": (lambda: depthwise(2, 9, 13, 24, 3, pad=1), "depthwise"),
    "depthwise-5x5": (lambda: depthwise(1, 7, 6, 18, 5, stride=2, pad=2), "depthwise"),
    "depthwise-dilated": (lambda: depthwise(1, 9, 9, 8, 3, pad=2, dilation=2), "depthwise"),
    "depthwise-few-rows": (lambda: depthwise(1, 2, 14, 24, 5, pad=2), "depthwise"),
    "depthwise-tall": (lambda: depthwise(1, 21, 5, 20, 3, pad=1), "depthwise"),
    "max-pool": (lambda: max_pool(9, 11, 18, 3, 2, 1), "pool"),
    "average-pool": (lambda: average_pool(8, 8, 10, 2, 2), "pool"),
    "mean-image": (lambda: mean((2, 6, 7, 42), (1, 2)), "reduce"),
    "mean-row": (lambda: mean((3, 5, 41), (2,)), "reduce"),
    "mean-two": (lambda: mean((4, 3, 33), (1, 2), keepdims=False), "reduce"),
    "mean-all": (lambda: mean((5, 37), (0, 1), keepdims=False), "reduce"),
    "mean-middle": (lambda: mean((4, 6, 5), (1,)), "reduce"),
    "nan-max": (lambda: nan_max(6, 45), "reduce"),
    "softmax": (lambda: softmax(7, 45), "norm-softmax"),
    "softmax-short": (lambda: softmax(9, 3), "norm-softmax"),
    "softmax-long": (lambda: softmax(3, 225), "norm-softmax"),
    "softmax-channels": (lambda: softmax(2, 6, 18, axis=1), "norm-softmax"),
    "layer-norm": (lambda: layer_norm(5, 42), "norm-softmax"),
    "layer-norm-one": (lambda: layer_norm(1, 17), "norm-softmax"),
    "elementwise": (lambda: elementwise(3, 5, 42), "elementwise"),
    "elementwise-odd": (lambda: elementwise(7, 3), "elementwise"),
    "transpose": (lambda: transpose((1, 3, 10, 18), (0, 2, 3, 1)), "movement"),
    "transpose-back": (lambda: transpose((1, 10, 18, 5), (0, 3, 1, 2)), "movement"),
    "concat": (lambda: concat(6, 5, 18, 7), "movement"),
    "pad": (lambda: pad_last(5, 11, 2, 4), "movement"),
    "repeat": (lambda: repeat((1, 4, 5, 6), 2), "movement"),
}


def symbolic(make: Callable[..., tirx.PrimFunc]) -> tirx.PrimFunc:
    """Build a kernel over the free extent ``n``, which TE binds from its first buffer."""
    return make(te.var("n", "int32"))


SYMBOLIC: dict[str, tuple[Callable[[], tirx.PrimFunc], str]] = {
    "matmul-rows": (lambda: symbolic(lambda n: matmul(n, 42, 20)), "matmul"),
    "batched-batch": (lambda: symbolic(lambda n: batched_matmul(n, 5, 18, 8)), "matmul"),
    "conv-batch": (lambda: symbolic(lambda n: conv(n, 7, 6, 5, 24, 3, pad=1)), "conv"),
    "conv-1x1-batch": (lambda: symbolic(lambda n: conv(n, 3, 5, 8, 18, 1)), "conv"),
    "depthwise-batch": (lambda: symbolic(lambda n: depthwise(n, 7, 6, 18, 3, pad=1)), "depthwise"),
    "mean-batch": (lambda: symbolic(lambda n: mean((n, 4, 4, 18), (1, 2))), "reduce"),
    "mean-reduced": (lambda: symbolic(lambda n: mean((3, n), (1,))), "reduce"),
    "softmax-rows": (lambda: symbolic(lambda n: softmax(n, 21)), "norm-softmax"),
    "softmax-columns": (lambda: symbolic(lambda n: softmax(3, n)), "norm-softmax"),
    "layer-norm-rows": (lambda: symbolic(lambda n: layer_norm(n, 18)), "norm-softmax"),
    "elementwise-rows": (lambda: symbolic(lambda n: elementwise(n, 18)), "elementwise"),
    "elementwise-columns": (lambda: symbolic(lambda n: elementwise(3, n)), "elementwise"),
}


def arguments(func: tirx.PrimFunc, sizes: dict[str, int] | None = None, seed: int = 0) -> list[np.ndarray]:
    """Return random arrays for the parameters; a symbolic extent takes its size by name."""
    rng = np.random.default_rng(seed)
    arrays = []
    for param in func.params:
        shape = [int(d) if isinstance(d, tirx.IntImm) else (sizes or {})[d.name] for d in param.shape]
        dtype = str(param.dtype)
        made = rng.standard_normal(shape) if "float" in dtype else rng.integers(-3, 4, shape)
        arrays.append(made.astype(dtype))
    return arrays


def compile_all(functions: dict[str, tirx.PrimFunc]):
    """Compile PrimFuncs into one module; each is called by its key."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    return tvm.compile(tvm.IRModule(named), TARGET)


def run(module, name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Call a compiled kernel on copies, its output poisoned first, and return the output."""
    tensors = [tvm.runtime.tensor(np.array(a)) for a in arrays]
    poison = np.full(arrays[-1].shape, np.nan if arrays[-1].dtype.kind == "f" else 77, arrays[-1].dtype)
    tensors[-1] = tvm.runtime.tensor(poison)
    module[name](*tensors)
    return tensors[-1].numpy()


def scheduled(func: tirx.PrimFunc, kernel: Kernel | None = None, options: Options = OPTIONS):
    """Yield ``(recipe, PrimFunc)`` for every recipe; a refusal fails the test."""
    func = finite(func)  # else recipes that leave out products with padding refuse
    kernel = classify(func) if kernel is None else kernel
    for recipe in recipes(kernel, TARGET, options):
        made = apply_recipe(recipe, func, TARGET)
        assert not isinstance(made, Refusal), f"{recipe}: {made.text()[-800:]}"
        yield recipe, finish(made, TARGET, options)


def close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Compare to 2e-5 of the output's scale in float32, NaN for NaN, integers exactly.

    In float64 to 1e-12, in float16 to 1e-2: the unscheduled kernel rounds every partial sum.

    Reductions here have at most 225 steps of values around 1, reordered.
    """
    if got.dtype.kind != "f":
        return np.array_equal(got, expected)
    scale = max(float(np.nanmax(np.abs(expected), initial=0.0)), 1.0)
    tolerance = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2}[got.dtype.name] * scale
    return np.allclose(got, expected, rtol=0, atol=tolerance, equal_nan=True)


__all__ = ["KERNELS", "SYMBOLIC", "Recipe"]
