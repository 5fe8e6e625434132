"""The digests behind recipe versions cover all code that recipes run."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from tests.tir_passes import test_cuda_recipe_versions as cuda
from tests.tir_passes.cases import KERNELS, TARGET
from tests.tir_passes.test_recipes import COMMON, SOURCES
from tir_passes.recipes import recipes
from tvmpass.compile.target import parse_target
from tvmpass.core.kernels import KINDS, classify
from tvmpass.core.options import Options

ROOT = Path(__file__).parents[2]
THREADS = Options(threads=4)
OUTSIDE = frozenset(
    (
        "tir_passes.step",  # what of it runs is covered function by function
        "tir_passes.recipes",
        "tir_passes.cuda_fallback",  # schedules no candidate
        "schedules.cpu.pack",  # changes the kernel, and so its key
    )
)


def reached(modules) -> set[str]:
    """Return the modules of schedules and steps that ``modules`` reach by imports."""
    return {name for module in modules for name in cuda.behind(module)} - OUTSIDE


def steps(kind: str, target) -> set[str]:
    """Return the modules of all steps in the recipes of a kind's test kernels."""
    kernels = (classify(case[0]()) for case in KERNELS.values())
    listed = (recipe for k in kernels if k.kind == kind for recipe in recipes(k, target, THREADS))
    return {type(step).__module__ for recipe in listed for step in recipe.steps}


def covered(kind: str) -> set[str]:
    return {part.__name__ for part in (*COMMON, *SOURCES[kind]) if isinstance(part, types.ModuleType)}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_recipes_of_a_kind_run_is_in_its_digest(kind):
    """A missing module belongs into SOURCES of test_recipes.py."""
    assert reached(steps(kind, TARGET)) <= covered(kind)
    assert reached({"schedules.cpu.finish"}) <= covered(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_cuda_recipes_of_a_kind_run_is_in_their_digest(kind):
    without = () if kind in cuda.PRODUCTS else ("tir_passes.cuda_contractions",)
    digested = {*cuda.behind("tir_passes.cuda_recipes", without), "schedules.cuda.finish"}
    assert reached(steps(kind, parse_target("cuda:sm_80", 1))) <= digested
    assert reached({"schedules.cuda.finish"}) <= digested


def test_every_module_is_behind_some_version():
    every = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("schedules", "tir_passes")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    known = set().union(*map(covered, KINDS))
    known |= {"schedules.cuda.finish", *cuda.behind("tir_passes.cuda_contractions")}
    known |= set(cuda.behind("tir_passes.cuda_recipes"))
    assert every - known - OUTSIDE == set()
