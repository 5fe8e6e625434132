"""A whole model for CUDA, its kernels emulated, agrees with the same model on the CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax

import tvmpass
from tvmpass.testing.cuda_emulator import EmulationError
from tvmpass.testing.cuda_model import emulate_model
from tvmpass.testing.graphs import graph

R = relax.op
pytestmark = pytest.mark.slow


def _classifier(x):
    rng = np.random.default_rng(0)
    weight = relax.const(rng.standard_normal((37, 19)).astype("float32"))
    bias = relax.const(rng.standard_normal(19).astype("float32"))
    hidden = R.nn.gelu(R.add(R.matmul(x, weight), bias))
    return hidden, R.topk(R.nn.softmax(hidden, -1), 3, -1, "values", True, "int64")


@pytest.mark.parametrize("rows", [4, "n"])
def test_outputs_agree_with_the_cpu(rows):
    mod = graph(_classifier, ((rows, 37),))
    x = np.random.default_rng(1).standard_normal((4, 37)).astype("float32")
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    found = emulate_model(lowered, "cuda:sm_80", {"x": x})
    for expected, got in zip(tvmpass.build(mod, "llvm").run({"x": x}), found, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bounds", [(0.0, None), (None, 1.0), (-1.0, 1.0)])
def test_maxima_and_minima_keep_nan(dtype, bounds):
    low, high = bounds

    def body(x):
        x = x if dtype == "float32" else R.astype(x, dtype)
        x = x if low is None else R.maximum(x, relax.const(low, dtype))
        x = x if high is None else R.minimum(relax.const(high, dtype), x)
        return R.astype(R.nn.relu(x), "float32")

    mod = graph(body, ((3, 8),))
    x = np.resize(np.array([np.nan, 2, -2, np.inf, -np.inf, 0.5, -0.0], "float32"), (3, 8))
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    (found,) = emulate_model(lowered, "cuda:sm_80", {"x": x})
    np.testing.assert_array_equal(found, np.maximum(np.clip(x, low, high), np.float32(0)))


def test_a_kernel_with_several_outputs():
    mod = graph(lambda x: tuple(relax.TupleGetItem(R.split(x, [2, 5], 1), i) for i in range(3)), ((3, 9),))
    x = np.random.default_rng(2).standard_normal((3, 9)).astype("float32")
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    for part, found in zip(
        np.split(x, [2, 5], 1), emulate_model(lowered, "cuda:sm_80", {"x": x}), strict=True
    ):
        np.testing.assert_array_equal(found, part)


def test_remainders_of_half_floats():
    mod = graph(R.mod, ((9,), "float16"), ((9,), "float16"))
    x = np.array([-4.3, 7.2, 5.0, 4.3, -7.2, 8.0, 6e4, np.inf, 1.0], "float16")
    y = np.array([2.1, -3.4, 8.0, -2.1, 3.4, 5.0, 0.37, 3.0, 0.0], "float16")
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    (found,) = emulate_model(lowered, "cuda:sm_80", {"x": x, "y": y})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, np.fmod(x, y))


def test_a_fault_of_a_kernel_is_raised_as_such(monkeypatch):
    from tvmpass.testing import cuda_model

    emit = cuda_model.emit_cuda

    def without_barriers(func, target, name):
        made = emit(func, target, name)
        return dataclasses.replace(made, source=made.source.replace("__syncthreads();", ""))

    monkeypatch.setattr(cuda_model, "emit_cuda", without_barriers)
    mod = graph(R.matmul, ((32, 32),), ((32, 32),))
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    x = np.ones((32, 32), "float32")
    with pytest.raises(EmulationError, match="uninitialised|no barrier"):
        emulate_model(lowered, "cuda:sm_80", {"x": x, "y": x})


@pytest.mark.parametrize("rows", [31, 7])
def test_products_with_a_vector_without_a_recipe_stay_inside(rows):
    mod = graph(R.matmul, ((rows, 31),), ((31, 1),))
    x, y = np.ones((rows, 31), "float32"), np.ones((31, 1), "float32")
    with tvmpass.PassContext(config={"tvmpass.tir.tile": "off"}):
        lowered, report = tvmpass.optimize(mod, "cuda:sm_80")
    assert report.kernels[0].schedule == "fallback"
    (found,) = emulate_model(lowered, "cuda:sm_80", {"x": x, "y": y})
    np.testing.assert_array_equal(found, np.full((rows, 1), 31, "float32"))


def test_more_products_than_a_grid_is_deep():
    """An open batch goes along the one axis of a grid that takes more than 65535 blocks."""
    mod = graph(R.matmul, (("n", 2, 3),), (("n", 3, 2),))
    lowered, _ = tvmpass.optimize(mod, "cuda:sm_80")
    x, y = np.ones((66000, 2, 3), "float32"), np.ones((66000, 3, 2), "float32")
    (found,) = emulate_model(lowered, "cuda:sm_80", {"x": x, "y": y})
    np.testing.assert_array_equal(found, np.full((66000, 2, 2), 3, "float32"))
