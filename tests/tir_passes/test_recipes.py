"""Recipes: text form, order and number, and their versions."""

from __future__ import annotations

import json
from pathlib import Path

import tir_passes
import tir_passes.recipes as recipe_module
from schedules import cpu
from tir_passes.recipes import RECIPE_VERSION, Recipe

VERSIONS = Path(__file__).with_name("recipe_versions.json")

COMMON = (
    cpu.emit, cpu.finish, cpu.inline, cpu.loops, cpu.machine, cpu.vector_math,
    tir_passes.step, tir_passes.inline_neighbours, tir_passes.vectorize_inner, tir_passes.unroll_inner,
    tir_passes.parallelize_outer, tir_passes.decompose_reduction,
)  # fmt: skip
TILED = (
    cpu.tile, cpu.injective, cpu.contraction, cpu.registers, cpu.padding,
    tir_passes.tiling, tir_passes.stage_padding, recipe_module._staging,
)  # fmt: skip
ROWS = (cpu.rows, cpu.reducer, cpu.injective, tir_passes.tile_rows, recipe_module._rows)
FLAT = (cpu.injective, tir_passes.tile_elementwise, recipe_module._injective)
SOURCES = {
    "matmul": (*TILED, tir_passes.tile_matmul, recipe_module._contractions),
    "conv": (*TILED, tir_passes.tile_conv, recipe_module._contractions),
    "depthwise": (*TILED, tir_passes.tile_window, recipe_module._windows),
    "pool": (*TILED, tir_passes.tile_window, recipe_module._windows),
    "reduce": (*ROWS, cpu.tile, tir_passes.tiling, tir_passes.tile_reduce, recipe_module._reductions),
    "norm-softmax": ROWS,
    "elementwise": FLAT,
    "movement": FLAT,
    "other": (),
}


def digest(kind: str) -> str:
    """Hash the source of everything that decides how a kind is scheduled."""
    known = json.loads(VERSIONS.read_text(encoding="utf-8"))
    assert known[kind] == {"version": RECIPE_VERSION[kind], "digest": digest(kind)}


def test_recipe_is_hashable():
    assert {Recipe(()): 1}[Recipe(())] == 1
