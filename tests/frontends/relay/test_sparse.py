"""Sparse operators against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
from running import run, run_ops, type_of

from tvmpass.frontends.relay.errors import RelayError


def rows_of(dense: np.ndarray) -> dict[str, np.ndarray]:
    """Return the compressed rows of a matrix."""
    rows, columns = np.nonzero(dense)
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    return {"d": dense[rows, columns], "i": columns.astype("int32"), "p": starts.astype("int32")}


def blocks_of(dense: np.ndarray, height: int, width: int) -> dict[str, np.ndarray]:
    """Return the compressed rows of a matrix's blocks that are not 0."""
    n, k = dense.shape
    blocks = dense.reshape(n // height, height, k // width, width).transpose(0, 2, 1, 3)
    used = np.abs(blocks).sum((2, 3)) != 0
    rows, columns = np.nonzero(used)
    starts = np.concatenate([[0], np.cumsum(used.sum(1))])
    return {"d": blocks[rows, columns], "i": columns.astype("int32"), "p": starts.astype("int32")}


def sparse(shape: tuple[int, int], block=(1, 1)) -> np.ndarray:
    """Return a matrix of which most is 0, one row of blocks wholly."""
    generator = np.random.default_rng(5)
    used = generator.random((shape[0] // block[0], shape[1] // block[1])) < 0.5
    used[1] = False
    return (generator.standard_normal(shape) * np.kron(used, np.ones(block))).astype("float32")


def both_ways(body: str, operands: dict, constants: dict) -> list[list[np.ndarray]]:
    """Return the outputs with the sparse matrix as inputs, and as constants."""
    everything = {**operands, **constants}
    params = ", ".join(f"%{name}: {type_of(array)}" for name, array in everything.items())
    known = run(f"def @main({params}) {{ {body} }}", *operands.values(), params=constants, level=0)
    return [run_ops(body, everything), known]


@pytest.mark.parametrize("block", [None, (2, 4), (3, 1)])
def test_sparse_dense(block):
    w = sparse((6, 8), block or (1, 1))
    x = np.random.default_rng(6).standard_normal((3, 8)).astype("float32")
    stored = blocks_of(w, *block) if block else rows_of(w)
    body = "(nn.sparse_dense(%x, %d, %i, %p), nn.sparse_dense(%x, %d, %i, %p, sparse_lhs=True))"
    for right, left in both_ways(body, {"x": x}, stored):
        np.testing.assert_allclose(right, x @ w.T, 1e-5, 1e-5)
        np.testing.assert_allclose(left, w @ x.T, 1e-5, 1e-5)


def test_absent_elements_are_no_factors():
    x = np.array([[np.inf, 1], [np.nan, 2]], "float32")
    w = np.array([[0, 3]], "float32")
    (made,) = run_ops("nn.sparse_dense(%x, %d, %i, %p)", {"x": x, **rows_of(w)})
    np.testing.assert_array_equal(made, [[3], [6]])


@pytest.mark.parametrize("block", [None, (2, 4)])
def test_an_unknown_number_of_rows(block):
    w = sparse((6, 8), block or (1, 1))
    x = np.random.default_rng(6).standard_normal((3, 8)).astype("float32")
    stored = blocks_of(w, *block) if block else rows_of(w)
    params = ", ".join(f"%{name}: {type_of(array)}" for name, array in stored.items())
    text = f"def @main(%x: Tensor[(?, 8), float32], {params}) {{ nn.sparse_dense(%x, %d, %i, %p) }}"
    (made,) = run(text, x, params=stored)
    np.testing.assert_allclose(made, x @ w.T, 1e-5, 1e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sparse_conv2d(layout):
    w = sparse((6, 8), (2, 4))
    image = np.random.default_rng(6).standard_normal((2, 3, 5, 8)).astype("float32")
    filtered = image @ w.T
    if layout == "NCHW":
        image, filtered = (np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (image, filtered))
    body = f'nn.sparse_conv2d(%x, %d, %i, %p, layout="{layout}", kernel_size=[1, 1])'
    (made,) = run_ops(body, {"x": image, **blocks_of(w, 2, 4)})
    np.testing.assert_allclose(made, filtered, 1e-5, 1e-5)


def test_sparse_add_and_transpose():
    w, x = sparse((7, 7)), np.ones((7, 7), "float32")
    body = """let %t = nn.sparse_transpose(%d, %i, %p);
    (nn.sparse_add(%x, %d, %i, %p), %t.0, %t.1, %t.2)"""
    turned = rows_of(np.ascontiguousarray(w.T))
    for total, *parts in both_ways(body, {"x": x}, rows_of(w)):
        np.testing.assert_allclose(total, x + w, 1e-6, 1e-6)
        for part, expected in zip(parts, turned.values()):
            assert part.dtype == expected.dtype
            np.testing.assert_array_equal(part, expected)


def test_sparse_to_dense():
    made = run_ops(
        """(sparse_to_dense(%i, %v, 0f, output_shape=[5]), sparse_to_dense(%p, %w, 2, output_shape=[2, 3]),
        sparse_to_dense(2, 4f, 0f, output_shape=[3]), sparse_to_dense(%q, 4f, 1f, output_shape=[3]))""",
        {
            "i": np.array([1, 3, 1, -1, 5], "int32"),
            "v": np.array([3, 7, 9, 5, 5], "float32"),
            "p": np.array([[0, 0], [1, 2]], "int64"),
            "w": np.array([1, 5], "int32"),
            "q": np.array([1, 2], "int32"),
        },
    )
    expected = [[0, 9, 0, 7, 0], [[1, 2, 2], [2, 2, 5]], [0, 0, 4], [1, 4, 4]]
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("known", [True, False])
def test_sparse_reshape(known):
    places = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]], "int32")
    shapes = {"a": np.array([2, 3, 6], "int32"), "b": np.array([9, -1], "int32")}
    text = """def @main(%x: Tensor[(5, 3), int32], %a: Tensor[(3), int32], %b: Tensor[(2), int32]) {
      let %r = sparse_reshape(%x, %a, %b); (%r.0, %r.1)
    }"""
    made = run(text, places, params=shapes) if known else run(text, places, *shapes.values())
    flat = places @ np.array([18, 6, 1])
    assert made[0].dtype == made[1].dtype == np.int32
    np.testing.assert_array_equal(made[0], np.stack(np.divmod(flat, 4), 1))
    np.testing.assert_array_equal(made[1], [9, 4])


@pytest.mark.parametrize("new", [[500, 20], [500, -1]])
def test_sparse_reshape_to_the_same_shape_leaves_coordinates(new):
    places = np.array([[0, 100], [200, 19], [300, 400]])
    text = """def @main(%x: Tensor[(3, 2), int64], %a: Tensor[(2), int64], %b: Tensor[(2), int64]) {
      let %r = sparse_reshape(%x, %a, %b); (%r.0, %r.1)
    }"""
    made = run(text, places, np.array([500, 20]), np.array(new))
    np.testing.assert_array_equal(made[0], places)
    np.testing.assert_array_equal(made[1], [500, 20])


def test_sparse_fill_empty_rows():
    operands = {
        "x": np.array([[0, 1], [2, 3], [2, 4]]),
        "v": np.array([1, 3, 4]),
        "s": np.array([4, 5]),
        "f": np.array([10]),
    }
    params = ", ".join(f"%{name}: {type_of(array)}" for name, array in operands.items())
    text = f"def @main({params}) {{ sparse_fill_empty_rows(%x, %v, %s, %f) }}"
    places, values, empty = run(text, params=operands)
    np.testing.assert_array_equal(places, [[0, 1], [1, 0], [2, 3], [2, 4], [3, 0]])
    np.testing.assert_array_equal(values, [1, 10, 3, 4, 10])
    np.testing.assert_array_equal(empty, [0, 1, 0, 1])
    with pytest.raises(RelayError, match="run time only"):
        run_ops("sparse_fill_empty_rows(%x, %v, %s, %f)", operands)


def test_filters_larger_than_one_element_are_refused():
    with pytest.raises(RelayError, match="larger than 1 by 1"):
        run_ops(
            "nn.sparse_conv2d(%x, %d, %i, %p, kernel_size=[3, 3])",
            {"x": np.zeros((1, 3, 3, 8), "float32"), **blocks_of(sparse((6, 8), (2, 4)), 2, 4)},
        )
