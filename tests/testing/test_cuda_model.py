"""A whole model for CUDA, its kernels emulated, agrees with the same model on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvmpass
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
