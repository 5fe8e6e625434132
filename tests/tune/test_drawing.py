"""Which arguments a kernel has, and what is drawn for them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script import tirx as T

from tests.tir_passes import cases
from tvmpass.tune.drawing import (
    INOUT,
    INPUT,
    OUTPUT,
    SCALAR,
    arguments_of,
    draw,
    index_bounds,
    item_bytes,
    scalar_operations,
    symbols_of,
    tolerance_scale,
)


def gather(rows: int = 10, dtype: str = "int64", compute=lambda i: i) -> tirx.PrimFunc:
    data = te.placeholder((rows, 4), name="data")
    index = te.placeholder((6,), dtype, name="index")
    made = te.compute((6, 4), lambda i, j: data[compute(index[i]), j], name="made")
    return te.create_prim_func([data, index, made])


def roles(function) -> list[str]:
    symbols = symbols_of(function)
    return [argument.role for argument in arguments_of(function, dict.fromkeys(symbols, 4))]


def test_sums_write_results_that_they_read():
    assert roles(cases.matmul(4, 5, 6, epilogue=False)) == [INPUT, INPUT, OUTPUT]


def test_a_result_that_is_read_first():
    @T.prim_func(s_tir=True)
    def grow(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("grow"):
                j = T.axis.spatial(8, i)
                y[j] = y[j] + x[j]

    assert roles(grow) == [INPUT, INOUT]
    drawn = draw(grow, arguments_of(grow, {}), "normal", 0)
    assert all(array is not None for array in drawn)


def test_symbolic_dimensions():
    n = te.var("n", "int64")
    x = te.placeholder((n, 3), name="x")
    y = te.compute((n * 2, 3), lambda i, j: x[i // 2, j], name="y")
    function = te.create_prim_func([x, y])
    (symbol,) = symbols_of(function)
    arguments = arguments_of(function, {symbol: 5})
    assert [argument.shape for argument in arguments] == [(5, 3), (10, 3)]
    assert scalar_operations(function, {symbol: 5}) == 30


def test_a_scalar_parameter():
    @T.prim_func(s_tir=True)
    def fill(y: T.handle, n: T.int64):
        out = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            with T.sblock("fill"):
                j = T.axis.spatial(n, i)
                out[j] = T.float32(1)

    arguments = arguments_of(fill, dict.fromkeys(symbols_of(fill), 7))
    assert [a.role for a in arguments] == [OUTPUT, SCALAR]
    assert arguments[0].shape == (7,) and arguments[1].value == 7


@pytest.mark.parametrize(
    ("compute", "bound"),
    [
        (lambda i: i, 10),
        (lambda i: tirx.max(i, tirx.const(0, "int64")), 10),
        (lambda i: tirx.Select(i < 0, i, i), 10),
        (lambda i: i * 2, 1),
        (lambda i: i + 3, 1),
    ],
)
def test_indices_stay_inside(compute, bound):
    function = gather(compute=compute)
    assert index_bounds(function) == {function.params[1]: bound}
    drawn = draw(function, arguments_of(function, {}), "normal", 0)
    assert drawn[1] is not None and drawn[1].min() >= 0 and drawn[1].max() < bound
    assert drawn[2] is None


def test_an_index_by_way_of_another_array_is_zero():
    data, index = te.placeholder((10, 4), name="data"), te.placeholder((6,), "int64", name="index")
    moved = te.compute((6,), lambda i: index[5 - i], name="moved")
    twice = te.compute((6,), lambda i: moved[i] + moved[0], name="twice")
    function = te.create_prim_func([data, index, te.compute((6, 4), lambda i, j: data[twice[i], j])])
    assert index_bounds(function) == {function.params[1]: 1}


def test_an_index_into_nothing_is_zero():
    drawn = draw(gather(rows=0), arguments_of(gather(rows=0), {}), "normal", 0)
    assert drawn[1] is not None and not drawn[1].any()


def test_drawing_is_deterministic_and_of_the_kind_asked_for():
    function = cases.matmul(4, 5, 6)
    arguments = arguments_of(function, {})
    first, again = (draw(function, arguments, "normal", 3)[0] for _ in range(2))
    assert first is not None and again is not None and np.array_equal(first, again)
    special = draw(function, arguments, "special", 3)[0]
    tame = draw(function, arguments, "tame", 3)[0]
    assert special is not None and np.isnan(special).any()
    assert tame is not None and tame.min() >= 0.5 and tame.max() <= 1.5


def test_bytes():
    assert [item_bytes(d) for d in ("bool", "int8", "float16", "bfloat16", "float32", "int64")] == [
        1,
        1,
        2,
        2,
        4,
        8,
    ]


def test_long_sums_may_differ_more():
    assert tolerance_scale(cases.matmul(4, 4, 4096)) == 1.0
    assert tolerance_scale(cases.matmul(4, 4, 4 * 4096)) == pytest.approx(2.0, abs=1e-9)
