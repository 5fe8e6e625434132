"""The learned cost model: XGBoost trees over measured records, with abstaining.

Two models share a file.  *Latency* corrects the analytic price of one kernel
(it learns log(measured / analytic)).  *Pairwise* predicts log(fused / sum of
parts) of a fused kernel directly, which decides better than the difference of
two latencies.  Each is a bagged ensemble; its spread is the uncertainty.

The model abstains (returns None) on a family it has too few records of, and on
a vector outside its `Domain`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvmpass.core.decision import Estimate
from tvmpass.core.errors import TvmpassError
from tvmpass.core.files import write_text
from tvmpass.settings import shipped_logs

from .dataset import SCHEMA
from .device import is_cuda_class, is_device_class, split_class
from .domain import Domain
from .hardware import AnyDevice, Hardware, hardware_for, hardware_of
from .trees import Ensemble

MODEL_SUFFIX = ".model.json"
MAX_FILE_BYTES = 64 << 20

_PAIR_TAIL = 5
"""Entries of a pair's vector beyond the features and their comparison; see `pair_vector`."""

_SIMULATED = "sim-"
"""What the id of a model begins with whose records come from no real device."""


@dataclass(frozen=True)
class Part:
    """One bagged ensemble and the domain outside which it abstains."""

    ensemble: Ensemble
    domain: Domain

    def predict(self, x: np.ndarray) -> tuple[float, float] | None:
        """Return mean and standard deviation over the bags, or None outside the domain."""
        if not self.domain.holds(x):
            return None
        bags = self.ensemble.predict(x)
        return float(bags.mean()), float(bags.std())


