"""Recipes: text form, order and number, and their versions."""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path

import pytest
from tvm import te

import tir_passes
import tir_passes.recipes as recipe_module
from schedules import cpu
from tests.tir_passes.cases import KERNELS, OPTIONS, TARGET, function, tensor
from tir_passes.recipes import RECIPE_VERSION, Recipe, apply_recipe, parse_recipe, recipes
from tvmpass import core
from tvmpass.compile.target import parse_target
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import UsageError
from tvmpass.core.kernels import KINDS, classify
from tvmpass.core.options import Options

VERSIONS = Path(__file__).with_name("recipe_versions.json")

COMMON = (
    cpu.emit, cpu.finish, cpu.inline, cpu.loops, cpu.machine, cpu.vector_math,
    tir_passes.inline_neighbours, tir_passes.vectorize_inner, tir_passes.unroll_inner,
    tir_passes.parallelize_outer, tir_passes.decompose_reduction, tir_passes.vectorize_math,
    tir_passes.step.apply_step,
    recipe_module.apply_recipe, recipe_module.finish, core.nest, core.kernels,
)  # fmt: skip
TILED = (
    cpu.tile, cpu.injective, cpu.contraction, cpu.registers, cpu.padding,
    tir_passes.tiling, tir_passes.stage_padding, recipe_module._staging,
)  # fmt: skip
UNCOPIED = (
    tir_passes.inline_padding, tir_passes.skip_padding, cpu.window_rows,
    recipe_module.pads_image, recipe_module._ending,
)  # fmt: skip
ROWS = (cpu.rows, cpu.reducer, cpu.injective, tir_passes.tile_rows, recipe_module._rows)
FLAT = (cpu.injective, tir_passes.tile_elementwise, recipe_module._injective)
SOURCES = {
    "matmul": (*TILED, *ROWS, tir_passes.tile_matmul, recipe_module._contractions),
    "conv": (
        *TILED, *UNCOPIED, tir_passes.tile_conv,
        recipe_module._contractions, recipe_module._uncopied_conv,
    ),
    "depthwise": (
        *TILED, *UNCOPIED, tir_passes.tile_window, recipe_module._windows, recipe_module._uncopied,
        tir_passes.unroll_rows,
    ),
    "pool": (*TILED, tir_passes.tile_window, recipe_module._windows),
    "reduce": (
        *ROWS, cpu.tile, cpu.contraction, cpu.registers, tir_passes.tiling, tir_passes.tile_reduce,
        recipe_module._reductions,
    ),
    "norm-softmax": ROWS,
    "elementwise": FLAT,
    "movement": FLAT,
    "other": (),
}  # fmt: skip


def digest(kind: str) -> str:
    """Hash the source of everything that decides how a kind is scheduled."""
    text = "".join(inspect.getsource(part) for part in (*COMMON, *SOURCES[kind]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_recipe_prints_and_parses():
    text = "inline-neighbours tile-matmul{m=4,n=32} vectorize-inner unroll-inner{k=4} decompose-reduction"
    assert str(parse_recipe(text)) == text
    assert parse_recipe(" tile-matmul{m=6,n=64}  vectorize-inner ").steps == (
        tir_passes.TileMatmul(),
        tir_passes.VectorizeInner(),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile-matmull", "tile-matmul"),
        ("tile-matmul{q=3}", "q=3"),
        ("tile-matmul{m=x}", "m"),
        ("tile-matmul{m=3", "expected a step name"),
    ],
)
def test_wrong_text_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        parse_recipe(text)


@pytest.mark.parametrize("name", KERNELS)
def test_few_distinct_and_the_same_each_time(name):
    kernel = classify(KERNELS[name][0]())
    listed = recipes(kernel, TARGET, OPTIONS)
    assert 1 <= len(listed) <= 32 and len(set(listed)) == len(listed)
    assert listed == recipes(kernel, TARGET, OPTIONS)
    assert all(parse_recipe(str(recipe)) == recipe for recipe in listed)


def test_threads_and_switches():
    kernel = classify(KERNELS["matmul"][0]())
    assert "parallelize-outer" not in str(recipes(kernel, TARGET, Options(threads=1))[0])
    assert "parallelize-outer" in str(recipes(kernel, TARGET, Options(threads=4))[0])
    assert recipes(kernel, TARGET, Options(threads=1, tile="off")) == []
    plain = recipes(kernel, TARGET, Options(threads=1, unroll="off"))
    assert plain and not any("unroll" in str(recipe) for recipe in plain)


def test_narrow_vectors_for_narrow_machines():
    kernel = classify(KERNELS["matmul"][0]())
    best = recipes(kernel, parse_target("llvm:x86-64-v3", 1), OPTIONS)[0]
    assert [step.lanes for step in best.steps if isinstance(step, tir_passes.TileMatmul)] == [8]


def test_every_kind_has_a_version():
    assert set(RECIPE_VERSION) == set(KINDS) == set(SOURCES)


@pytest.mark.parametrize("kind", KINDS)
def test_moved_code_moves_the_version(kind):
    """Fails when code behind a kind's recipes changed and its RECIPE_VERSION did not.

    Then raise RECIPE_VERSION[kind] and write the new pair to recipe_versions.json.
    """
    known = json.loads(VERSIONS.read_text(encoding="utf-8"))
    assert known[kind] == {"version": RECIPE_VERSION[kind], "digest": digest(kind)}


def test_recipe_is_hashable():
    assert {Recipe(()): 1}[Recipe(())] == 1


def test_the_product_of_two_vectors_has_recipes():
    a, b, r = tensor("a", 33), tensor("b", 33), te.reduce_axis((0, 33), name="k")
    kernel = classify(function(a, b, te.compute((), lambda: te.sum(a[r] * b[r], axis=r), name="c")))
    made = recipes(kernel, TARGET, OPTIONS)
    assert kernel.kind == "reduce" and made
    assert not isinstance(apply_recipe(made[0], kernel.func, TARGET), Refusal)
