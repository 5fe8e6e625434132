"""Fit the cost model to records, and say how well it does on graphs it has not seen."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvmpass.core.errors import TvmpassError

from .boosting import BAGS, LATENCY_PARAMETERS, LATENCY_ROUNDS, PAIR_PARAMETERS, PAIR_ROUNDS, boost, slim
from .dataset import SCHEMA, Dataset, read
from .domain import Domain
from .families import known_families
from .hardware import AnyDevice, hardware_for, hardware_of
from .learned import CostModel
from .samples import Samples, fused_pairs, graph_groups, latency_samples, pair_samples
from .validation import validate

MIN_RECORDS = 50
MIN_PAIRS = 30


@dataclass
class TrainResult:
    """The fitted model, its held-out metrics (DESIGN's train schema), skipped lines."""

    model: CostModel
    metrics: dict[str, Any]
    problems: list[str] = field(default_factory=list)


def train(
    paths: Iterable[str | os.PathLike], device_class: str, progress: Callable[[str], None] | None = None
) -> TrainResult:
    """Fit both models to the records of ``device_class`` in ``paths``.

    Where there are none, to those of the same instruction set with another
    thread count; ``progress`` is told which, and the result's metrics say it.

    Deterministic: one thread, fixed seeds, records in file order.  Raises
    `TvmpassError` where there are too few records.
    """
    data = read(paths, device_class)
    hardware = hardware_of(data.device_class)
    if len(data.kernels) < MIN_RECORDS:
        reasons = "; ".join(data.problems[:3])
        raise TvmpassError(
            f"{len(data.kernels)} usable records of {data.device_class}, at least {MIN_RECORDS} are needed: "
            f"collect some with {hardware.collector}{' (' + reasons + ')' if reasons else ''}"
        )
    if progress is not None:
        instead = f" (there are no records of {device_class})" if data.device_class != device_class else ""
        pretended = ", from records of the simulated device" if data.simulated else ""
        progress(f"fitting the model of {data.device_class}{instead}{pretended}")
    device = hardware.device_of(data.device_class, data.facts)
    groups = graph_groups(data)
    document = fit(data, groups, device)
    metrics = {
        "schema": SCHEMA,
        "device_class": data.device_class,
        "records": len(data.kernels),
        **({"simulated": True} if data.simulated else {}),
        **validate(data, groups, device),
    }
    document["metrics"] = metrics
    return TrainResult(CostModel(document), metrics, data.problems)


def fit(data: Dataset, groups: dict[str, int], device: AnyDevice) -> dict[str, Any]:
    """Return the model document fitted to all of ``data``."""
    samples = latency_samples(data, groups, device)
    hardware = hardware_for(device)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "device_class": data.device_class,
        **({"simulated": True} if data.simulated else {}),
        "feature_version": hardware.feature_version,
        "feature_names": list(hardware.feature_names),
        "families": known_families(samples.kinds),
        "device": dataclasses.asdict(device),
        "latency": _fit_part(samples, LATENCY_PARAMETERS, LATENCY_ROUNDS),
        "pairwise": None,
    }
    pairs = pair_samples(fused_pairs(data, groups), device)
    if len(pairs.targets) >= MIN_PAIRS:
        document["pairwise"] = _fit_part(pairs, PAIR_PARAMETERS, PAIR_ROUNDS)
    return document


def _fit_part(samples: Samples, parameters: dict[str, Any], rounds: int) -> dict[str, Any]:
    boosters = boost(samples, np.arange(len(samples.targets)), parameters, rounds, BAGS)
    importance = np.zeros(samples.rows.shape[1])
    for booster in boosters:
        for name, gain in booster.get_score(importance_type="total_gain").items():
            importance[int(name[1:])] += gain
    domain = Domain.fit(samples.rows, samples.groups, importance)
    return {"domain": domain.to_json(), "boosters": [slim(b) for b in boosters]}
