"""Running sums and products on CUDA: in order, by threads that share nothing."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvmpass
from tvmpass.testing.cuda_model import emulate_model
from tvmpass.testing.graphs import graph

pytestmark = pytest.mark.slow

TARGET = "cuda:sm_80"


@pytest.mark.parametrize(
    ("axis", "exclusive", "dtype"),
    [
        (1, False, "float32"),
        (0, False, "int32"),
        (-1, True, "float32"),
        (None, False, "float32"),
        (1, True, "int64"),
    ],
)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scan_is_numpys(name, axis, exclusive, dtype):
    operator, wanted = getattr(relax.op, name), getattr(np, name)
    mod, report = tvmpass.optimize(
        graph(lambda x: operator(x, axis=axis, exclusive=exclusive), ((5, 67), dtype)), TARGET
    )
    assert [kernel.note for kernel in report.kernels] == ["parallel loops in threads"]
    x = np.random.default_rng(0).integers(-2, 3, size=(5, 67)).astype(dtype)
    (got,) = emulate_model(mod, TARGET, {mod["main"].params[0].name: x}, orders=2)
    expected = wanted(x, axis=axis, dtype=dtype)
    if exclusive:
        first = np.full_like(expected[:, :1], 0 if name == "cumsum" else 1)
        expected = np.concatenate([first, expected[:, :-1]], axis=1)
    np.testing.assert_array_equal(got, expected)
