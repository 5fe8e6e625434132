"""Bagged XGBoost models: their parameters, how they are fitted and how they are stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .samples import Samples

BAGS = 10
SEED = 0

_COMMON = {"objective": "reg:squarederror", "tree_method": "hist", "nthread": 1, "base_score": 0.0}
LATENCY_PARAMETERS = {
    **_COMMON,
    "max_depth": 5,
    "eta": 0.16,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 3,
}
LATENCY_ROUNDS = 70
PAIR_PARAMETERS = {
    **_COMMON,
    "max_depth": 4,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    "min_child_weight": 2,
}
PAIR_ROUNDS = 90
_DIGITS = 5
"""Significant digits kept of thresholds and leaves; the size of the file follows."""


def boost(
    samples: Samples, chosen: np.ndarray, parameters: dict[str, Any], rounds: int, bags: int
) -> list[Any]:
    """Fit ``bags`` boosters, each to a bootstrap over the graphs among ``chosen`` rows."""
    import xgboost

    boosters = []
    graphs = np.unique(samples.groups[chosen])
    by_graph = {g: chosen[samples.groups[chosen] == g] for g in graphs.tolist()}
    for bag in range(bags):
        draw = np.random.default_rng(SEED + bag).choice(graphs, len(graphs))
        rows = np.concatenate([by_graph[g] for g in draw.tolist()])
        matrix = xgboost.DMatrix(samples.rows[rows], samples.targets[rows], nthread=1)
        boosters.append(xgboost.train({**parameters, "seed": SEED + bag}, matrix, rounds))
    return boosters


def slim(booster) -> dict[str, Any]:
    """Return a booster in XGBoost's JSON form, statistics zeroed, numbers shortened.

    XGBoost still loads it; the statistics of training are not needed to predict.
    """
    document = json.loads(bytes(booster.save_raw("json")))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        nodes = len(tree["left_children"])
        for name in ("base_weights", "loss_changes", "sum_hessian"):
            tree[name] = [0.0] * nodes
        tree["split_conditions"] = [float(f"{v:.{_DIGITS}g}") for v in tree["split_conditions"]]
        tree["default_left"] = [0] * nodes
    return document
