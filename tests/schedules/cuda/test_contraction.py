"""What a contraction is read as, and how wide its operands may be read."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from schedules.cuda.contraction import read_contraction
from schedules.cuda.panels import contiguous_run, prefers_k_last, tiles_of, within
from tests.tir_passes.cases import KERNELS, SYMBOLIC, function, matmul, tensor
from tests.tir_passes.products import conv, product
from tvmpass.core.kernels import classify
from tvmpass.core.nest import as_int, stages


def contraction(func):
    kernel = classify(func)
    return read_contraction(next(part for part in stages(func) if part.name == kernel.anchor))


def sizes(joined) -> list:
    return [as_int(axis.size) for axis in joined.axes]


@pytest.mark.parametrize(
    ("name", "batch", "m", "n", "k"),
    [
        ("matmul", [], [13], [42], [20]),
        ("batched-transposed", [2], [6], [19], [8]),
        ("matmul-one-row", [], [1], [18], [7]),
        ("matmul-one-column", [2], [1], [9], [37]),
        ("conv-3x3", [], [2, 9, 7], [24], [3, 3, 5]),
        ("conv-nchw", [], [6], [1, 6, 19], [5, 3, 3]),
        ("conv-groups", [1, 2], [6, 6], [16], [3, 3, 4]),
    ],
)
def test_roles(name, batch, m, n, k):
    found = contraction(KERNELS[name][0]())
    assert (sizes(found.batch), sizes(found.m), sizes(found.n), sizes(found.k)) == (batch, m, n, k)


def test_channels_are_the_innermost_reduction_where_they_are_contiguous():
    names = [axis.var.name for axis in contraction(KERNELS["conv-3x3"][0]()).k.axes]
    assert names == ["v_ry", "v_rx", "v_rc"]
    names = [axis.var.name for axis in contraction(KERNELS["conv-nchw"][0]()).k.axes]
    assert names == ["v_rc", "v_ry", "v_rx"]


def test_symbolic_sizes():
    found = contraction(SYMBOLIC["conv-batch"][0]())
    assert sizes(found.m) == [None, 3, 7] or sizes(found.m)[0] is None
    assert as_int(found.m.size) is None and as_int(found.n.size) == 24


def test_half_precision_is_added_up_in_single():
    assert contraction(product(8, 8, 8, "bfloat16")).accumulator == "float32"
    assert contraction(matmul(8, 8, 8, "float64")).accumulator == "float64"


def test_a_reduction_that_does_not_start_at_zero_is_no_product():
    a, b, r = tensor("a", 4, 8), tensor("b", 8, 4), te.reduce_axis((0, 8), name="k")
    start = te.comm_reducer(lambda x, y: x + y, lambda dtype: tirx.const(1, dtype), name="start_at_one")
    c = te.compute((4, 4), lambda i, j: start(a[i, r] * b[r, j], axis=r), name="c")
    assert contraction(function(a, b, c)) is None


@pytest.mark.parametrize(
    ("n", "k", "trans_b", "runs", "k_last"),
    [
        (64, 32, False, (16, 16), False),
        (64, 32, True, (16, 1), True),
        (40, 24, False, (8, 8), False),
        (19, 7, False, (1, 1), False),
    ],
)
def test_runs_of_operands(n, k, trans_b, runs, k_last):
    found = contraction(product(16, n, k, trans_b=trans_b))
    along_n = contiguous_run(found, found.rhs, found.n)
    assert (contiguous_run(found, found.lhs, found.k), along_n) == runs
    assert prefers_k_last(found, "rhs") is k_last and prefers_k_last(found, "lhs")


def test_channels_of_a_window_are_read_as_vectors():
    found = contraction(conv(6, 6, 8, 16, 3))
    assert contiguous_run(found, found.lhs, found.k) == 8


def test_tiles_and_their_tails():
    n, position = te.var("n", "int32"), te.var("p", "int32")
    assert tiles_of(tirx.const(33, "int32"), 16) == 3
    assert str(tiles_of(n, 16)) == "(n + 15) // 16"
    assert within(position, tirx.const(32, "int32"), 16) == []
    assert [str(c) for c in within(position, tirx.const(33, "int32"), 16)] == ["p < 33"]
    assert len(within(position, n, 1)) == 1
