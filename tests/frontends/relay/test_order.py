"""Operators that depend on order, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import check, run_ops

from tvmpass.frontends.relay.errors import RelayError

SORTED = ["float32", "float64", "int32", "int64", "int8", "uint8", "bool", "float16"]


def data(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few distinct values: the order of equal ones is seen."""
    return np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)


def stable_order(x: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    """Return positions in order, equal elements as they come."""
    x = x.astype("float64")
    return np.argsort(x if ascending else -x, axis, kind="stable")


@pytest.mark.parametrize("dtype", SORTED)
def test_sorting(dtype):
    x = data((3, 7), dtype)
    rise, fall = stable_order(x, 1, True), stable_order(x, 0, False)
    check(
        """(sort(%x), sort(%x, axis=0, is_ascend=False), argsort(%x, dtype="int32"),
        argsort(%x, axis=-2, is_ascend=False, dtype="int64"), argsort(%x, dtype="float32"))""",
        {"x": x},
        np.sort(x, -1),
        np.take_along_axis(x, fall, 0),
        rise.astype("int32"),
        fall,
        rise.astype("float32"),
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_topk(dtype):
    x = data((4, 6), dtype)
    fall, rise = stable_order(x, 1, False), stable_order(x, 0, True)
    check(
        """let %a = topk(%x, k=3, dtype="int32");
        let %b = topk(%x, k=-1, axis=0, is_ascend=True, dtype="int64");
        (%a.0, %a.1, %b.0, %b.1, topk(%x, k=1, ret_type="values"),
        topk(%x, k=2, axis=0, ret_type="indices", is_ascend=True, dtype="int32"))""",
        {"x": x},
        np.take_along_axis(x, fall, 1)[:, :3],
        fall[:, :3].astype("int32"),
        np.take_along_axis(x, rise, 0),
        rise,
        np.take_along_axis(x, fall, 1)[:, :1],
        rise[:2].astype("int32"),
    )
    with pytest.raises(RelayError, match="no 7 largest"):
        run_ops("topk(%x, k=7).0", {"x": x})


def test_sorting_nothing():
    x = np.zeros((2, 0), "float32")
    check('(sort(%x), argsort(%x, dtype="int32"))', {"x": x}, x, x.astype("int32"))


def test_what_is_not_sorted():
    with pytest.raises(RelayError, match="uint64 is not sorted"):
        run_ops("sort(%x)", {"x": np.zeros(3, "uint64")})
    with pytest.raises(RelayError, match="scalar"):
        run_ops("sort(%x)", {"x": np.float32(3)})


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_running_sums_and_products(dtype):
    x = data((3, 4), dtype)
    shifted = np.concatenate([np.zeros((3, 1), dtype), np.cumsum(x, 1, dtype=dtype)[:, :-1]], 1)
    check(
        """(cumsum(%x, axis=1), cumsum(%x, axis=-1, exclusive=True), cumsum(%x), cumprod(%x, axis=0),
        cumsum(%x, axis=0, dtype="int64"), cumprod(%x, axis=0, exclusive=True))""",
        {"x": x},
        np.cumsum(x, 1, dtype=dtype),
        shifted,
        np.cumsum(x, dtype=dtype),
        np.cumprod(x, 0, dtype=dtype),
        np.cumsum(x, 0, dtype="int64"),
        np.concatenate([np.ones((1, 4), dtype), np.cumprod(x, 0, dtype=dtype)[:-1]]),
    )


def test_running_sum_of_bool_and_of_nothing():
    x = data((5,), "bool")
    with pytest.raises(RelayError, match="dtype bool"):
        run_ops("cumsum(%x, axis=0)", {"x": x})
    check(
        '(cumsum(%x, axis=0, dtype="int32"), cumsum(%e, axis=0))',
        {"x": x, "e": np.zeros((0, 2), "float32")},
        np.cumsum(x, dtype="int32"),
        np.zeros((0, 2), "float32"),
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(dtype, right):
    ordered = np.sort(data((3, 9), dtype), -1)
    values = data((3, 4), dtype)
    side = "right" if right else "left"
    rows = [np.searchsorted(a, b, side) for a, b in zip(ordered, values)]
    stated = ", right=True" if right else ""
    check(
        f"""(searchsorted(%a, %v{stated}), searchsorted(%o, %v{stated}, dtype="int64"))""",
        {"a": ordered, "v": values, "o": ordered[0].copy()},
        np.stack(rows).astype("int32"),
        np.searchsorted(ordered[0], values, side).astype("int64"),
    )


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "uint8"])
@pytest.mark.parametrize("length", [1, 9])
def test_unique(dtype, length):
    x = data((length,), dtype)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    made = run_ops("unique(%x)", {"x": x})
    count = len(values)
    assert made[3].tolist() == [count] and len(made) == 4
    np.testing.assert_array_equal(made[0][:count], values)
    np.testing.assert_array_equal(made[1], [*first, *[length] * (length - count)])
    np.testing.assert_array_equal(made[2], inverse)
    made = run_ops("unique(%x, sorted=False, return_counts=True)", {"x": x})
    order = np.argsort(first)
    np.testing.assert_array_equal(made[0][:count], values[order])
    np.testing.assert_array_equal(made[1], [*first[order], *[length] * (length - count)])
    np.testing.assert_array_equal(made[2], np.argsort(order)[inverse])
    np.testing.assert_array_equal(made[4][:count], counts[order])
    assert [str(one.dtype) for one in made] == [dtype, "int32", "int32", "int32", "int32"]
