"""Tiles chosen for products keep the limits and come in a fixed order."""

from __future__ import annotations

import pytest

from schedules.cuda.choices import block_tiles, warp_tiles
from schedules.cuda.vector_width import itemsize, vector_width
from tests.schedules.cuda.test_contraction import contraction
from tests.tir_passes.products import free, product
from tvmpass.core.cuda_arch import ARCHES
from tvmpass.core.nest import stages


@pytest.mark.parametrize("shape", [(128, 3072, 768), (37, 53, 19), (4096, 4096, 4096), (3, 1000, 512)])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_tiles_keep_the_limits(shape, arch):
    found = contraction(product(*shape))
    listed = warp_tiles(found, ARCHES[arch], 3)
    assert listed and listed == warp_tiles(found, ARCHES[arch], 3)
    for choice in listed:
        tile = choice.tile
        assert 1 <= choice.stages <= 3 and choice.warps.m * choice.warps.n <= 32
        assert (choice.stages - 1) * tile.k < shape[2]
        assert choice.stages * (tile.m + tile.n) * tile.k * 2 <= ARCHES[arch].shared_per_block


def test_large_products_get_large_tiles_and_small_ones_small_tiles():
    large = warp_tiles(contraction(product(4096, 4096, 4096)), ARCHES["sm_80"], 3)[0].tile
    small = warp_tiles(contraction(product(64, 64, 512)), ARCHES["sm_80"], 3)[0].tile
    assert (large.m, large.n) == (128, 128) and small.m * small.n <= 1024


def test_few_rows_get_low_tiles():
    assert block_tiles(contraction(product(6, 4096, 512, "float32")), ARCHES["sm_80"], 3)[0].tile.m <= 16


def test_symbolic_rows_are_taken_as_an_example():
    found = contraction(product(free(), 256, 256))
    assert warp_tiles(found, ARCHES["sm_80"], 3)


def test_vectors_follow_the_last_iterator():
    func = product(16, 64, 24, "float32")
    store = next(part for part in stages(func) if part.name == "halved").block
    var = store.iter_vars[-1].var
    assert vector_width(store, var, 64, 4) == 4
    assert vector_width(store, var, 6, 4) == 2
    assert vector_width(store, store.iter_vars[0].var, 16, 4) == 1


def test_itemsize():
    assert [itemsize(d) for d in ("float16", "bfloat16", "float32", "float64", "int8", "bool")] == [
        2, 2, 4, 8, 1, 1
    ]  # fmt: skip
