"""Operators that read and write by index, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import check, floats, refused, run


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_take(dtype):
    x = floats(4, 5, 3)
    index = np.array([[0, 7, 2], [3, 1, 9]], dtype)
    if dtype.startswith("int"):
        index[1, 1] = -2
    check(
        """(take(%x, %i, axis=1), take(%x, %i, axis=-1, mode="wrap"), take(%x, %i),
        take(%x, %i, mode="wrap"), take(%x, %s, axis=0), take(%x, %s, axis=2, mode="fast"))""",
        {"x": x, "i": index, "s": np.array(2, dtype)},
        np.take(x, index, 1, mode="clip"),
        np.take(x, index, 2, mode="wrap"),
        np.take(x, index, mode="clip"),
        np.take(x, index, mode="wrap"),
        x[2],
        x[:, :, 2],
    )


def test_take_by_narrow_indices_of_a_long_axis():
    x = floats(300)
    index = np.array([0, 127, -5], "int8")
    check(
        '(take(%x, %i, axis=0), take(%x, %i, mode="wrap"))',
        {"x": x, "i": index},
        x[[0, 127, 0]],
        x[[0, 127, 295]],
    )


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_take_with_batch_axes(index_dtype):
    x = floats(2, 3, 5, 4)
    one = np.array([[0, 4, 9], [2, -1, 1]], index_dtype)
    two = np.array([[[0, 9]] * 3, [[1, 2]] * 3], index_dtype)
    clipped = np.clip(one, 0, 4)
    check(
        """(take(%x, %i, axis=2, batch_dims=1), take(%x, %j, axis=2, batch_dims=2),
        take(%x, %j, axis=3, batch_dims=1), take(%x, %k, axis=1, batch_dims=1))""",
        {"x": x, "i": one, "j": two, "k": np.array([2, 0], index_dtype)},
        np.stack([np.take(x[b], clipped[b], 1) for b in range(2)]),
        np.stack([[np.take(x[b, c], np.clip(two[b, c], 0, 4), 0) for c in range(3)] for b in range(2)]),
        np.stack([np.take(x[b], np.clip(two[b], 0, 3), 2) for b in range(2)]),
        np.stack([x[0, 2], x[1, 0]]),
    )
    refused('take(%x, %i, axis=2, batch_dims=1, mode="wrap")', {"x": x, "i": one}, "wrap")
    refused("take(%x, %i, axis=0, batch_dims=1)", {"x": x, "i": one}, "batch_dims")


def test_take_without_elements():
    x = floats(4, 3)
    check("take(%x, %i, axis=0)", {"x": x, "i": np.zeros((2, 0), "int32")}, np.zeros((2, 0, 3), "float32"))
    refused("take(%x, %i, axis=0)", {"x": floats(0, 3), "i": np.zeros(2, "int32")}, "has none")
    refused("take(%x, %i, axis=0)", {"x": x, "i": floats(2)}, "indices of dtype float32")


def test_take_of_unknown_sizes():
    x, index = floats(5, 3), np.array([[0, 4], [9, -1]])
    text = """def @main(%x: Tensor[(?, 3), float32], %i: Tensor[(?, 2), int64]) {
      (take(%x, %i, axis=0), take(%x, %i, axis=1))
    }"""
    for one, axis in zip(run(text, x, index), (0, 1)):
        np.testing.assert_array_equal(one, np.take(x, index, axis, mode="clip"))


def test_gather():
    x = floats(3, 4, 2)
    index = np.random.default_rng(0).integers(0, 4, (3, 7, 2))
    check(
        "(gather(%x, %i, axis=1), gather(%x, %j, axis=-1))",
        {"x": x, "i": index, "j": index[:, :4, :1].astype("int32") % 2},
        np.take_along_axis(x, index, 1),
        np.take_along_axis(x, index[:, :4, :1] % 2, 2),
    )
    refused("gather(%x, %i, axis=1)", {"x": x, "i": index[:2]}, "must be equal")


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_gather_nd(dtype):
    x = floats(3, 4, 2)
    index = np.array([[[0, 2], [1, 1]], [[3, 0], [2, 2]]])
    check(
        "(gather_nd(%x, %i), gather_nd(%x, %j))",
        {"x": x, "i": index.astype(dtype), "j": np.array([[2, 1]]).astype(dtype)},
        x[index[0], index[1]],
        x[[2, 1]],
    )


def test_gather_nd_with_batch_axes():
    x = floats(2, 3, 4, 5)
    index = np.array([[[0, 2, 1], [1, 1, 2]], [[3, 0, 1], [2, 2, 0]]])
    check(
        "(gather_nd(%x, %i, batch_dims=1, index_rank=2), gather_nd(%x, %j, batch_dims=2))",
        {"x": x, "i": index, "j": index[:1, :, :]},
        np.stack([x[b, index[0, b], index[1, b]] for b in range(2)]),
        np.stack([[x[b, c, index[0, b, c]] for c in range(3)] for b in range(2)]),
    )
    refused("gather_nd(%x, %i)", {"x": floats(3), "i": index}, "index tuples")


def test_advanced_index():
    x = floats(4, 5, 2)
    one, two = np.array([[0], [3]]), np.array([1, 4, 2])
    check(
        "(adv_index((%x, %i, %j)), adv_index((%x, %j)))",
        {"x": x, "i": one, "j": two},
        x[one, two],
        np.take(x, two, 0, mode="clip"),
    )
    refused("adv_index((%x, %i, %j))", {"x": x, "i": np.zeros(2, int), "j": two}, "must be equal")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_unravel_index(dtype):
    index, shape = np.array([22, 41, 37], dtype), np.array([7, 6], dtype)
    expected = np.stack(np.unravel_index(index, shape)).astype(dtype)
    check(
        "(unravel_index(%i, %n), unravel_index(%s, %n))",
        {"i": index, "n": shape, "s": np.array(40, dtype)},
        expected,
        np.array([6, 4], dtype),
    )


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("length_dtype", ["int32", "int64", "float32"])
def test_sequence_mask(dtype, length_dtype):
    x, lengths = floats(4, 3, 2).astype(dtype), np.array([1, 0, 4], length_dtype)
    rows = np.arange(4)[:, None, None] < lengths[None, :, None]
    columns = np.arange(3)[None, :, None] < np.array([2, 3, 0, 1])[:, None, None]
    check(
        "(sequence_mask(%x, %n, mask_value=-7f), sequence_mask(%x, %m, axis=1))",
        {"x": x, "n": lengths, "m": np.array([2, 3, 0, 1], length_dtype)},
        np.where(rows, x, np.array(-7, dtype)),
        np.where(columns, x, np.array(0, dtype)),
    )


def test_invert_permutation():
    x = np.array([3, 4, 0, 2, 1], "int32")
    check("invert_permutation(%x)", {"x": x}, np.argsort(x).astype("int32"))


def test_argwhere_of_what_is_known():
    check("argwhere(stack((0, 2, 0, 3)))", {}, np.array([[1], [3]], "int32"))


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (2, 3)), ("bool", (7,)), ("int8", (3, 4, 2))])
def test_argwhere(dtype, shape):
    x = np.random.default_rng(2).integers(0, 2, shape).astype(dtype)
    places = np.argwhere(x).astype("int32")
    check(
        "let %w = argwhere(%x); (%w, add(%w, %w), argwhere(%n), argwhere(%e))",
        {"x": x, "n": np.zeros(shape, dtype), "e": np.zeros((0, 2), dtype)},
        places,
        places * 2,
        np.zeros((0, len(shape)), "int32"),
        np.zeros((0, 2), "int32"),
    )
    refused("argwhere(%x)", {"x": np.float32(1)}, "no positions")


def test_elements_where_a_condition_holds():
    x = floats(4, 5)
    body = "gather_nd(%x, transpose(argwhere(greater(%x, 4f)), axes=[1, 0]))"
    check(body, {"x": x}, x[x > 4])


def scattered(x, index, updates, axis, function):
    made = x.copy()
    for place in np.ndindex(index.shape):
        at = list(place)
        at[axis] = index[place]
        made[tuple(at)] = function(made[tuple(at)], updates[place])
    return made


FUNCTIONS = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("reduction", list(FUNCTIONS))
def test_scatter_elements(reduction):
    x, updates = floats(3, 4), floats(3, 4)[::-1] * 2 + 1
    index = np.array([[0, 1, 1, -1], [2, 2, 2, 2], [3, 0, 1, 2]])
    if reduction == "update":
        index[0], index[1] = [0, 3, 1, -2], [3, 1, 2, 0]
    expected = scattered(x, index, updates, 1, FUNCTIONS[reduction])
    stated = "" if reduction == "update" else f', reduction="{reduction}"'
    check(f"scatter_elements(%x, %i, %u, axis=1{stated})", {"x": x, "i": index, "u": updates}, expected)


def test_scatter_of_older_releases():
    x, updates = floats(3, 4), floats(1, 4)
    index = np.array([[2, 0, 1, 2]], "int32")
    check(
        "(scatter(%x, %i, %u, axis=0), scatter_add(%x, %i, %u, axis=0))",
        {"x": x, "i": index, "u": updates},
        scattered(x, index, updates, 0, FUNCTIONS["update"]),
        scattered(x, index, updates, 0, FUNCTIONS["add"]),
    )


@pytest.mark.parametrize("mode", ["update", "add", "mul", "min", "max"])
def test_scatter_nd(mode):
    x = floats(4, 3, 2)
    index = np.array([[0, 2, 0], [1, 2, 2]], "int32")
    updates = floats(3, 2) * 3
    expected = x.copy()
    for n in range(3):
        at = tuple(index[:, n])
        expected[at] = [FUNCTIONS[mode](a, b) for a, b in zip(expected[at], updates[n])]
    stated = "" if mode == "update" else f', mode="{mode}"'
    check(f"scatter_nd(%x, %i, %u{stated})", {"x": x, "i": index, "u": updates}, expected)


def test_scatters_that_are_refused():
    x, index = np.zeros((3, 4), "int32"), np.zeros((3, 4), "int32")
    refused('scatter_elements(%x, %i, %x, reduction="mean")', {"x": x, "i": index}, "a mean of int32")
    refused('scatter_elements(%x, %i, %x, reduction="sub")', {"x": x, "i": index}, "not known")
    refused("scatter_nd(%x, %i, %i)", {"x": x, "i": np.zeros((3, 2), "int32")}, "index tuples")
