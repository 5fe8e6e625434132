"""Reductions against numpy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import running
from running import run, run_ops

from tvmpass.frontends.relay.errors import RelayError

SHAPE = (2, 3, 4)
AXES = [
    ("", (0, 1, 2)),
    ("axis=[1]", (1,)),
    ("axis=1", (1,)),
    ("axis=[-1, 0]", (0, 2)),
    ("axis=[1], exclude=True", (0, 2)),
    ("axis=[0, -1], exclude=True", (1,)),
]


def call(name: str, attrs: str, keepdims: bool, operands: str = "%x", more: str = "") -> str:
    stated = ", ".join(part for part in (attrs, "keepdims=True" if keepdims else "", more) if part)
    return f"{name}({operands}{', ' if stated else ''}{stated})"


check = partial(running.check, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("attrs", "axes"), AXES)
def test_sums_means_and_extremes(attrs, axes, keepdims):
    generator = np.random.default_rng(1)
    x = generator.standard_normal(SHAPE).astype("float32")
    i = generator.integers(-100, 100, SHAPE).astype("int8")
    b = generator.random(SHAPE) > 0.2
    names = [call(name, attrs, keepdims) for name in ("sum", "prod", "max", "min", "mean")]
    names += [call(name, attrs, keepdims, "%i") for name in ("sum", "max", "mean")]
    names += [call(name, attrs, keepdims, "%b") for name in ("all", "any", "sum", "max", "min")]
    how = {"axis": axes, "keepdims": keepdims}
    total = i.sum(**how, dtype="int8")
    count = int(np.prod([SHAPE[axis] for axis in axes]))
    check(
        f"({', '.join(names)})",
        {"x": x, "i": i, "b": b},
        *(x.sum(**how), x.prod(**how), x.max(**how), x.min(**how), x.mean(**how)),
        # Sums of bytes wrap, and the mean is the wrapped sum divided.
        *(total, i.max(**how), np.trunc(total / count).astype("int8")),
        *(b.all(**how), b.any(**how), b.any(**how), b.any(**how), b.all(**how)),
    )


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("attrs", "axes"), AXES)
def test_variance_takes_the_mean(attrs, axes, keepdims):
    x = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    mean = x.mean(axes, keepdims=True)
    check(
        f"({call('variance', attrs, keepdims, '%x, %m')}, "
        f"{call('variance', attrs, keepdims, '%x, %m', 'unbiased=True')})",
        {"x": x, "m": mean},
        *(x.var(axes, keepdims=keepdims, ddof=unbiased) for unbiased in (0, 1)),
    )


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("attrs", "axes"), AXES)
def test_indices_of_extremes(attrs, axes, keepdims):
    x = np.random.default_rng(4).integers(0, 3, SHAPE).astype("float32")
    kept = [axis for axis in range(3) if axis not in axes]
    flat = x.transpose(*kept, *axes).reshape([SHAPE[axis] for axis in kept] + [-1])
    shape = [1 if axis in axes else SHAPE[axis] for axis in range(3)] if keepdims else flat.shape[:-1]

    def expected(function, last: bool):
        index = flat.shape[-1] - 1 - function(flat[..., ::-1], -1) if last else function(flat, -1)
        return index.astype("int32").reshape(shape)

    check(
        "("
        + ", ".join(
            call(name, attrs, keepdims, more="select_last_index=True" if last else "")
            for name in ("argmax", "argmin")
            for last in (False, True)
        )
        + ")",
        {"x": x},
        *(expected(function, last) for function in (np.argmax, np.argmin) for last in (False, True)),
    )


def test_nothing_to_reduce_is_the_value_itself():
    x, scalar = np.ones(SHAPE, "float32"), np.array(3, "float32")
    check(
        "(sum(%x, axis=[0, 1, 2], exclude=True), mean(%s), max(%s), prod(%s))",
        {"x": x, "s": scalar},
        *(x, scalar, scalar, scalar),
    )


def test_empty_axes():
    x, b = np.zeros((0, 3), "float32"), np.zeros((0, 3), "bool")
    check(
        "(sum(%x, axis=[0]), prod(%x, axis=[0]), max(%x, axis=[0]), all(%b, axis=[0]), any(%b, axis=[0]))",
        {"x": x, "b": b},
        *(x.sum(0), x.prod(0), np.full(3, -np.inf, "float32"), b.all(0), b.any(0)),
    )


def test_half_floats_are_summed_wider():
    x = np.full((2, 4096), 1.5, "float16")
    mean = np.ones((2, 1), "float16")
    check(
        "(mean(%x, axis=[1]), variance(%x, %m, axis=[1]))",
        {"x": x, "m": mean},
        *(np.full(2, 1.5, "float16"), np.full(2, 0.25, "float16")),
    )


def test_many_truth_values_do_not_wrap():
    check("(sum(%b), any(%b))", {"b": np.ones(256, "bool")}, np.array(True), np.array(True))


def test_unknown_sizes():
    x = np.random.default_rng(1).standard_normal((5, 3)).astype("float32")
    text = """def @main(%x: Tensor[(?, 3), float32], %i: Tensor[(?, 3), int32]) {
      (mean(%i, axis=[0]), variance(%x, mean(%x, axis=[0], keepdims=True), axis=[0], unbiased=True),
       argmax(%x, select_last_index=True), argmin(%x, axis=[0, 1], keepdims=True))
    }"""
    i = np.arange(15, dtype="int32").reshape(5, 3)
    made = run(text, x, i, shapes={"x": ("n", 3), "i": ("n", 3)})
    np.testing.assert_array_equal(made[0], i.sum(0) // 5)
    np.testing.assert_allclose(made[1], x.var(0, ddof=1), 1e-5, 1e-5)
    assert made[2] == x.argmax() and made[3].tolist() == [[x.argmin()]]


def test_collapse_sum():
    x = np.arange(24, dtype="float32").reshape(SHAPE)
    text = """def @main(%x: Tensor[(2, 3, 4), float32], %like: Tensor[(1, 4), float32],
                  %shape: Tensor[(3), int32]) {
      (collapse_sum_like(%x, %like), collapse_sum_like(%x, %x), collapse_sum_to(%x, %shape))
    }"""
    made = run(text, x, np.zeros((1, 4), "float32"), params={"shape": np.array([2, 1, 4], "int32")})
    for one, other in zip(made, (x.sum((0, 1), keepdims=True)[0], x, x.sum(1, keepdims=True))):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, 1e-6, 0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sum(%x, axis=[3])", "out of range"),
        ("sum(%x, exclude=True)", "exclude"),
        ("all(%x)", "bool"),
        ("argmax(%x, axis=[0, 1, 2], exclude=True)", "no axes"),
        ('collapse_sum_like(%x, ones(shape=[5], dtype="float32"))', "collapse"),
    ],
)
def test_refusals(body, why):
    with pytest.raises(RelayError, match=why):
        run_ops(body, {"x": np.ones(SHAPE, "float32")})
