"""Products in several dtypes and orders of operands, with what they should give in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
from tvm import te, tirx, topi

from tests.tir_passes.cases import function, tensor

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def product(m, n, k, dtype="float16", batch=None, trans_a=False, trans_b=False) -> tirx.PrimFunc:
    """Return ``(a @ b + bias) * 0.5``, with a leading batch dimension if ``batch`` is given."""
    lead = () if batch is None else (batch,)
    a = tensor("a", *lead, *((k, m) if trans_a else (m, k)), dtype=dtype)
    b = tensor("b", *lead, *((n, k) if trans_b else (k, n)), dtype=dtype)
    bias, r = tensor("bias", n, dtype=dtype), te.reduce_axis((0, k), name="k")

    def term(*at):
        *z, i, j = at
        left = a(*z, r, i) if trans_a else a(*z, i, r)
        return left * (b(*z, j, r) if trans_b else b(*z, r, j))

    c = te.compute((*lead, m, n), lambda *at: te.sum(term(*at), axis=r), name="c")
    added = te.compute(c.shape, lambda *at: c(*at) + bias[at[-1]], name="added")
    half = tirx.const(0.5, dtype)
    return function(a, b, bias, te.compute(c.shape, lambda *at: added(*at) * half, name="halved"))


def expected_product(arrays, trans_a=False, trans_b=False) -> np.ndarray:
    """Return what `product` should give, in float64."""
    a, b, bias = (np.asarray(x, np.float64) for x in arrays[:3])
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    return (left @ right + bias) * 0.5


def conv(h, w, ci, co, k, dtype="float16", stride=1, pad=0, layout="NHWC") -> tirx.PrimFunc:
    """Return a convolution with a bias, padding as a stage of its own."""
    bias = tensor("bias", co, dtype=dtype)
    if layout == "NHWC":
        x, weight = tensor("x", 1, h, w, ci, dtype=dtype), tensor("w", k, k, ci, co, dtype=dtype)
        out = topi.nn.conv2d_nhwc(x, weight, stride, pad, 1, out_dtype=dtype)
        return function(
            x, weight, bias, te.compute(out.shape, lambda *at: out(*at) + bias[at[3]], name="added")
        )
    x, weight = tensor("x", 1, ci, h, w, dtype=dtype), tensor("w", co, ci, k, k, dtype=dtype)
    out = topi.nn.conv2d_nchw(x, weight, stride, pad, 1, out_dtype=dtype)
    return function(x, weight, bias, te.compute(out.shape, lambda *at: out(*at) + bias[at[1]], name="added"))


def expected_conv(arrays, stride=1, pad=0, layout="NHWC") -> np.ndarray:
    """Return what `conv` should give, in float64."""
    x, weight, bias = (np.asarray(a, np.float64) for a in arrays[:3])
    if layout == "NCHW":
        x, weight = x.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0)
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    k = weight.shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))[:, ::stride, ::stride]
    out = np.einsum("bijcyx,yxco->bijo", windows, weight) + bias
    return out.transpose(0, 3, 1, 2) if layout == "NCHW" else out


def depthwise(h, w, c, dtype="float16") -> tirx.PrimFunc:
    """Return a padded 3x3 depthwise convolution, channels last."""
    x, weight = tensor("x", 1, h, w, c, dtype=dtype), tensor("w", 3, 3, c, dtype=dtype)
    zero = tirx.const(0, dtype)
    y = te.compute(
        (1, h + 2, w + 2, c),
        lambda b, i, j, o: tirx.if_then_else(
            tirx.all(i >= 1, i < h + 1, j >= 1, j < w + 1), x[b, i - 1, j - 1, o], zero
        ),
        name="pad",
    )
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    out = te.compute(
        (1, h, w, c),
        lambda b, i, j, o: te.sum(y[b, i + ry, j + rx, o] * weight[ry, rx, o], axis=[ry, rx]),
        name="out",
    )
    return function(x, weight, out)


def expected_depthwise(arrays) -> np.ndarray:
    """Return what `depthwise` should give, in float64."""
    x, weight = (np.asarray(a, np.float64) for a in arrays[:2])
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("bijcyx,yxc->bijc", windows, weight)


def transposed_after(m, n, k) -> tirx.PrimFunc:
    """Return ``(a @ b).T + 1``: what follows reads the product in another order."""
    a, b, r = tensor("a", m, k), tensor("b", k, n), te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    one = tirx.const(1.0, "float32")
    return function(a, b, te.compute((n, m), lambda i, j: c[j, i] + one, name="turned"))


def all_results(m, n, k) -> tirx.PrimFunc:
    """Return a product whose scaled operand, sums and rounded sums are all results."""
    a, b, r = tensor("a", m, k), tensor("b", k, n), te.reduce_axis((0, k), name="k")
    two = tirx.const(2.0, "float32")
    scaled = te.compute((m, k), lambda i, j: a[i, j] * two, name="scaled")
    c = te.compute((m, n), lambda i, j: te.sum(scaled[i, r] * b[r, j], axis=r), name="c")
    return function(a, b, scaled, c, te.compute((m, n), lambda i, j: c[i, j] + two, name="more"))


def int8_product(m, n, k) -> tirx.PrimFunc:
    """Return ``a @ b`` of int8 numbers, added up in int32."""
    a, b = tensor("a", m, k, dtype="int8"), tensor("b", k, n, dtype="int8")
    r = te.reduce_axis((0, k), name="k")
    wide = lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r)
    return function(a, b, te.compute((m, n), wide, name="c"))


def free(name: str = "n") -> tvm.tirx.Var:
    """Return an extent that is known at run time only."""
    return te.var(name, "int32")
