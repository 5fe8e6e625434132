"""Operators that create tensors, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import run, run_ops, same

from tvmpass.frontends.relay.errors import RelayError


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "bool", "int64"])
def test_filled_tensors(dtype):
    x = np.ones((2, 2), dtype)
    body = f"""(zeros(shape=[2, 3], dtype="{dtype}"), ones(shape=[], dtype="{dtype}"),
      full(1, shape=[0, 3], dtype="{dtype}"), full(1.5f, shape=[2], dtype="int32"),
      zeros_like(%x), ones_like(%x), full_like(%x, 1))"""
    same(
        run_ops(body, {"x": x}),
        *(np.zeros((2, 3), dtype), np.ones((), dtype), np.zeros((0, 3), dtype), np.ones(2, "int32")),
        *(np.zeros_like(x), x, x),
    )


def test_full_takes_the_dtype_of_its_value():
    same(run("def @main() { full(2.5f16, shape=[2, 2]) }"), np.full((2, 2), 2.5, "float16"))


def test_shapes_as_operands():
    text = """def @main(%shape: Tensor[(2), int64], %depth: int64, %i: Tensor[(2), int32], %v: float32) {
      (dyn.zeros(%shape, shape=None, dtype="float32"), dyn.ones(%shape, shape=None, dtype="int8"),
       dyn.full(%v, %shape, shape=None, dtype="float32"), dyn.one_hot(%i, 1f, 0f, %depth, dtype="float32"))
    }"""
    params = {"shape": np.array([2, 3]), "depth": np.array(4)}
    same(
        run(text, np.array([1, 3], "int32"), np.array(7, "float32"), params=params),
        *(np.zeros((2, 3), "float32"), np.ones((2, 3), "int8"), np.full((2, 3), 7, "float32")),
        np.eye(4, dtype="float32")[[1, 3]],
    )


def test_arange_rounds_each_step():
    tenth = np.float32(0.1)
    same(
        run("""def @main() {
          (arange(1, 11, 3, start=1, stop=11, step=3, dtype="int32"),
           arange(0f, 1f, 0.1f, start=0f, stop=1f, step=0.1f, dtype="float32"),
           arange(5i64, -3i64, -2i64, dtype="int64"), arange(0f, 70000f, 1f, dtype="float32"))
        }"""),
        np.arange(1, 11, 3, dtype="int32"),
        tenth * np.arange(10, dtype="float32"),
        np.arange(5, -3, -2),
        np.arange(70000, dtype="float32"),
    )


@pytest.mark.parametrize("bounds", [(2, 11, 3), (0, 0, 1), (5, -4, -2), (3, 1, 1), (-2, 3, 2)])
def test_arange_of_computed_bounds(bounds):
    operands = {name: np.array(bound, "int32") for name, bound in zip("abc", bounds)}
    (made,) = run_ops('arange(%a, %b, %c, dtype="int32")', operands)
    np.testing.assert_array_equal(made, np.arange(*bounds, dtype="int32"))


def test_sizes_computed_from_inputs():
    text = """def @main(%x: Tensor[(?, 3), float32], %n: Tensor[(2), int64]) {
      (dyn.full(2f, shape_of(%x, dtype="int64"), shape=None, dtype="float32"),
       dyn.zeros(%n, shape=None, dtype="int32"))
    }"""
    same(
        run(text, np.zeros((5, 3), "float32"), np.array([2, 4])),
        np.full((5, 3), 2, "float32"),
        np.zeros((2, 4), "int32"),
    )


def test_one_hot():
    i = np.array([[0, 2], [-1, 5]], "int32")
    met = i[..., None] == np.arange(4)
    far = i.astype("int8")[..., None] == np.arange(200)
    same(
        run_ops(
            """(one_hot(%i, 2f, -1f, depth=4, dtype="float32"),
            one_hot(%i, 2, -1, depth=4, axis=0, dtype="int32"),
            one_hot(cast(%i, dtype="int8"), 1, 0, depth=200, axis=1, dtype="int32"),
            one_hot(%i, %v, 0f, depth=4, dtype="float32"))""",
            {"i": i, "v": np.array(9, "float32")},
        ),
        np.where(met, 2, -1).astype("float32"),
        np.where(met, 2, -1).astype("int32").transpose(2, 0, 1),
        far.astype("int32").transpose(0, 2, 1),
        np.where(met, 9, 0).astype("float32"),
    )


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing):
    a, b, c = (np.arange(size, dtype="float32") for size in (2, 3, 4))
    scalar = np.array(5, "float32")
    same(
        run_ops(f'meshgrid((%a, %b, %c), indexing="{indexing}")', {"a": a, "b": b, "c": c}),
        *np.meshgrid(a, b, c, indexing=indexing),
    )
    same(
        run_ops(f'meshgrid((%s, %b), indexing="{indexing}")', {"s": scalar, "b": b}),
        *np.meshgrid(scalar, b, indexing=indexing),
    )


def test_meshgrid_of_nothing():
    a, b = np.zeros(0, "float32"), np.arange(3, dtype="float32")
    same(run_ops("meshgrid((%a, %b))", {"a": a, "b": b}), *np.meshgrid(a, b, indexing="ij"))


def test_shapes_as_values():
    x = np.zeros((3, 4), "float32")
    same(
        run_ops('(shape_of(%x, dtype="int64"), ndarray_size(%x, dtype="int32"))', {"x": x}),
        np.array([3, 4]),
        np.array(12, "int32"),
    )
    made = run(
        """def @main(%x: Tensor[(?, 4), float32]) {
          (shape_of(%x, dtype="int32"), ndarray_size(%x, dtype="int64"), full_like(%x, 2f))
        }""",
        x,
    )
    same(made, np.array([3, 4], "int32"), np.array(12), np.full_like(x, 2))


@pytest.mark.parametrize("upper", [True, False])
def test_trilu(upper):
    x = np.arange(24, dtype="int8").reshape(2, 3, 4)
    cut = np.triu if upper else np.tril
    known = ", ".join(f"trilu(%x, {k}, upper={upper})" for k in (-2, 0, 3))
    same(
        run_ops(f"({known}, trilu(%x, %k, upper={upper}))", {"x": x, "k": np.array(1, "int32")}),
        *(cut(x, k) for k in (-2, 0, 3, 1)),
    )


def test_matrix_set_diag():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    d = np.array([[7, 8, 9], [4, 5, 6]], "float32")
    one = x.copy()
    one[:, range(3), range(3)] = d
    bands = np.array([[0, 7, 8], [9, 9, 9], [4, 5, 0]], "float32")
    same(
        run_ops(
            """(matrix_set_diag(%x, %d, k1=0, k2=0), matrix_set_diag(%z, %bands, k1=-1, k2=1,
            super_diag_right_align=True, sub_diag_right_align=False))""",
            {"x": x, "d": d, "z": np.zeros((3, 3), "float32"), "bands": bands},
        ),
        one,
        np.array([[9, 7, 0], [4, 9, 8], [0, 5, 9]], "float32"),
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('arange(cast(%k, dtype="float32"), 3f, 1f, dtype="float32")', "bounds are not known"),
        ('arange(3, 3, 1, dtype="int32")', "empty"),
        ('arange(0, 3, 0, dtype="int32")', "step is 0"),
        ('one_hot(%k, 1, 0, depth=4, axis=2, dtype="int32")', "out of range"),
    ],
)
def test_refusals(body, why):
    with pytest.raises(RelayError, match=why):
        run_ops(body, {"k": np.array(1, "int32")})
