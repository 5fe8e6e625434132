"""Every recipe of every kernel kind gives the values of the unscheduled kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from schedules.cpu import loops
from tests.tir_passes.cases import (
    KERNELS,
    OPTIONS,
    SYMBOLIC,
    TARGET,
    arguments,
    close,
    compile_all,
    function,
    matmul,
    run,
    scheduled,
    tensor,
)
from tir_passes.recipes import finish
from tvmpass.core.kernels import KINDS, classify
from tvmpass.core.options import Options


@pytest.mark.parametrize("name", KERNELS)
def test_every_recipe_is_right(name):
    make, _ = KERNELS[name]
    func = make()
    made = {f"recipe{i}": s for i, (_, s) in enumerate(scheduled(func))}
    assert made, "no recipe"
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), **made})
    arrays = arguments(func)
    expected = run(module, "plain", arrays)
    for key in made:
        assert close(run(module, key, arrays), expected), key


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_extents_are_right(name):
    make, _ = SYMBOLIC[name]
    func = make()
    made = {f"recipe{i}": s for i, (_, s) in enumerate(scheduled(func))}
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), **made})
    for size in (1, 2, 7, 35):
        arrays = arguments(func, {"n": size})
        expected = run(module, "plain", arrays)
        for key in made:
            assert close(run(module, key, arrays), expected), (key, size)


@pytest.mark.parametrize("name", [*KERNELS, *SYMBOLIC])
def test_threads_give_the_same_values(name, monkeypatch):
    """Even the smallest nest is shared here; the number of threads at run time may be one."""
    monkeypatch.setattr(loops, "PARALLEL_STEPS", 2)
    monkeypatch.setattr(loops, "PARALLEL_REDUCTION_STEPS", 2)
    func = {**KERNELS, **SYMBOLIC}[name][0]()
    (recipe, made), *_ = scheduled(func, options=Options(threads=2))
    assert "parallelize-outer" in str(recipe)
    module = compile_all({"plain": finish(func, TARGET, OPTIONS), "made": made})
    arrays = arguments(func, {"n": 5})
    assert close(run(module, "made", arrays), run(module, "plain", arrays))


def test_small_kernels_stay_on_one_thread():
    func = KERNELS["matmul"][0]()
    _, made = next(scheduled(func, options=Options(threads=2)))
    assert "T.parallel" not in made.script()
    _, made = next(scheduled(matmul(128, 256, 64), options=Options(threads=2)))
    assert "T.parallel" in made.script()


def test_nan_passes_through_every_recipe():
    func = KERNELS["nan-max"][0]()
    x = arguments(func)[0]
    x[1, 3] = x[2, 44] = x[4, 0] = np.nan
    for _, made in scheduled(func):
        got = run(compile_all({"made": made}), "made", [x, np.zeros(6, np.float32)])
        np.testing.assert_array_equal(got, np.max(x, axis=1))


def test_empty_reduction_leaves_its_start_value():
    func = SYMBOLIC["mean-reduced"][0]()
    for _, made in scheduled(func):
        got = run(
            compile_all({"made": made}), "made", [np.zeros((3, 0), np.float32), np.zeros((3, 1), np.float32)]
        )
        np.testing.assert_array_equal(got, np.zeros((3, 1), np.float32))


@pytest.mark.parametrize("name", [*KERNELS, *SYMBOLIC])
def test_kind_comes_from_the_access_pattern(name):
    make, kind = {**KERNELS, **SYMBOLIC}[name]
    kernel = classify(make())
    assert kernel.kind == kind and kind in KINDS
    assert kernel.static == (name in KERNELS)


def test_exponentials_of_bfloat16():
    x = tensor("x", 4, 33, dtype="bfloat16")
    wide = te.compute(x.shape, lambda *i: tirx.exp(x(*i).astype("float32")).astype("bfloat16"), name="y")
    made = finish(function(x, wide), TARGET, OPTIONS)
    built = tvm.compile(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), TARGET)
    given = np.linspace(-4, 4, 132).reshape(4, 33).astype(ml_dtypes.bfloat16)
    out = tvm.runtime.tensor(np.zeros_like(given))
    built["main"](tvm.runtime.tensor(given), out)
    np.testing.assert_allclose(out.numpy().astype("float32"), np.exp(given.astype("float32")), rtol=1e-2)
