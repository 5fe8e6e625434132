"""Operators that move elements, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import check, floats, refused, run

from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.operators.transform import new_shape
from tvmpass.frontends.relay.table import CannotConvert


@pytest.mark.parametrize(
    ("old", "asked", "new"),
    [
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (2, 0, 0), (2, 3, 4)),
        ((2, 3, 4), (6, 1, -1), (6, 1, 4)),
        ((2, 3, 4), (-1,), (24,)),
        ((2, 3, 4), (-2,), (2, 3, 4)),
        ((2, 3, 4), (2, -2), (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), (6, 4)),
        ((2, 3, 4, 5), (-3, -3), (6, 20)),
        ((2, 3, 4), (0, -3), (2, 12)),
        ((2, 3, 4), (-3, -2), (6, 4)),
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
        ((8, 3, 3, 3, 4, 4), (-4, 2, -1, -2), (2, 4, 3, 3, 3, 4, 4)),
        ((0, 4), (0, -1), (0, 4)),
        ((0, 3), (-1, 3), (0, 3)),
        ((), (1, 1), (1, 1)),
        ((1, 1), (), ()),
    ],
)
def test_special_sizes(old, asked, new):
    assert tuple(new_shape(list(old), list(asked), False)) == new


@pytest.mark.parametrize("asked", [(-1, -1), (0, 0, 0), (0, -3), (-4, -1, -1), (-4, 2), (5, -1), (-7,)])
def test_special_sizes_that_mean_nothing(asked):
    with pytest.raises(CannotConvert):
        new_shape([3, 2], list(asked), False)


def test_zero_is_a_size_where_it_is_allowed():
    assert new_shape([0, 3], [3, 0], True) == [3, 0]
    with pytest.raises(CannotConvert, match="0"):
        new_shape([0, 3], [0, -1], True)


def test_reshapes():
    x = floats(2, 3, 4)
    check(
        """(reshape(%x, newshape=[0, -3]), contrib_reverse_reshape(%x, newshape=[-1, 0]),
        reshape(%x, newshape=[0, 0, 0]), reshape(%s, newshape=[1]),
        reshape(%e, newshape=[3, 0], allowzero=True))""",
        {"x": x, "s": np.float32(7), "e": floats(0, 5)},
        x.reshape(2, 12),
        x.reshape(6, 4),
        x,
        np.full(1, 7, "float32"),
        floats(3, 0),
    )


def test_reshape_like():
    x, like = floats(1, 2, 3, 4), floats(6, 2, 2, 3)
    check(
        """%0 = reshape_like(%x, %y, lhs_begin=1, rhs_end=3);
        (%0, reshape_like(%x, %z), reshape_like(%x, %z, lhs_begin=-1, rhs_begin=-1))""",
        {"x": x, "y": like, "z": floats(2, 3, 4)},
        x.reshape(1, 6, 2, 2),
        x.reshape(2, 3, 4),
        x,
    )
    refused("reshape_like(%x, %y)", {"x": x, "y": floats(5)}, "no shape")


def test_reshape_with_unknown_sizes():
    x = floats(6, 4, 5)
    text = """def @main(%x: Tensor[(?, 4, 5), float32]) {
      (reshape(%x, newshape=[0, -1]), reshape(%x, newshape=[-1, 5]),
       reshape(%x, newshape=[-3, -4, 5, -1]),
       contrib_reverse_reshape(%x, newshape=[-1, 0]), squeeze(expand_dims(%x, axis=0), axis=[0]))
    }"""
    made = run(text, x)
    for one, shape in zip(made, [(6, 20), (24, 5), (24, 5, 1), (24, 5), (6, 4, 5)]):
        np.testing.assert_array_equal(one, x.reshape(shape))


def test_axes():
    x = floats(2, 1, 3, 1)
    check(
        """(transpose(%x, axes=[0, -1, 1, 2]), transpose(%x, axes=None), squeeze(%x), squeeze(%x, axis=[-1]),
        squeeze(%x, axis=[1, 3]), expand_dims(%x, axis=-1), expand_dims(%x, axis=-3, num_newaxis=2),
        expand_dims(%x, axis=4, num_newaxis=2), expand_dims(%s, axis=0),
        expand_dims(%x, axis=0, num_newaxis=0))""",
        {"x": x, "s": np.int64(3)},
        x.transpose(0, 3, 1, 2),
        x.T,
        x.reshape(2, 3),
        x.reshape(2, 1, 3),
        x.reshape(2, 3),
        x[..., None],
        x.reshape(2, 1, 1, 1, 3, 1),
        x[..., None, None],
        np.array([3]),
        x,
    )
    refused("squeeze(%x, axis=[0])", {"x": x}, "must be equal")
    refused("transpose(%x, axes=[0, 0, 1, 2])", {"x": x}, "once")
    refused("expand_dims(%x, axis=6)", {"x": x}, "out of range")


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16"])
def test_joins(dtype):
    x, y = floats(2, 3).astype(dtype), floats(2, 1).astype(dtype)
    check(
        """(concatenate((%x, %y, %x), axis=1), concatenate((%x, %x)), concatenate((%x,), axis=-1),
        stack((%x, %x), axis=-1), stack((%x, %x), axis=1), stack((%s, %s)), concatenate((%x, %e), axis=1))""",
        {"x": x, "y": y, "s": np.array(1, dtype), "e": np.zeros((2, 0), dtype)},
        np.concatenate([x, y, x], 1),
        np.concatenate([x, x]),
        x,
        np.stack([x, x], -1),
        np.stack([x, x], 1),
        np.stack([np.array(1, dtype)] * 2),
        x,
    )
    refused("concatenate((%x, %y))", {"x": x, "y": y}, "must be equal")
    refused("stack((%x, %y))", {"x": x, "y": y}, "must be equal")


def test_join_of_unknown_sizes():
    x = floats(3, 2)
    text = "def @main(%x: Tensor[(?, 2), float32]) { concatenate((%x, %x), axis=1) }"
    np.testing.assert_array_equal(run(text, x)[0], np.concatenate([x, x], 1))
    text = text.replace(") {", ", %y: Tensor[(?, 2), float32]) {").replace("(%x, %x)", "(%x, %y)")
    with pytest.raises(RelayError, match="--shape"):
        run(text, x, x)


def test_split():
    x = floats(6, 4)
    thirds, pieces = np.split(x, 3), np.split(x, [1, 3], 1)
    check(
        """let %a = split(%x, indices_or_sections=3);
        let %b = split(%x, indices_or_sections=[1i64, 3i64], axis=-1);
        let %c = split(%e, indices_or_sections=2);
        (%a.0, %a.2, %b.0, %b.1, %b.2, split(%x, indices_or_sections=1).0, %c.1)""",
        {"x": x, "e": floats(4, 0)},
        thirds[0],
        thirds[2],
        *pieces,
        x,
        floats(2, 0),
    )
    refused("split(%x, indices_or_sections=4)", {"x": x}, "equal parts")
    refused("split(%x, indices_or_sections=[3, 2])", {"x": x}, "do not rise")
    refused("split(%x, indices_or_sections=[2, 6])", {"x": x}, "do not rise")


def test_split_of_an_unknown_size():
    x = floats(6, 2)
    text = """def @main(%x: Tensor[(?, 2), float32]) {
      let %a = split(%x, indices_or_sections=3); let %b = split(%x, indices_or_sections=[2]);
      (add(%a.0, %a.2), %b.0, %b.1)
    }"""
    first, head, tail = run(text, x)
    np.testing.assert_array_equal(first, x[:2] + x[4:])
    np.testing.assert_array_equal(head, x[:2])
    np.testing.assert_array_equal(tail, x[2:])


def test_repetition():
    x = floats(2, 3)
    check(
        """(tile(%x, reps=[2]), tile(%x, reps=[2, 1, 2]), tile(%x, reps=[1, 1, 1]), tile(%s, reps=[3]),
        repeat(%x, repeats=2, axis=0), repeat(%x, repeats=3, axis=-1), repeat(%x, repeats=1, axis=1),
        reverse(%x, axis=0), reverse(%x, axis=-1), repeat(%e, repeats=2, axis=1))""",
        {"x": x, "s": np.int32(4), "e": floats(0, 2)},
        np.tile(x, 2),
        np.tile(x, (2, 1, 2)),
        x[None],
        np.full(3, 4, "int32"),
        np.repeat(x, 2, 0),
        np.repeat(x, 3, -1),
        x,
        x[::-1],
        x[:, ::-1],
        floats(0, 4),
    )
    refused("tile(%x, reps=[0])", {"x": x}, "positive")
    refused("repeat(%x, repeats=0, axis=0)", {"x": x}, "repeats is 0")


def test_repetition_of_unknown_sizes():
    x = floats(3, 2)
    text = """def @main(%x: Tensor[(?, 2), float32]) {
      (tile(%x, reps=[2, 3]), repeat(%x, repeats=2, axis=0),
       reverse(%x, axis=0), transpose(%x, axes=None))
    }"""
    made = run(text, x)
    for one, other in zip(made, [np.tile(x, (2, 3)), np.repeat(x, 2, 0), x[::-1], x.T]):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reverse_sequence(dtype):
    x = floats(4, 3, 2)
    lengths = np.array([0, 3, 9, 2], dtype)
    expected = x.copy()
    for row, length in enumerate(np.minimum(lengths, 3)):
        expected[row, :length] = x[row, :length][::-1]
    check("reverse_sequence(%x, %n)", {"x": x, "n": lengths}, expected)
    other = x.transpose(1, 2, 0).copy()
    check(
        "reverse_sequence(%x, %n, seq_axis=0, batch_axis=-1)",
        {"x": other, "n": lengths},
        expected.transpose(1, 2, 0),
    )


def test_broadcasts():
    x = floats(3, 1)
    check(
        "(broadcast_to(%x, shape=[2, 3, 4]), broadcast_to_like(%x, %y), broadcast_to(%x, shape=[3, 0]),"
        " broadcast_to(%s, shape=[2]))",
        {"x": x, "y": floats(3, 5), "s": np.float32(2)},
        np.broadcast_to(x, (2, 3, 4)),
        np.broadcast_to(x, (3, 5)),
        floats(3, 0),
        np.full(2, 2, "float32"),
    )
    refused("broadcast_to(%x, shape=[2, 4])", {"x": x}, "must be equal")


def test_forms_whose_shape_is_an_operand():
    x = floats(2, 3)
    text = """def @main(%x: Tensor[(2, 3), float32]) {
      let %n = stack((3i64, 2i64));
      (dyn.reshape(%x, %n), dyn.tile(%x, stack((2i64, 1i64))),
       dyn.broadcast_to(%x, shape_of(%x, dtype="int64")),
       dyn.expand_dims(%x, 1i64), dyn.squeeze(expand_dims(%x, axis=0), stack((0i64,))),
       dyn.topk(%x, 2i64, dtype="int64").0)
    }"""
    wanted = [x.reshape(3, 2), np.tile(x, (2, 1)), x, x[:, None], x, np.sort(x)[:, ::-1][:, :2]]
    for one, other in zip(run(text, x), wanted):
        np.testing.assert_array_equal(one, other)
