"""Workloads of small kernels for the tests of searching."""

from __future__ import annotations

from tests.tir_passes.cases import OPTIONS, TARGET
from tir_passes.recipes import recipes
from tvmpass.compile.latency import Latency
from tvmpass.core.kernels import classify
from tvmpass.tune.work import CANDIDATE0, Candidate, Measurement, Workload

LATENCY = Latency(TARGET, OPTIONS)


def workload(function, options=OPTIONS, target=TARGET) -> Workload:
    """Return the workload of a kernel; candidate 0 is the first recipe, else the fallback."""
    kernel = classify(function)
    listed = recipes(kernel, target, options)
    return Workload(
        kernel_key="k" + kernel.kind,
        kind=kernel.kind,
        function=function,
        target=target,
        options=options,
        device_class=LATENCY.device_class,
        recipe_version=1,
        candidate0=Candidate(recipe=str(listed[0]) if listed else None, role=CANDIDATE0),
    )


def measured(ratio: float, features=None) -> Measurement:
    """Return a successful measurement of a candidate that took ``ratio`` of candidate 0's time."""
    return Measurement("ok", 100.0 * ratio, [100.0 * ratio], 100.0, float(ratio < 1), features)
