"""Where a model has seen data: the ground for abstaining.

A vector is inside when each entry that matters lies within the range of the
training data (and a stated margin), and the vector is no farther from its
nearest reference point than training points of one graph are from those of
all others, but for the farthest half percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MARGIN = 0.7
"""How far outside the range an entry may lie: a factor of two for logarithms."""

REFERENCES = 400
"""Reference points kept, spread out by farthest-point choice."""

_QUANTILE = 0.995


@dataclass(frozen=True)
class Domain:
    """Columns that matter, their range and scale, reference points, a radius."""

    columns: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    references: np.ndarray
    radius: float

    def holds(self, x: np.ndarray) -> bool:
        """Return True where ``x`` is within the seen data."""
        x = np.asarray(x, dtype=np.float64)[self.columns]
        if not np.isfinite(x).all() or (x < self.low - MARGIN).any() or (x > self.high + MARGIN).any():
            return False
        return self.distance(x) <= self.radius

    def distance(self, chosen: np.ndarray) -> float:
        """Return the distance of the chosen columns to the nearest reference."""
        gaps = (self.references - chosen) / self.scale
        return float(np.sqrt((gaps * gaps).mean(axis=1).min()))

    @classmethod
    def fit(cls, rows: np.ndarray, groups: np.ndarray, importance: np.ndarray, columns: int = 24) -> Domain:
        """Learn the domain of ``rows``; ``groups`` tells the graphs apart."""
        order = np.argsort(-importance, kind="stable")
        chosen = np.sort(order[: min(columns, int((importance > 0).sum()) or 1)])
        data = rows[:, chosen].astype(np.float64)
        scale = np.maximum(data.std(axis=0), 0.25)
        # Rounded before use, so that a saved domain judges exactly as this one.
        data, scale = np.round(data, 2), np.round(scale, 3)
        radius = np.quantile(_to_others(data / scale, groups), _QUANTILE)
        references = data[_spread(data / scale, REFERENCES)]
        cover = max(_nearest(data / scale, references / scale))
        return cls(
            chosen, data.min(axis=0), data.max(axis=0), scale, references, round(float(max(radius, cover)), 4)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": self.columns.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "scale": self.scale.tolist(),
            "radius": self.radius,
            "references": [[round(v, 2) for v in row] for row in self.references.tolist()],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], inputs: int) -> Domain:
        """Read what `to_json` wrote; raises ValueError on nonsense."""
        columns = np.array(data["columns"], dtype=np.int64)
        low, high, scale = (np.array(data[k], dtype=np.float64) for k in ("low", "high", "scale"))
        references = np.array(data["references"], dtype=np.float64)
        shapes = {low.shape, high.shape, scale.shape, columns.shape, references.shape[1:]}
        if (
            len(shapes) != 1
            or columns.ndim != 1
            or references.ndim != 2
            or not 0 < len(references) <= 100_000
        ):
            raise ValueError("the domain's arrays do not fit together")
        if (columns < 0).any() or (columns >= inputs).any() or not (scale > 0).all():
            raise ValueError("the domain names inputs that do not exist")
        return cls(columns, low, high, scale, references, float(data["radius"]))


def _spread(points: np.ndarray, count: int) -> np.ndarray:
    """Choose ``count`` rows, each the farthest from those chosen before."""
    chosen = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    nearest = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(points)):
        farthest = int(nearest.argmax())
        if nearest[farthest] == 0.0:
            break
        chosen.append(farthest)
        nearest = np.minimum(nearest, ((points - points[farthest]) ** 2).sum(axis=1))
    return np.array(sorted(chosen))


def _nearest(points: np.ndarray, references: np.ndarray) -> list[float]:
    return [float(np.sqrt(((references - p) ** 2).mean(axis=1).min())) for p in points]


def _to_others(points: np.ndarray, groups: np.ndarray, sample: int = 500) -> np.ndarray:
    """Return the distance of (some) points to the nearest point of another group."""
    if len(np.unique(groups)) < 2:
        return np.zeros(1)
    step = max(1, len(points) // sample)
    found = []
    for index in range(0, len(points), step):
        others = points[groups != groups[index]]
        found.append(float(np.sqrt(((others - points[index]) ** 2).mean(axis=1).min())))
    return np.array(found)
