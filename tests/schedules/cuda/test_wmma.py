"""Tensor-core intrinsics are made when asked for, each once."""

from __future__ import annotations

import pytest
from tvm import s_tir

from schedules.cuda import wmma


@pytest.mark.parametrize("dtype", wmma.DTYPES)
@pytest.mark.parametrize("row_major", [True, False])
@pytest.mark.parametrize("side", ["a", "b"])
def test_loads(dtype, side, row_major):
    name = wmma.load(dtype, side, row_major)
    assert name == wmma.load(dtype, side, row_major)
    made = s_tir.TensorIntrin.get(name)
    layout = "row_major" if row_major else "col_major"
    assert layout in made.impl.script() and f"wmma.matrix_{side}" in made.desc.script()


def test_products_name_the_order_of_their_operands():
    names = {wmma.multiply("bfloat16", "float32", a, b) for a in (True, False) for b in (True, False)}
    assert len(names) == 4
    assert all("tvm_mma_sync" in s_tir.TensorIntrin.get(name).impl.script() for name in names)


def test_sums_start_at_zero_and_are_stored():
    assert "tvm_fill_fragment" in s_tir.TensorIntrin.get(wmma.fill("float32")).impl.script()
    assert "tvm_store_matrix_sync" in s_tir.TensorIntrin.get(wmma.store("float32")).impl.script()
