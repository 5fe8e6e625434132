"""The cases for GPU hosts mean what they say: their emitted CUDA is right in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import tvmpass
from scripts.cuda.cases import FLOAT_TOLERANCE, LARGE, SMALL, cases, error, numpy_dtype
from tvmpass.core.kernels import KINDS

pytestmark = pytest.mark.slow

TARGET = "cuda:sm_80,sm_90"
CASES = cases(SMALL)


@pytest.mark.parametrize("name", CASES)
def test_emitted_cuda_is_right(name):
    from tvmpass.testing.cuda_model import emulate_model

    case = CASES[name]
    with tvmpass.PassContext(config={"tvmpass.fusion": "always"}):
        mod, report = tvmpass.optimize(case.module(), TARGET)
    assert case.family in {kernel.kind for kernel in report.kernels}
    arrays = case.arrays()
    (got,) = emulate_model(mod, TARGET, dict(zip([p.name for p in mod["main"].params], arrays, strict=True)))
    assert error(got, case.wanted(arrays)) <= FLOAT_TOLERANCE[case.dtype]


def test_every_kind_of_kernel_has_a_case():
    assert {case.family for case in CASES.values()} >= set(KINDS) - {"other"}
    assert set(cases(LARGE)) == set(CASES)


def test_rates_count_each_input_and_output_once():
    case = cases(LARGE)["layer-norm-float16"]
    assert case.bytes() == 2 * (3 * 16384 * 1024 + 2 * 1024)


def test_error_sees_shape_nan_and_scale():
    wanted = np.array([1e-4, 2e-4])
    assert error(np.zeros(2), wanted) == 1.0
    assert error(np.zeros(3), wanted) == float("inf")
    assert error(np.array([np.nan, 2e-4]), wanted) == float("inf")
    assert error(wanted.astype(numpy_dtype("bfloat16")), wanted) < 2**-8
