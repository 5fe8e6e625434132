"""Numeric verification for CUDA targets: right kernels pass, a wrong one is replaced."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax

import tvmpass
from tvmpass.compile import verify_cuda
from tvmpass.testing.cuda_emulator import EmulationError, Unmodelled
from tvmpass.testing.graphs import graph

R = relax.op
pytestmark = pytest.mark.slow


def _model():
    weight = relax.const(np.random.default_rng(0).standard_normal((20, 24)).astype("float32"))
    return graph(lambda x: R.nn.softmax(R.nn.relu(R.matmul(x, weight)), -1), ((6, 20),))


def _optimized():
    with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
        return tvmpass.optimize(_model(), "cuda:sm_80")[1]


def test_right_kernels_are_checked():
    report = _optimized()
    assert report.verify["checked"] >= 2
    assert report.verify["not_checked"] == 0
    assert all(k.schedule.startswith("library:") for k in report.kernels)


def test_a_wrong_kernel_is_replaced(monkeypatch):
    emit = verify_cuda.emit_cuda

    def without_barriers(func, target, name):
        made = emit(func, target, name)
        return dataclasses.replace(made, source=made.source.replace("__syncthreads();", ""))

    monkeypatch.setattr(verify_cuda, "emit_cuda", without_barriers)
    report = _optimized()
    product = next(k for k in report.kernels if k.kind == "matmul")
    assert product.schedule == "fallback"
    assert "wrong-kernel" in product.note or "differs" in product.note


@pytest.mark.parametrize(
    "error, reason",
    [
        (Unmodelled("the emulator does not model mma"), "does not model mma"),
        (EmulationError("a run that does not end", "no end"), "takes too long"),
    ],
)
def test_what_the_emulator_cannot_say_is_counted_as_not_checked(monkeypatch, error, reason):
    from tvmpass.testing import cuda_emulator

    def refuse(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(cuda_emulator, "emulate", refuse)
    report = _optimized()
    assert report.verify["not_checked"] == len(report.kernels)
    assert any(reason in text for text in report.verify["reasons"])
