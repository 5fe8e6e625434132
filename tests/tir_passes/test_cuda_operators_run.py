"""Emitted CUDA of every recipe, run on the CPU, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir_passes.cases import KERNELS, SYMBOLIC, arguments, close, compile_all, run
from tests.tir_passes.cases import OPTIONS as CPU_OPTIONS
from tests.tir_passes.cases import TARGET as CPU
from tests.tir_passes.operators import OPERATORS, OPTIONS, TARGET, assert_close
from tir_passes.cuda_fallback import cuda_fallback
from tir_passes.recipes import apply_recipe, finish, recipes
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.cuda_toolchain import compile_units, find_nvcc
from tvmpass.core.decision import Refusal
from tvmpass.core.kernels import classify
from tvmpass.testing.cuda_emulator import emulate

pytestmark = pytest.mark.slow

OURS = ("elementwise", "movement", "reduce", "norm-softmax", "pool")


def sources(func, limit=None):
    """Yield every recipe of ``func`` with its emitted CUDA."""
    for recipe in recipes(classify(func), TARGET, OPTIONS)[:limit]:
        made = apply_recipe(recipe, func, TARGET)
        assert not isinstance(made, Refusal), f"{recipe}: {made.text()}"
        yield str(recipe), emit_cuda(finish(made, TARGET, OPTIONS), TARGET, "kernel")


def poisoned(func) -> np.ndarray:
    """Return an output array filled with what no kernel writes."""
    shape = [int(dim) for dim in func.params[-1].shape]
    dtype = str(func.params[-1].dtype)
    if dtype == "bfloat16":
        return np.full(shape, 0x7FC0, "uint16")
    return np.full(shape, np.nan if "float" in dtype else 77 if dtype != "bool" else 1, dtype)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_recipe_is_right(name):
    case = OPERATORS[name]
    func = case.function()
    made = list(sources(func))
    assert made
    for special in (False, True):
        arrays = case.arrays(special)
        expected = case.expected(arrays)
        given = [a.view("uint16") if str(a.dtype) == "bfloat16" else a for a in arrays]
        # NaN and infinities take the same way through every recipe's reducers: the first two show it.
        for recipe, source in made[:2] if special else made:
            result = emulate(source, [*given, poisoned(func)], orders=2)
            assert result.stable, recipe
            got = result.arrays[-1]
            assert_close(got.view(arrays[0].dtype) if got.dtype == "uint16" else got, expected)


@pytest.mark.parametrize("name", [n for n in SYMBOLIC if SYMBOLIC[n][1] in OURS])
def test_symbolic_extents(name):
    func = SYMBOLIC[name][0]()
    plain = compile_all({"plain": finish(func, CPU, CPU_OPTIONS)})
    for recipe, source in sources(func):
        for size in (1, 2, 7, 35, 0):
            arrays = arguments(func, {"n": size})
            expected = run(plain, "plain", arrays)
            arrays[-1] = np.full_like(arrays[-1], np.nan)
            assert close(emulate(source, arrays, orders=2).arrays[-1], expected), (recipe, size)


@pytest.mark.parametrize("name", [n for n in KERNELS if KERNELS[n][1] in OURS])
def test_the_fallback_is_right(name):
    func = KERNELS[name][0]()
    arrays = arguments(func)
    expected = run(compile_all({"plain": finish(func, CPU, CPU_OPTIONS)}), "plain", arrays)
    made, _ = cuda_fallback(func, TARGET)
    arrays[-1] = np.full_like(arrays[-1], np.nan)
    assert close(emulate(emit_cuda(made, TARGET, "kernel"), arrays, orders=2).arrays[-1], expected)


@pytest.mark.parametrize(
    "name", ["add-half", "add-brain", "transpose", "argmax-long", "softmax", "layer-norm", "max-pool"]
)
def test_nvidia_compiles_it_without_spills(name):
    func = OPERATORS[name].function()
    ((recipe, source),) = sources(func, limit=1)
    units = compile_units({name: source.source}, ("sm_80", "sm_90"), nvcc=find_nvcc())
    for kernel, by_arch in units[name].resources.items():
        for arch, used in by_arch.items():
            assert used.spill_bytes == 0 and used.stack_bytes == 0, (recipe, kernel, arch)
            assert used.registers <= 64, (recipe, kernel, arch)
