"""Shapes and bounds that are operands: known now, or computed when the program runs."""

from __future__ import annotations

import numpy as np
import pytest
from running import check, run, run_ops

from tvmpass.frontends.relay.errors import RelayError

X = np.arange(24, dtype="float32").reshape(4, 6)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [[3, -1, 2], [0, 6], [8, 3], [-1], [0, 0, 1], [4, 2, -1, 3]])
def test_reshape(shape, dtype):
    copied = [X.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    check("dyn.reshape(%x, %n)", {"x": X, "n": np.array(shape, dtype)}, X.reshape(copied))


@pytest.mark.parametrize(
    "old, asked, new",
    [
        ((2, 3, 4), [-3, 0], (6, 4)),
        ((2, 3, 4), [0, -3], (2, 12)),
        ((2, 3, 4), [-3, 2, -1], (6, 2, 2)),
        ((2, 3, 2, 2), [-3, -3], (6, 4)),
        ((1, 3, 4, 2), [1, -3, 0], (1, 12, 2)),
    ],
)
def test_reshape_merges_two_sizes(old, asked, new):
    x = np.arange(24, dtype="float32").reshape(old)
    check("dyn.reshape(%x, %n)", {"x": x, "n": np.array(asked)}, x.reshape(new))


def test_reshape_to_the_shape_of_another():
    other = np.ones((6, 4), "float32")
    check('add(dyn.reshape(%x, shape_of(%y, dtype="int64")), %y)', {"x": X, "y": other}, X.reshape(6, 4) + 1)


def test_reshape_by_an_unknown_size():
    text = """def @main(%x: Tensor[(?, 6), float32]) {
      %0 = shape_of(%x, dtype="int64");
      %1 = take(%0, 0i64, axis=0);
      nn.relu(dyn.reshape(%x, stack((%1, 2i64, 3i64))))
    }"""
    np.testing.assert_array_equal(run(text, X)[0], X.reshape(4, 2, 3))


def test_broadcast():
    column = X[:, :1].copy()
    shape = np.array([2, 4, 5])
    check("dyn.broadcast_to(%x, %n)", {"x": column, "n": shape}, np.broadcast_to(column, (2, 4, 5)))
    with pytest.raises(RelayError, match="not broadcast"):
        run_ops("dyn.broadcast_to(%x, %n)", {"x": X, "n": np.array([3])})


@pytest.mark.parametrize("reps", [[2], [2, 3], [2, 1, 3]])
def test_tile(reps):
    check("dyn.tile(%x, %n)", {"x": X, "n": np.array(reps)}, np.tile(X, reps))


def test_slices():
    begin, end, strides = np.array([1, -3]), np.array([4, 6]), np.array([2, 1])
    body = "dyn.strided_slice(%x, %b, %e, %s)"
    check(body, {"x": X, "b": begin, "e": end, "s": strides}, X[1:4:2, -3:])
    check(body, {"x": X, "b": begin[:1] + 2, "e": end[:1] - 9, "s": strides[:1] - 3}, X[::-1])
    sized = 'dyn.strided_slice(%x, %b, %e, %s, slice_mode="size")'
    check(sized, {"x": X, "b": begin[:1], "e": strides[:1], "s": strides[1:]}, X[1:3])
    check(sized, {"x": X, "b": begin[:1], "e": -strides[1:], "s": strides[1:]}, X[1:])
    known = "dyn.strided_slice(%x, stack((1i64, -3i64)), stack((4i64, 6i64)), stack((2i64, 1i64)))"
    check(known, {"x": X}, X[1:4:2, -3:])


def test_sizes_may_be_floats():
    two = np.array([2], "float32")
    check("dyn.tile(%x, %n)", {"x": X, "n": two}, np.tile(X, 2))
    check('dyn.topk(%x, %n, ret_type="values")', {"x": X, "n": two + 0.9}, X[:, :3:-1])


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    places = np.array([[0, 2, 5], [1, -1, 3]], "int32")
    for depth in (np.array(4), np.array([4], "int32")):
        body = f'dyn.one_hot(%i, 2f, -1f, %d, axis={axis}, dtype="float32")'
        met = np.moveaxis(places[..., None] == np.arange(4), -1, axis)
        check(body, {"i": places, "d": depth}, np.where(met, 2, -1).astype("float32"))


@pytest.mark.parametrize("k", [2, 6, 0, -1])
def test_topk(k):
    count = k if k > 0 else 6
    places = np.tile(np.arange(5, -1, -1), (4, 1))[:, :count]
    check(
        'let %a = dyn.topk(%x, %k, dtype="int64"); (%a.0, %a.1)',
        {"x": X, "k": np.array([k])},
        X[:, ::-1][:, :count],
        places,
    )


@pytest.mark.parametrize("body", ["add(%x, %y)", "where(less(%x, %x), %y, %y)", "maximum(%y, %x)"])
def test_an_open_size_beside_a_known_one_is_named(body):
    text = f"def @main(%x: Tensor[(?), float32], %y: Tensor[(3, 2), float32]) {{ {body} }}"
    with pytest.raises(RelayError, match=r"dim 0 of input 'x' is open and meets the size 2: give it a size"):
        run(text)
    x, y = np.ones(1, "float32"), np.ones((3, 2), "float32")
    assert run(text, x, y, shapes={"x": [1]})[0].shape == (3, 2)


@pytest.mark.parametrize(
    "rank, needed",
    [
        (1, r"it needs dim 0 of input 'x' and dim 0 of input 'y' to agree: give both a size"),
        (2, r"it needs some of dim 0 of input 'x', .* and dim 1 of input 'y' to agree: give them sizes"),
    ],
)
def test_open_sizes_that_must_agree_are_named(rank, needed):
    declared = ", ".join(f"%{name}: Tensor[({', '.join('?' * rank)}), float32]" for name in "xy")
    array = np.ones((2,) * rank, "float32")
    with pytest.raises(RelayError, match=needed):
        run(f"def @main({declared}) {{ add(%x, %y) }}", array, array)
