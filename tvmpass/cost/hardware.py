"""What differs between the kinds of hardware that kernels are priced for.

A CPU and a CUDA device have features, nominal facts and an analytic price of
their own; records, learning and abstaining are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import tvm

from .analytic import analytic_us_many
from .cuda_analytic import UNCALIBRATED, cuda_analytic_us_many
from .cuda_device import CudaDevice, class_device
from .cuda_features import (
    CUDA_FEATURE_NAMES,
    CUDA_FEATURE_VERSION,
    CUDA_LOGGED,
    cuda_amounts,
    cuda_features,
)
from .device import Device, is_cuda_class, split_class
from .features import FEATURE_NAMES, FEATURE_VERSION, LOGGED, amounts, features

AnyDevice = Device | CudaDevice


@dataclass(frozen=True)
class Hardware:
    """One kind of hardware, as the cost model sees it.

    ``units`` names the fact by which a model is carried over from one device of
    a class to another (threads of a CPU, SMs of a GPU); ``units_sd`` and
    ``pair_units_sd`` are what that adds to the spread, in log space.  The first
    ``logged`` features are logarithms of amounts, the rest are ratios.
    ``analytic`` is the source of a price that no records stand behind.
    """

    feature_version: int
    feature_names: tuple[str, ...]
    logged: int
    device: type
    units: str
    units_sd: float
    pair_units_sd: float
    analytic: str
    collector: str
    features: Callable[..., np.ndarray]
    amounts: Callable[[np.ndarray], np.ndarray]
    analytic_us_many: Callable[[np.ndarray, Any], np.ndarray]
    nominal: Callable[[str], Any]

    def analytic_us(self, x: np.ndarray, device: AnyDevice) -> float:
        """Return the analytic price of one feature vector in µs, launch included."""
        return float(self.analytic_us_many(np.asarray(x)[None, :], device)[0])

    def device_of(self, device_class: str, facts: Mapping[str, Any]) -> Any:
        """Return the nominal device of a class, with what a record file says of its own."""
        device = self.nominal(device_class)
        return replace(device, **({self.units: facts[self.units]} if self.units in facts else {}))

    def read_device(self, facts: Mapping[str, Any]) -> Any:
        """Return the device of a model file; raises TypeError where facts are missing."""
        known = {f.name for f in fields(self.device)}
        return self.device(**{name: value for name, value in facts.items() if name in known})

    def scaled(self, device: Any, units: int) -> Any:
        """Return ``device`` with another number of threads or SMs."""
        return replace(device, **{self.units: units})


def _cpu_nominal(device_class: str) -> Device:
    wide = 64 if device_class.startswith("x86-64-v4") else 32 if device_class.startswith("x86-64-v3") else 16
    return Device(threads=split_class(device_class)[1], vector_bytes=wide)


CPU = Hardware(
    feature_version=FEATURE_VERSION,
    feature_names=FEATURE_NAMES,
    logged=LOGGED,
    device=Device,
    units="threads",
    units_sd=0.15,
    pair_units_sd=0.03,  # little for a ratio: threads divide both of its sides
    analytic="analytic",
    collector="scripts/collect_cpu.py",
    features=features,
    amounts=amounts,
    analytic_us_many=analytic_us_many,
    nominal=_cpu_nominal,
)

CUDA = Hardware(
    feature_version=CUDA_FEATURE_VERSION,
    feature_names=CUDA_FEATURE_NAMES,
    logged=CUDA_LOGGED,
    device=CudaDevice,
    units="sms",
    units_sd=0.15,
    pair_units_sd=0.03,
    analytic=UNCALIBRATED,
    collector="scripts/collect_cuda.py",
    features=cuda_features,
    amounts=cuda_amounts,
    analytic_us_many=cuda_analytic_us_many,
    nominal=class_device,
)


def hardware_of(device_class: str) -> Hardware:
    """Return the kind of hardware that a device class belongs to."""
    return CUDA if is_cuda_class(device_class) else CPU


def hardware_for(device: AnyDevice) -> Hardware:
    """Return the kind of hardware that ``device`` is."""
    return CUDA if isinstance(device, CudaDevice) else CPU


def target_device(target: tvm.target.Target, threads: int) -> AnyDevice:
    """Return the facts of the device that ``target`` stands for."""
    return CudaDevice.of(target) if target.kind.name == "cuda" else Device.of(target, threads)
