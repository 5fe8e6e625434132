"""Products of Relay: which operand is transposed, in which dtype sums are kept, packed weights."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from running import converted

from tvmpass.core.errors import TvmpassError

RNG = np.random.default_rng(11)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


check = partial(running.check, rtol=1e-5, atol=1e-5)


def test_dense_transposes_its_weight():
    x, w = normal(3, 4), normal(5, 4)
    check("(nn.dense(%x, %w, units=None), nn.dense(%x, %w, units=5))", {"x": x, "w": w}, x @ w.T, x @ w.T)


def test_integers_wrap_where_no_wider_dtype_is_stated():
    x, w = (RNG.integers(-128, 128, shape).astype("int8") for shape in ((3, 8), (5, 8)))
    exact = x.astype("int32") @ w.astype("int32").T
    check(
        '(nn.dense(%x, %w, units=None, out_dtype="int32"), nn.dense(%x, %w, units=None))',
        {"x": x, "w": w},
        exact,
        exact.astype("int8"),
        rtol=0,
    )


def test_operands_of_two_dtypes():
    x = RNG.integers(0, 256, (3, 8)).astype("uint8")
    w = RNG.integers(-128, 128, (5, 8)).astype("int8")
    check(
        'nn.dense(%x, %w, units=None, out_dtype="int32")',
        {"x": x, "w": w},
        x.astype("int32") @ w.astype("int32").T,
        rtol=0,
    )


def test_sums_of_halves_in_single_precision():
    x, w = normal(3, 8).astype("float16"), normal(5, 8).astype("float16")
    check(
        'nn.dense(%x, %w, units=None, out_dtype="float32")',
        {"x": x, "w": w},
        x.astype("float32") @ w.astype("float32").T,
    )


@pytest.mark.parametrize("transpose_a", [True, False])
@pytest.mark.parametrize("transpose_b", [True, False])
def test_matmul_and_batch_matmul_transpose_as_stated(transpose_a, transpose_b):
    a, b = normal(3, 4), normal(4, 5)
    c, d = normal(2, 3, 4), normal(1, 4, 5)
    flags = f"transpose_a={transpose_a}, transpose_b={transpose_b}"
    check(
        f"(nn.matmul(%a, %b, units=5, {flags}), nn.batch_matmul(%c, %d, {flags}))",
        {
            "a": a.T.copy() if transpose_a else a,
            "b": b.T.copy() if transpose_b else b,
            "c": c.transpose(0, 2, 1).copy() if transpose_a else c,
            "d": d.transpose(0, 2, 1).copy() if transpose_b else d,
        },
        a @ b,
        c @ d,
    )


def test_batch_matmul_without_flags_transposes_nothing():
    a, b = normal(2, 3, 3), normal(2, 3, 3)
    check("nn.batch_matmul(%a, %b)", {"a": a, "b": b}, a @ b)


def test_old_batch_matmul_is_told_by_its_shapes():
    a, b = normal(2, 3, 4), normal(2, 5, 4)
    check("nn.batch_matmul(%a, %b)", {"a": a, "b": b}, a @ b.transpose(0, 2, 1))


def test_weights_in_blocks_of_units():
    x, w = normal(3, 4), normal(6, 4)
    blocks = w.reshape(3, 2, 4).transpose(0, 2, 1).copy()
    check('nn.contrib_dense_pack(%x, %w, units=6, weight_layout="NC2n")', {"x": x, "w": blocks}, x @ w.T)


def test_a_batch_that_is_not_known():
    mod = converted(
        "def @main(%x: Tensor[(?, 4), float32], %w: Tensor[(5, 4), float32]) { nn.dense(%x, %w, units=None) }"
    )
    assert int(mod["main"].ret_ty.shape[1]) == 5


def test_contradicting_units_are_refused():
    with pytest.raises(TvmpassError, match="units=6, but the weight makes 5"):
        converted(
            "def @main(%x: Tensor[(3, 4), float32], %w: Tensor[(5, 4), float32])"
            " { nn.dense(%x, %w, units=6) }"
        )


def test_batches_that_may_differ_are_refused():
    with pytest.raises(TvmpassError, match="the batches of the operands must be equal"):
        converted(
            "def @main(%a: Tensor[(?, 3, 4), float32], %b: Tensor[(2, 4, 5), float32])"
            " { nn.batch_matmul(%a, %b) }"
        )
