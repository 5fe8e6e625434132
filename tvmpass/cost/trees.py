"""Evaluate XGBoost's trees with numpy alone.

Prediction needs neither the xgboost package nor its threads, costs about
0.1 ms for a thousand trees, and gives the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvmpass.core.errors import TvmpassError

MAX_NODES = 2_000_000
MAX_DEPTH = 64


class Ensemble:
    """Several boosters over the same inputs, each the sum of its trees."""

    def __init__(self, boosters: Sequence[dict[str, Any]], inputs: int):
        """Read boosters in XGBoost's JSON form; raises `TvmpassError` on nonsense."""
        try:
            self._read(boosters, inputs)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise TvmpassError(f"cost model: not the JSON form of XGBoost trees ({error!r})") from None

    def _read(self, boosters: Sequence[dict[str, Any]], inputs: int) -> None:
        parts: dict[str, list[np.ndarray]] = {"split": [], "threshold": [], "left": [], "right": []}
        roots: list[int] = []
        starts: list[int] = []
        base: list[float] = []
        total = 0
        for booster in boosters:
            learner = booster["learner"]
            base.append(float(str(learner["learner_model_param"]["base_score"]).strip("[]")))
            starts.append(len(roots))
            for tree in learner["gradient_booster"]["model"]["trees"]:
                roots.append(total)
                total += self._tree(tree, inputs, total, parts)
                if total > MAX_NODES:
                    raise ValueError(f"more than {MAX_NODES} nodes")
        if not roots or len(set(starts)) != len(starts) or starts[-1] == len(roots):
            raise ValueError("a booster without trees")
        self.split = np.concatenate(parts["split"])
        self.threshold = np.concatenate(parts["threshold"])
        self.left = np.concatenate(parts["left"])
        self.right = np.concatenate(parts["right"])
        self.roots, self.starts = np.array(roots), np.array(starts)
        self.base = np.array(base)
        self.depth = self._deepest()

    @staticmethod
    def _tree(tree: dict[str, Any], inputs: int, offset: int, parts: dict[str, list[np.ndarray]]) -> int:
        left = np.array(tree["left_children"], dtype=np.int64)
        right = np.array(tree["right_children"], dtype=np.int64)
        split = np.array(tree["split_indices"], dtype=np.int64)
        threshold = np.array(tree["split_conditions"], dtype=np.float32)
        count = len(left)
        if not count or not (len(right) == len(split) == len(threshold) == count):
            raise ValueError("a tree's arrays differ in length")
        leaf = left < 0
        inner = ~leaf
        own = np.arange(count)
        # A child always comes after its parent, so that no path can run in a circle.
        for child in (left, right):
            if (child[inner] <= own[inner]).any() or (child[inner] >= count).any():
                raise ValueError("a tree's children are out of order")
        if (split[inner] < 0).any() or (split[inner] >= inputs).any():
            raise ValueError(f"a tree splits on an input outside 0..{inputs - 1}")
        parts["split"].append(np.where(leaf, 0, split))
        parts["threshold"].append(threshold)
        parts["left"].append(np.where(leaf, own, left) + offset)
        parts["right"].append(np.where(leaf, own, right) + offset)
        return count

    def _deepest(self) -> int:
        nodes = self.roots
        for depth in range(MAX_DEPTH):
            inner = nodes[self.left[nodes] != nodes]
            if not len(inner):
                return depth
            nodes = np.concatenate([self.left[inner], self.right[inner]])
        raise ValueError(f"a tree deeper than {MAX_DEPTH}")

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the prediction of each booster for one input vector, float64."""
        x = np.asarray(x, dtype=np.float32)
        nodes = self.roots
        for _ in range(self.depth):
            nodes = np.where(
                x[self.split[nodes]] < self.threshold[nodes], self.left[nodes], self.right[nodes]
            )
        return np.add.reduceat(self.threshold[nodes].astype(np.float64), self.starts) + self.base
