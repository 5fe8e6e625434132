"""The versions of CUDA recipes move with the code behind them."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
from pathlib import Path

import pytest

from tir_passes import recipes, step
from tir_passes.cuda_recipes import CUDA_RECIPE_VERSION
from tvmpass.core.kernels import KINDS

VERSIONS = Path(__file__).with_name("recipe_versions.json")
ROOT = Path(__file__).parents[2]
PACKAGES = ("schedules", "tir_passes")
PRODUCTS = ("matmul", "conv", "depthwise")
SHARED = ("tir_passes.step", "tir_passes.recipes")
"""What is common to all steps and changes no code that they make."""


def imported(module: str) -> set[str]:
    """Return the modules of our rule packages that a module imports, by full name."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    package = module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = [package] * bool(node.level) + [node.module] * bool(node.module)
            name = ".".join(parts)
            inner = {f"{name}.{alias.name}" for alias in node.names}
            found |= {name, *inner} if name.split(".")[0] in PACKAGES else set()
    return {name for name in found if ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()}


def behind(root: str, without: tuple[str, ...] = ()) -> list[str]:
    """Return every module that ``root`` reaches by imports, sorted."""
    seen: set[str] = set()
    todo = [root]
    while todo:
        module = todo.pop()
        if module not in seen and module not in (*SHARED, *without):
            seen.add(module)
            todo.extend(imported(module))
    return sorted(seen)


def digest(kind: str) -> str:
    """Hash the source of everything that decides how a kind is scheduled for CUDA."""
    contractions, others = "tir_passes.cuda_contractions", "tir_passes.cuda_recipes"
    # A product of a tensor with itself, as in a norm, gets the recipes of sums.
    modules = behind(others) if kind in PRODUCTS else behind(others, without=(contractions,))
    modules = [*modules, "schedules.cuda.finish", "tvmpass.core.nest", "tvmpass.core.kernels"]
    text = "".join(inspect.getsource(importlib.import_module(name)) for name in modules)
    text += "".join(map(inspect.getsource, (recipes.apply_recipe, recipes.finish, step.apply_step)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_every_kind_has_a_version():
    assert set(CUDA_RECIPE_VERSION) == set(KINDS)


def test_all_of_a_family_is_covered():
    assert {"schedules.cuda.group", "tir_passes.tile_row_threads"} <= set(behind("tir_passes.cuda_recipes"))
    assert "tir_passes.tile_blocks" in behind("tir_passes.cuda_contractions")


@pytest.mark.parametrize("kind", KINDS)
def test_moved_code_moves_the_version(kind):
    """Fails when code behind a kind's CUDA recipes changed and its version did not.

    Then raise CUDA_RECIPE_VERSION[kind] and write the new pair to
    recipe_versions.json, under "cuda".
    """
    known = json.loads(VERSIONS.read_text(encoding="utf-8"))["cuda"]
    assert known[kind] == {"version": CUDA_RECIPE_VERSION[kind], "digest": digest(kind)}
