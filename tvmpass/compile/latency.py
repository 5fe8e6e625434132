"""Predict kernel times: learned where the model knows the kind, else analytic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm

from tvmpass.core.decision import Estimate
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.cost.device import device_class
from tvmpass.cost.hardware import CUDA, hardware_of, target_device
from tvmpass.cost.learned import CostModel, shipped_model

ABSTAINED = "abstained→analytic"


class Latency:
    """The cost model of one build: a learned model, if one fits, over the analytic one."""

    def __init__(self, target: tvm.target.Target, options: Options):
        self.target = target
        self.device = target_device(target, options.threads)
        self.device_class = device_class(target, options.threads)
        self.hardware = hardware_of(self.device_class)
        self.model = _find_model(options, self.device_class, self.device)

    @property
    def source(self) -> str:
        return f"learned:{self.model.id}" if self.model is not None else self.hardware.analytic

    def features(self, function) -> Any:
        """Return the feature vector of a scheduled PrimFunc."""
        return self.hardware.features(function, self.target)

    def kernel(self, x, kind: str) -> Estimate:
        """Return the time of one kernel in µs, launch included."""
        if self.model is not None:
            learned = self.model.latency(x, kind)
            if learned is not None:
                return learned
        return Estimate.exact(self._fallback, self.hardware.analytic_us(x, self.device))

    def group(
        self, fused: Sequence[Any], parts: Sequence[Any], parts_mean: float, kinds: Sequence[str]
    ) -> Estimate:
        """Return the time of a fused group, from its parts where the pairwise model knows them."""
        if self.model is not None and len(fused) == 1:
            pair = self.model.pairwise(fused[0], list(parts))
            if pair is not None:
                ratio, sd = pair
                low, mean, high = (parts_mean * math.exp(ratio + step) for step in (-sd, 0.0, sd))
                return Estimate(self.source, low, mean, high)
        return add([self.kernel(x, kind) for x, kind in zip(fused, kinds)])

    def analytic(self, kernels: Sequence[Any]) -> Estimate:
        """Return the time of some kernels by the analytic formula alone."""
        times = [Estimate.exact(self._fallback, self.hardware.analytic_us(x, self.device)) for x in kernels]
        return add(times)

    @property
    def _fallback(self) -> str:
        return self.hardware.analytic if self.model is None else ABSTAINED


def add(estimates: Sequence[Estimate]) -> Estimate:
    """Return the sum; its source is the least certain of the parts'."""
    if not estimates:
        return Estimate.exact("analytic", 0.0)
    source = max((e.source for e in estimates), key=_uncertainty)
    return Estimate(
        source, sum(e.low for e in estimates), sum(e.mean for e in estimates), sum(e.high for e in estimates)
    )


def _uncertainty(source: str) -> int:
    if source == ABSTAINED:
        return 2
    return 1 if source.startswith("analytic") else 0


def _find_model(options: Options, wanted: str, device: Any) -> CostModel | None:
    if options.cost_model == "analytic":
        return None
    hardware = hardware_of(wanted)
    if options.cost_model == "auto":
        return shipped_model(wanted, sms=device.sms if hardware is CUDA else None)
    path = Path(options.cost_model)
    if not path.is_file():
        raise TvmpassError(f"tvmpass.cost_model: no such file: {path}")
    model = CostModel.load(path)
    if model.hardware is not hardware:
        raise TvmpassError(f"tvmpass.cost_model: {path} is of {model.device_class}, the target is {wanted}")
    return model