class CostModel:
    """A model file in memory; `latency` and `pairwise` are what a pricer asks."""

    def __init__(self, document: dict[str, Any], units: int | None = None):
        """Check and read a model document; raises `TvmpassError` where it does not fit.

        ``units`` is the number of threads (CUDA: of SMs) to predict for, by
        default the measured one; for another, the analytic model's ratio is
        applied.
        """
        try:
            self._read(document)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise TvmpassError(f"cost model: not a model file of tvmpass ({error})") from None
        self.measured_units = int(getattr(self.device, self.hardware.units))
        self.units = units or self.measured_units
        digest = hashlib.sha256(_text(document).encode()).hexdigest()[:8]
        self.id = _SIMULATED + digest if self.simulated else digest
        """Names the model in estimates: a hash of its content."""

    def _read(self, document: dict[str, Any]) -> None:
        if document.get("schema") != SCHEMA:
            raise ValueError(f"schema {document.get('schema')!r}, expected {SCHEMA}")
        if not is_device_class(document["device_class"]):
            found = document["device_class"]
            raise ValueError(f"device class {found!r}, expected one as in x86-64-v3-t1 or cuda-sm_90")
        self.hardware: Hardware = hardware_of(document["device_class"])
        names, version = list(self.hardware.feature_names), self.hardware.feature_version
        if document["feature_version"] != version or document["feature_names"] != names:
            found = document["feature_version"]
            raise ValueError(f"feature version {found!r}, this tvmpass has {version}: train it anew")
        self.document = document
        self.device_class = str(document["device_class"])
        self.simulated = bool(document.get("simulated", False))
        self.families = {str(kind): int(count) for kind, count in document["families"].items()}
        self.device = self.hardware.read_device(document["device"])
        for name, value in dataclasses.asdict(self.device).items():
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"device: {name} is {value!r}, not a number above 0")
        self._latency = _part(document["latency"], len(names))
        pair = len(names) + self.hardware.logged + _PAIR_TAIL
        self._pairwise = _part(document["pairwise"], pair) if document.get("pairwise") else None

    @classmethod
    def load(cls, path: str | os.PathLike, units: int | None = None) -> CostModel:
        """Read a model file; raises `TvmpassError` with one line on anything else."""
        try:
            if os.stat(path).st_size > MAX_FILE_BYTES:
                raise TvmpassError(f"cost model {path}: larger than {MAX_FILE_BYTES >> 20} MiB")
            with open(path, encoding="utf-8") as stream:
                document = json.load(stream)
        except OSError as error:
            raise TvmpassError(f"cost model {path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise TvmpassError(f"cost model {path}: not JSON ({str(error)[:80]})") from None
        if not isinstance(document, dict):
            raise TvmpassError(f"cost model {path}: not a JSON object")
        return cls(document, units)

    def save(self, path: str | os.PathLike) -> None:
        """Write the model as one JSON file, whole or not at all."""
        write_text(path, _text(self.document))

    def latency(self, x: np.ndarray, kind: str | None = None) -> Estimate | None:
        """Return the time of one kernel call in µs, launch included; None = abstains."""
        if kind is not None and kind not in self.families:
            return None
        found = self._latency.predict(x)
        if found is None:
            return None
        mean, sd = found
        device = self.device
        if self.units != self.measured_units:
            device = self.hardware.scaled(device, self.units)
            sd = math.hypot(sd, self.hardware.units_sd)
        base = self.hardware.analytic_us(x, device)
        low, middle, high = (base * math.exp(mean + step) for step in (-sd, 0.0, sd))
        return Estimate(f"learned:{self.id}", low, middle, high)

    def pairwise(
        self, fused: np.ndarray, parts: Sequence[np.ndarray], kind: str | None = None
    ) -> tuple[float, float] | None:
        """Return mean and sd of log(fused / sum of parts), or None = abstains.

        Both sides are kernel calls with their launch cost.
        """
        if self._pairwise is None or not len(parts) or (kind is not None and kind not in self.families):
            return None
        found = self._pairwise.predict(pair_vector(fused, parts, self.device))
        if found is None or self.units == self.measured_units:
            return found
        return found[0], math.hypot(found[1], self.hardware.pair_units_sd)


def pair_vector(fused: np.ndarray, parts: Sequence[np.ndarray], device: AnyDevice) -> np.ndarray:
    """Return the input of the pairwise model, float32.

    The fused kernel's features; for each amount the log of how it compares with
    the parts' sum; the number of parts; the analytic prices and their ratio;
    the largest part's share.
    """
    hardware = hardware_for(device)
    logged = hardware.logged
    rows = np.stack([np.asarray(p, dtype=np.float32) for p in parts])
    summed = np.log1p(hardware.amounts(rows)[:, :logged].sum(axis=0))
    prices = hardware.analytic_us_many(rows, device)
    own, total = hardware.analytic_us(fused, device), float(prices.sum())
    tail = [len(parts), math.log(own), math.log(total), math.log(own / total), float(prices.max()) / total]
    return np.concatenate([fused, np.asarray(fused)[:logged] - summed, tail]).astype(np.float32)


def shipped_model(
    device_class: str, folder: str | os.PathLike | None = None, sms: int | None = None
) -> CostModel | None:
    """Return the model that ships for ``device_class``, or None.

    A model of the same instruction set measured with another thread count is
    used with the analytic ratio between the two and a wider spread.  CUDA: of
    the class' models the one of the nearest number of SMs, carried over to
    ``sms`` in the same way.
    """
    root = Path(folder) if folder is not None else shipped_logs()
    if is_cuda_class(device_class):
        return _nearest_model(root, device_class, sms)
    isa, threads = split_class(device_class)
    candidates = [root / (device_class + MODEL_SUFFIX)]
    candidates += sorted(p for p in root.glob(isa + "-t*" + MODEL_SUFFIX) if p != candidates[0])
    for path in candidates:
        if path.is_file() and split_class(path.name[: -len(MODEL_SUFFIX)])[0] == isa:
            return _cached(str(path), os.stat(path).st_mtime_ns, threads)
    return None


def _nearest_model(root: Path, device_class: str, sms: int | None) -> CostModel | None:
    """Return the CUDA model measured on the most similar device; what was simulated ships to nobody."""
    paths = [root / (device_class + MODEL_SUFFIX), *sorted(root.glob(device_class + "-*" + MODEL_SUFFIX))]
    models = [_cached(str(p), os.stat(p).st_mtime_ns, sms) for p in paths if p.is_file()]
    models = [m for m in models if m.device_class == device_class and not m.simulated]
    return min(models, key=lambda m: abs(m.measured_units - m.units), default=None)


@functools.lru_cache(maxsize=8)
def _cached(path: str, mtime_ns: int, units: int | None) -> CostModel:
    return CostModel.load(path, units)


def _part(data: dict[str, Any], inputs: int) -> Part:
    return Part(Ensemble(data["boosters"], inputs), Domain.from_json(data["domain"], inputs))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
