"""The emitted CUDA of products gives the values of float64, whatever the thread order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tir_passes
from schedules.cuda import frame
from tests.tir_passes.cases import KERNELS, SYMBOLIC, arguments, compile_all, matmul, run
from tests.tir_passes.products import (
    NUMPY,
    all_results,
    conv,
    depthwise,
    expected_conv,
    expected_depthwise,
    expected_product,
    int8_product,
    product,
    transposed_after,
)
from tests.tir_passes.test_cuda_products import NAMES, TARGET, listed
from tir_passes.recipes import Recipe, apply_recipe
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.cuda_toolchain import compile_units, find_nvcc
from tvmpass.core.decision import Refusal
from tvmpass.testing.cuda_emulator import emulate

pytestmark = pytest.mark.slow

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2, "int32": 0.0}
"""Of the largest value: sums of up to 200 products in single precision, up to two roundings to half."""


def close(got, expected, dtype: str) -> bool:
    expected = np.asarray(expected, np.float64)
    difference = np.abs(np.asarray(got, np.float64) - expected)
    return bool(difference.max() <= TOLERANCE[dtype] * np.abs(expected).max())


def emulated(func, recipe, arrays) -> np.ndarray:
    """Run a recipe's CUDA in three thread orders and return its output."""
    made = apply_recipe(recipe, func, TARGET)
    assert not isinstance(made, Refusal), f"{recipe}: {made.text()[-500:]}"
    given = [a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for a in map(np.array, arrays)]
    result = emulate(emit_cuda(made, TARGET, "kernel"), [*given[:-1], np.zeros_like(given[-1])])
    assert result.stable
    return result.arrays[-1].view(arrays[-1].dtype)


def numbers(func, dtype: str, sizes=None) -> list[np.ndarray]:
    """Return small random arrays in ``dtype``."""
    rng = np.random.default_rng(1)
    shapes = [[int(d) if not hasattr(d, "name") else sizes[d.name] for d in p.shape] for p in func.params]
    return [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_recipes_are_right(name):
    func = {**KERNELS, **SYMBOLIC}[name][0]()
    for size in (5, 35) if name in SYMBOLIC else (0,):
        arrays = arguments(func, {"n": size})
        wide = run(compile_all({"plain": func}), "plain", arrays)
        dtype = str(func.params[-1].dtype)
        for recipe in listed(func)[:2]:
            got = emulated(func, recipe, arrays)
            if dtype == "float16":  # the plain kernel rounds every partial sum
                assert np.abs(got - wide).max() <= 1e-2 * np.abs(wide).max(), str(recipe)
            else:
                assert close(got, wide, dtype), str(recipe)


SHAPES = {
    "even": ((64, 64, 64), {}),
    "odd": ((37, 53, 19), {}),
    "transposed": ((40, 56, 48), {"trans_a": True, "trans_b": True}),
    "batch": ((20, 24, 40), {"batch": 3, "trans_b": True}),
    "row": ((1, 130, 70), {}),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape, dtype):
    sizes, options = SHAPES[shape]
    func = product(*sizes, dtype, **options)
    arrays = numbers(func, dtype)
    turned = {key: value for key, value in options.items() if key != "batch"}
    for recipe in listed(func)[:3]:
        assert close(emulated(func, recipe, arrays), expected_product(arrays, **turned), dtype), str(recipe)


@pytest.mark.parametrize("shape", ["even", "odd"])
def test_every_tile_for_tensor_cores(shape):
    func = product(*SHAPES[shape][0], "float16")
    arrays = numbers(func, "float16")
    for recipe in listed(func):
        assert close(emulated(func, recipe, arrays), expected_product(arrays), "float16"), str(recipe)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("channels", "stride", "pad"), [((8, 16), 1, 1), ((3, 10), 2, 1), ((16, 24), 1, 0)])
def test_convolutions(layout, dtype, channels, stride, pad):
    func = conv(9, 11, *channels, 3, dtype, stride, pad, layout)
    arrays = numbers(func, dtype)
    expected = expected_conv(arrays, stride, pad, layout)
    for recipe in listed(func)[:2]:
        assert close(emulated(func, recipe, arrays), expected, dtype), str(recipe)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(8, 8, 32), (7, 5, 13)])
