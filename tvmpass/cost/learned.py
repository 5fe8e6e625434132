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

from .analytic import analytic_us, analytic_us_many
from .dataset import SCHEMA
from .device import Device, is_device_class, split_class
from .domain import Domain
from .features import FEATURE_NAMES, FEATURE_VERSION, amounts
from .trees import Ensemble

MODEL_SUFFIX = ".model.json"
MAX_FILE_BYTES = 64 << 20

_LOGGED = len(FEATURE_NAMES) - 4
"""Entries that are logarithms of amounts; the rest are ratios (see `features`)."""

PAIR_INPUTS = len(FEATURE_NAMES) + _LOGGED + 5

THREADS_SD = 0.15
PAIR_THREADS_SD = 0.03
"""Spread added (in log space) where the thread count is not the one measured.

Little for a ratio: threads divide both of its sides.
"""


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

    def __init__(self, document: dict[str, Any], threads: int | None = None):
        """Check and read a model document; raises `TvmpassError` where it does not fit.

        ``threads`` is the thread count to predict for, by default the measured
        one; for another, the analytic model's ratio is applied.
        """
        try:
            self._read(document)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise TvmpassError(f"cost model: not a model file of tvmpass ({error})") from None
        self.threads = threads or self.device.threads
        self.id = hashlib.sha256(_text(document).encode()).hexdigest()[:8]
        """Names the model in estimates: a hash of its content."""

    def _read(self, document: dict[str, Any]) -> None:
        if document.get("schema") != SCHEMA:
            raise ValueError(f"schema {document.get('schema')!r}, expected {SCHEMA}")
        if document["feature_version"] != FEATURE_VERSION or document["feature_names"] != list(FEATURE_NAMES):
            found = document["feature_version"]
            raise ValueError(f"feature version {found!r}, this tvmpass has {FEATURE_VERSION}: train it anew")
        if not is_device_class(document["device_class"]):
            raise ValueError(f"device class {document['device_class']!r}, expected one as in x86-64-v3-t1")
        self.document = document
        self.device_class = str(document["device_class"])
        self.families = {str(kind): int(count) for kind, count in document["families"].items()}
        known = {f.name for f in dataclasses.fields(Device)}
        self.device = Device(**{k: v for k, v in document["device"].items() if k in known})
        for name, value in dataclasses.asdict(self.device).items():
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"device: {name} is {value!r}, not a number above 0")
        self._latency = _part(document["latency"], len(FEATURE_NAMES))
        self._pairwise = _part(document["pairwise"], PAIR_INPUTS) if document.get("pairwise") else None

    @classmethod
    def load(cls, path: str | os.PathLike, threads: int | None = None) -> CostModel:
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
        return cls(document, threads)

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
        base = analytic_us(x, self.device)
        if self.threads != self.device.threads:
            base = analytic_us(x, dataclasses.replace(self.device, threads=self.threads))
            sd = math.hypot(sd, THREADS_SD)
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
        if found is None or self.threads == self.device.threads:
            return found
        return found[0], math.hypot(found[1], PAIR_THREADS_SD)


def pair_vector(fused: np.ndarray, parts: Sequence[np.ndarray], device: Device) -> np.ndarray:
    """Return the input of the pairwise model, float32.

    The fused kernel's features; for each amount the log of how it compares with
    the parts' sum; the number of parts; the analytic prices and their ratio;
    the largest part's share.
    """
    rows = np.stack([np.asarray(p, dtype=np.float32) for p in parts])
    summed = np.log1p(amounts(rows)[:, :_LOGGED].sum(axis=0))
    prices = analytic_us_many(rows, device)
    own, total = analytic_us(fused, device), float(prices.sum())
    tail = [len(parts), math.log(own), math.log(total), math.log(own / total), float(prices.max()) / total]
    return np.concatenate([fused, np.asarray(fused)[:_LOGGED] - summed, tail]).astype(np.float32)


def shipped_model(device_class: str, folder: str | os.PathLike | None = None) -> CostModel | None:
    """Return the model that ships for ``device_class``, or None.

    A model of the same instruction set measured with another thread count is
    used with the analytic ratio between the two and a wider spread.
    """
    isa, threads = split_class(device_class)
    root = Path(folder) if folder is not None else shipped_logs()
    candidates = [root / (device_class + MODEL_SUFFIX)]
    candidates += sorted(p for p in root.glob(isa + "-t*" + MODEL_SUFFIX) if p != candidates[0])
    for path in candidates:
        if path.is_file() and split_class(path.name[: -len(MODEL_SUFFIX)])[0] == isa:
            return _cached(str(path), os.stat(path).st_mtime_ns, threads)
    return None


@functools.lru_cache(maxsize=8)
def _cached(path: str, mtime_ns: int, threads: int) -> CostModel:
    return CostModel.load(path, threads)


def _part(data: dict[str, Any], inputs: int) -> Part:
    return Part(Ensemble(data["boosters"], inputs), Domain.from_json(data["domain"], inputs))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
