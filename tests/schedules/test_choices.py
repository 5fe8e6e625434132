"""Tiles and blocks chosen from extents alone."""

from __future__ import annotations

import pytest

from schedules.cpu.contraction import find_axes, row_block
from schedules.cpu.emit import vector_lanes
from schedules.cpu.registers import VECTOR_REGISTERS, contraction_tiles, window_tiles
from schedules.cpu.rows import row_axes
from tests.tir_passes.cases import KERNELS
from tvmpass.core.kernels import classify
from tvmpass.core.nest import stages


@pytest.mark.parametrize(("size", "lanes"), [(1, 1), (3, 2), (10, 8), (16, 16), (6625, 16), (None, 1)])
def test_vectors_fit_and_are_powers_of_two(size, lanes):
    assert vector_lanes(size, 16) == lanes


def test_register_tiles_fit_in_registers():
    for tile in contraction_tiles(196, 24, 384, 16):
        assert tile.m * tile.vectors + tile.vectors < VECTOR_REGISTERS
    best = contraction_tiles(196, 24, 384, 16)[0]
    assert best.m * best.vectors >= 16, "too few sums to hide the latency of a multiply-add"


def test_window_tiles_exist_for_any_window():
    assert window_tiles(1, 1, 49, 7, 16)[0].m == 1
    assert window_tiles(80, 15, 25, 5, 16)[0].vectors == 1


def test_row_blocks_divide_and_fit():
    assert row_block(12, 1000) in (4, 6, 12)
    assert row_block(20, 1000) == 10
    assert row_block(7, 1000) == 7
    assert row_block(640, 300_000) == 2


@pytest.mark.parametrize(
    ("name", "n", "m", "row"),
    [
        ("matmul", 1, (0,), None),
        ("batched", 2, (1,), None),
        ("conv-1x1", 3, (1, 2), None),
        ("conv-3x3", 3, (2,), 1),
        ("conv-nchw", 3, (1,), None),
        ("depthwise", 3, (2,), 1),
    ],
)
def test_axes_come_from_the_access_pattern(name, n, m, row):
    func = KERNELS[name][0]()
    anchor = next(stage for stage in stages(func) if stage.name == classify(func).anchor)
    axes = find_axes(anchor)
    assert (axes.n, axes.m, axes.row) == (n, m, row)


@pytest.mark.parametrize(("name", "rows"), [("softmax", 1), ("layer-norm", 1), ("softmax-channels", 1)])
def test_rows_shared_by_all_stages(name, rows):
    assert row_axes(stages(KERNELS[name][0]())) == rows