def test_depthwise(shape, dtype):
    func = depthwise(*shape, dtype)
    arrays = numbers(func, dtype)
    for recipe in listed(func)[:2]:
        assert close(emulated(func, recipe, arrays), expected_depthwise(arrays), dtype), str(recipe)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("epilogue", [True, False])
def test_split_reductions(dtype, epilogue):
    func = product(13, 36, 256, dtype) if epilogue else matmul(13, 36, 256, dtype, epilogue=False)
    arrays = numbers(func, dtype)
    expected = expected_product(arrays) if epilogue else arrays[0].astype("f8") @ arrays[1].astype("f8")
    tile = tir_passes.TileBlocks(m=16, n=32, k=16, tm=2, tn=4)
    staged = (tir_passes.StageShared(), tir_passes.VectorizeLoads(), tir_passes.DecomposeReduction())
    for parts in (2, 8):
        recipe = Recipe((tir_passes.InlineEpilogue(), tir_passes.SplitK(parts=parts), tile, *staged))
        assert close(emulated(func, recipe, arrays), expected, dtype)


@pytest.mark.parametrize("shape", [(128, 3072, 768), (512, 512, 512), (16, 256, 4096)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_no_registers_are_spilled(shape, dtype):
    func = product(*shape, dtype)
    sources = {}
    for number, recipe in enumerate(listed(func)[:3]):
        made = apply_recipe(recipe, func, TARGET)
        sources[f"kernel{number}"] = emit_cuda(made, TARGET, f"kernel{number}").source
    units = compile_units(sources, ("sm_80", "sm_90"), nvcc=find_nvcc())
    for unit in units.values():
        for kernel, by_arch in unit.resources.items():
            assert {arch: r.spill_bytes for arch, r in by_arch.items()} == {"sm_80": 0, "sm_90": 0}, kernel


def test_what_cannot_be_fused_runs_after():
    func = transposed_after(20, 36, 16)
    a, b, out = numbers(func, "float32")
    assert close(emulated(func, listed(func)[0], [a, b, out]), (a.astype("f8") @ b).T + 1, "float32")


@pytest.mark.parametrize("m", [20, 1])
def test_results_on_the_way_are_stored_too(m):
    func = all_results(m, 36, 256)
    a, b = numbers(func, "float32")[:2]
    scaled = a.astype("f8") * 2
    for recipe in listed(func):
        made = apply_recipe(recipe, func, TARGET)
        assert not isinstance(made, Refusal), f"{recipe}: {made.text()[-500:]}"
        given = [a, b, *(np.full(s, np.nan, np.float32) for s in ((m, 256), (m, 36), (m, 36)))]
        found = emulate(emit_cuda(made, TARGET, "kernel"), given, orders=1).arrays[2:]
        for got, expected in zip(found, (scaled, scaled @ b, scaled @ b + 2)):
            assert close(got, expected, "float32"), str(recipe)


def test_batches_along_x(monkeypatch):
    monkeypatch.setattr(frame, "MAX_GRID_YZ", 2)
    func = product(20, 24, 40, "float32", batch=3)
    arrays = numbers(func, "float32")
    assert close(emulated(func, listed(func)[0], arrays), expected_product(arrays), "float32")


def test_int8():
    func = int8_product(20, 36, 40)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((20, 40), (40, 36)))
    got = emulated(func, listed(func)[0], [a, b, np.zeros((20, 36), np.int32)])
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def test_nan_and_infinity_stay_in_their_rows():
    func = product(33, 24, 20, "float32")
    arrays = numbers(func, "float32")
    arrays[0][3, 4], arrays[0][32, 19] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = expected_product(arrays)
    for recipe in listed(func)[:2]:
        got = emulated(func, recipe, arrays)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(np.isposinf(got), np.isposinf(expected))


@pytest.mark.parametrize(("m", "n"), [(0, 16), (5, 16)])
def test_empty_batches_store_nothing(m, n):
    func = SYMBOLIC["matmul-rows"][0]()
    arrays = arguments(func, {"n": m})
    got = emulated(func, listed(func)[0], arrays)
    assert got.shape == (m, 42)
