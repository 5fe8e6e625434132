"""Held-out quality of the cost model: prediction, decisions, and what wrong ones cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .boosting import LATENCY_PARAMETERS, LATENCY_ROUNDS, PAIR_PARAMETERS, PAIR_ROUNDS, boost
from .dataset import Alternative, Dataset
from .families import known_families
from .hardware import AnyDevice, hardware_for
from .samples import Pair, Samples, fused_pairs, latency_samples, pair_samples, replaced

FOLDS = 5
BAGS = 4
"""Bags per fold: fewer than in the shipped model, which is the only difference."""

MIN_SPEEDUP = 1.03
"""The planner's default threshold: parts' mean over the group's high."""

CLEAR = 0.1
"""Pairs nearer to equal than this (10 %) do not count in ``decision_accuracy``."""


def validate(data: Dataset, groups: dict[str, int], device: AnyDevice) -> dict[str, Any]:
    """Return the metrics of DESIGN's train schema, five folds grouped by graph.

    ``decision_accuracy`` is over fused/unfused pairs that differ by 10 % or
    more, beside how often fusing always or never would be right; ``regret_*`` over
    all graphs with several alternatives: measured time of the alternative chosen
    by the planner's rule over that of the best, next to what fusing always or
    never would cost.
    ``leave_family_out`` holds the kernels and pairs of one family out at a time
    (in use, the model abstains from a family it has not seen); ``families`` tells
    the same of each, where only its own fusions are chosen among.  None stands
    for what the data cannot tell.
    """
    kernels = latency_samples(data, groups, device)
    pairs = fused_pairs(data, groups)
    held = _Held(data, kernels, pairs, pair_samples(pairs, device), device)
    order = np.random.default_rng(0).permutation(max(groups.values()) + 1)
    folds = [set(part.tolist()) for part in np.array_split(order, FOLDS)]
    metrics: dict[str, Any] = dict(held.metrics(held.predict([held.of_graphs(f) for f in folds])))
    families = {name: held.of_family(name) for name in known_families(kernels.kinds)}
    families = {name: split for name, split in families.items() if not split[0].all()}
    if len(families) > 1:
        predicted = held.predict(list(families.values()))
        metrics["leave_family_out"] = held.metrics(predicted)
        metrics["families"] = {
            name: {"records": int(split[0].sum()), **held.metrics(predicted, split)}
            for name, split in families.items()
        }
    return metrics


Split = tuple[np.ndarray, np.ndarray]
"""Which kernels and which pairs belong to a part of the data."""

Predicted = tuple[np.ndarray, np.ndarray]
"""Of each kernel the latency model's output, of each pair mean and sd; NaN where unknown."""


class _Held:
    """Predictions for records while they were held out of training."""

    def __init__(
        self, data: Dataset, kernels: Samples, pairs: Sequence[Pair], paired: Samples, device: AnyDevice
    ):
        self.data, self.kernels, self.pairs = data, kernels, pairs
        self.paired, self.device = paired, device

    def of_graphs(self, graphs: set[int]) -> Split:
        chosen = list(graphs)
        return np.isin(self.kernels.groups, chosen), np.isin(self.paired.groups, chosen)

    def of_family(self, name: str) -> Split:
        return np.array(self.kernels.kinds) == name, np.array(self.paired.kinds, dtype=str) == name

    def predict(self, splits: Sequence[Split]) -> Predicted:
        """Predict each part by a model that was fitted to all the others."""
        latency = np.full(len(self.kernels.targets), np.nan)
        ratio = np.full((len(self.pairs), 2), np.nan)
        for kernel_test, pair_test in splits:
            if kernel_test.any() and not kernel_test.all():
                bags = _predict(self.kernels, kernel_test, LATENCY_PARAMETERS, LATENCY_ROUNDS)
                latency[kernel_test] = bags.mean(axis=0)
            if pair_test.any() and (~pair_test).sum() >= 10:
                bags = _predict(self.paired, pair_test, PAIR_PARAMETERS, PAIR_ROUNDS)
                ratio[pair_test, 0], ratio[pair_test, 1] = bags.mean(axis=0), bags.std(axis=0)
        return latency, ratio

    def metrics(self, predictions: Predicted, part: Split | None = None) -> dict[str, float | None]:
        """Return how good ``predictions`` are, on all of the data or on a part of it."""
        latency, ratio = predictions
        base = hardware_for(self.device).analytic_us_many(self.kernels.rows, self.device)
        predicted, measured = base * np.exp(latency), base * np.exp(self.kernels.targets)
        known = np.isfinite(predicted)
        if part is not None:
            known &= part[0]
            ratio = np.where(part[1][:, None], ratio, np.nan)
        errors = np.abs(predicted[known] / measured[known] - 1.0)
        result = {
            "spearman": _spearman(predicted[known], measured[known]),
            "median_relative_error": float(np.median(errors)) if known.any() else math.nan,
        }
        by_record = dict(zip((id(r) for r in self.data.kernels), predicted.tolist()))
        parts = [[by_record[id(q)] for q in p.parts] for p in self.pairs]
        fuse = np.array([_eligible(m, sd, p) for (m, sd), p in zip(ratio.tolist(), parts)], dtype=bool)
        gains = [sum(p) * (1.0 - math.exp(m)) for (m, _), p in zip(ratio.tolist(), parts)]
        result.update(self._decisions(ratio, fuse))
        result.update(self._regret(ratio, fuse, gains, part is not None))
        return {key: None if math.isnan(v) else round(float(v), 4) for key, v in result.items()}

    def _decisions(self, ratio: np.ndarray, fuse: np.ndarray) -> dict[str, float]:
        truth = self.paired.targets
        known = np.isfinite(ratio[:, 0])
        clear = known & (np.abs(truth) >= math.log(1.0 + CLEAR))
        found = {"decision_accuracy": fuse, "accuracy_always": np.ones_like(fuse)}
        found["accuracy_never"] = np.zeros_like(fuse)
        right = {name: (choice == (truth < 0))[clear] for name, choice in found.items()}
        shares = {name: float(r.mean()) if clear.any() else math.nan for name, r in right.items()}
        return {**shares, "decisions": float(clear.sum())}

    def _regret(
        self, ratio: np.ndarray, fuse: np.ndarray, gains: Sequence[float], only_known: bool
    ) -> dict[str, float]:
        """Let the planner's rule choose per graph, and compare with the best alternative.

        ``only_known`` leaves out the alternatives that nothing was predicted for.
        """

        launch = self.device.launch_us
        known = {
            (p.fused.kernel_key, tuple(q.kernel_key for q in p.parts)): i
            for i, p in enumerate(self.pairs)
            if np.isfinite(ratio[i, 0])
        }
        graphs: dict[str, list[Alternative]] = {}
        for alternative in self.data.alternatives:
            graphs.setdefault(alternative.group_key, []).append(alternative)
        losses, always, never = [], [], []
        for alternatives in graphs.values():
            off = next((a for a in alternatives if a.name == "off"), None)
            if off is None or len(alternatives) < 2:
                continue
            cut = {a.name: replaced(a, off) for a in alternatives}
            decided = {
                name: known[found] for name, found in cut.items() if found is not None and found in known
            }
            if not decided:
                continue
            if only_known:
                alternatives = [a for a in alternatives if a is off or a.name in decided]
            times = {a.name: a.median_us + launch * len(a.kernel_keys) for a in alternatives}
            chosen, best_gain = "off", 0.0
            for name, index in decided.items():
                if fuse[index] and gains[index] > best_gain:
                    chosen, best_gain = name, gains[index]
            longest = min((a for a in alternatives if a is not off), key=lambda a: len(a.kernel_keys))
            best = min(times.values())
            losses.append(times[chosen] / best)
            always.append(times["on" if "on" in times else longest.name if only_known else "off"] / best)
            never.append(times["off"] / best)
        return {
            "regret_geomean": _geomean(losses),
            "regret_worst": max(losses, default=math.nan),
            "regret_always": _geomean(always),
            "regret_never": _geomean(never),
        }


def _predict(samples: Samples, test: np.ndarray, parameters: dict[str, Any], rounds: int) -> np.ndarray:
    import xgboost

    matrix = xgboost.DMatrix(samples.rows[test], nthread=1)
    boosters = boost(samples, np.flatnonzero(~test), parameters, rounds, BAGS)
    return np.stack([b.predict(matrix) for b in boosters])


def _eligible(mean: float, sd: float, parts: Sequence[float]) -> bool:
    """Judge as the planner does: the ratio leaves out the costliest part, done either way."""
    total, kept = sum(parts), max(parts)
    return total - kept >= MIN_SPEEDUP * (total * math.exp(mean + sd) - kept)


def _geomean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else math.nan


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation (ties broken by order)."""
    if len(a) < 2:
        return math.nan
    ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
