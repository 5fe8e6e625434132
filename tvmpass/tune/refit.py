"""How a candidate compares with candidate 0: predicted, and learned while tuning.

The cost model's two prices give a first guess of the ratio.  What was measured
in this session corrects it: XGBoost is fitted to how far the guesses were off,
all kernels together, so that what one kernel taught is known for the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvmpass.compile.latency import Latency

MIN_RECORDS = 16
"""Measurements below which the guesses stand uncorrected."""

REFIT_EVERY = 8
"""New measurements after which the correction is fitted anew."""

PRIOR_SD = 0.2
"""Spread of log(measured ratio / guess), before there is anything to learn it from."""

OWN_SD = 0.12
"""The same among candidates of a family of which one was measured on the same kernel."""

LEAST_SD = 0.03
"""The same where the family's measurements on the kernel agree: near what the machine can do."""

MIN_FAMILY = 3
"""Measurements of a family on other kernels before their error says something about the next."""

CLIP = 1.5
"""A measured ratio farther than e to this from the guess counts as so far: it may be an accident."""

_ROUNDS = 60
_FOLDS = 4
_PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "nthread": 1,
    "base_score": 0.0,
    "max_depth": 4,
    "eta": 0.12,
    "min_child_weight": 2,
    "lambda": 2.0,
    "colsample_bytree": 0.5,
    "subsample": 0.9,
}


@dataclass(frozen=True)
class Comparison:
    """Mean and standard deviation of log(candidate's time / candidate 0's)."""

    mean: float
    sd: float

    def below(self, limit: float = 1.0) -> float:
        """Return the expected value of min(``limit``, ratio), the ratio log-normal."""
        if self.sd <= 0.0:
            return min(limit, math.exp(self.mean))
        z = (math.log(limit) - self.mean) / self.sd
        inside = math.exp(self.mean + self.sd**2 / 2) * _normal(z - self.sd)
        return inside + limit * (1.0 - _normal(z))


class SessionModel:
    """The cost model of one tune: ratios to candidate 0, corrected as records come.

    Deterministic: the same measurements in the same order give the same answers.
    """

    def __init__(self, latency: Latency, seed: int = 0):
        self.latency, self.seed = latency, seed
        self.sd = PRIOR_SD
        self._rows: list[np.ndarray] = []
        self._errors: list[float] = []
        self._kernels: list[str] = []
        self._fitted = 0
        self._booster: Any = None
        self._families: dict[tuple[str, ...], list[float]] = {}

    @property
    def records(self) -> int:
        """Return how many measurements it has been told of."""
        return len(self._rows)

    @property
    def version(self) -> int:
        """Return a number that moves whenever the answers may have changed."""
        return len(self._rows)

    @property
    def refitted(self) -> int:
        """Return how many measurements the correction was last fitted to, 0 before the first."""
        return self._fitted

    def guess(self, x: np.ndarray, base: np.ndarray, kind: str) -> float:
        """Return log(time / candidate 0's time) by the cost model alone."""
        own, other = (self.latency.kernel(v, kind).mean for v in (x, base))
        return math.log(max(own, 1e-6) / max(other, 1e-6))

    def compare(
        self,
        rows: list[np.ndarray],
        base: np.ndarray,
        kind: str,
        families: Sequence[str] = (),
        kernel_key: str = "",
        guesses: Sequence[float] | None = None,
    ) -> list[Comparison]:
        """Return how kernels with the feature vectors ``rows`` compare with the one of ``base``.

        ``families`` says which are made by the same steps: what the features
        cannot see is much the same for them.  ``guesses`` are those of `guess`,
        where they are known already.
        """
        if not rows:
            return []
        if guesses is None:
            guesses = [self.guess(x, base, kind) for x in rows]
        corrections = self._correct([_row(x, base, g) for x, g in zip(rows, guesses)])
        names = families or [""] * len(rows)
        return [self._judge(g, c, kind, f, kernel_key) for g, c, f in zip(guesses, corrections, names)]

    def add(
        self,
        x: np.ndarray,
        base: np.ndarray,
        kind: str,
        ratio: float,
        kernel_key: str = "",
        family: str = "",
    ) -> None:
        """Learn that a kernel took ``ratio`` times as long as its candidate 0."""
        if not (math.isfinite(ratio) and ratio > 0.0):
            return
        guess = self.guess(x, base, kind)
        error = max(-CLIP, min(CLIP, math.log(ratio) - guess))
        self._rows.append(_row(x, base, guess))
        self._errors.append(error)
        self._kernels.append(kernel_key)
        if family:
            for key in ((kind, family), (kind, family, kernel_key)):
                self._families.setdefault(key, []).append(error)
        if len(self._rows) >= max(MIN_RECORDS, self._fitted + REFIT_EVERY):
            self._refit()

    def _judge(self, guess: float, correction: float, kind: str, family: str, kernel_key: str) -> Comparison:
        """Correct a guess by what is known best: its family on this kernel, on others, or the trees."""
        own = self._families.get((kind, family, kernel_key))
        if own:
            spread = OWN_SD if len(own) == 1 else max(LEAST_SD, float(np.std(own)))
            return Comparison(guess + float(np.median(own)), min(self.sd, spread))
        others = self._families.get((kind, family), [])
        if len(others) >= MIN_FAMILY:
            return Comparison(guess + float(np.median(others)), self.sd)
        return Comparison(guess + correction, self.sd)

    def to_json(self) -> dict[str, Any]:
        """Return what another process needs to give the same answers."""
        raw = None if self._booster is None else json.loads(bytes(self._booster.save_raw("json")))
        return {"sd": self.sd, "fitted": self._fitted, "booster": raw}

    @classmethod
    def from_json(cls, latency: Latency, data: Mapping[str, Any]) -> SessionModel:
        """Return a model that answers as the one that wrote ``data``; of this tune, not of a file."""
        model = cls(latency)
        model.sd, model._fitted = float(data["sd"]), int(data["fitted"])
        if data["booster"] is not None:
            import xgboost

            model._booster = xgboost.Booster({"nthread": 1})
            model._booster.load_model(bytearray(json.dumps(data["booster"]).encode()))
        return model

    def _correct(self, rows: list[np.ndarray]) -> list[float]:
        if self._booster is None:
            return [0.0] * len(rows)
        import xgboost

        return self._booster.predict(xgboost.DMatrix(np.stack(rows), nthread=1)).astype(float).tolist()

    def _refit(self) -> None:
        """Fit the correction, and keep it only if it would have helped on kernels held out."""
        rows, errors = np.stack(self._rows), np.array(self._errors)
        self._fitted = len(rows)
        names = sorted(set(self._kernels))
        number = {name: i for i, name in enumerate(names)}
        folds = np.array([number[k] for k in self._kernels]) % _FOLDS
        if len(names) < _FOLDS:  # few kernels: hold out measurements instead
            folds = np.arange(len(rows)) % _FOLDS
        left = np.array(errors)
        for fold in range(_FOLDS):
            held = folds == fold
            if held.any() and not held.all():
                left[held] -= _predict(self._train(rows[~held], errors[~held]), rows[held])
        plain, corrected = (float(np.sqrt(np.mean(e * e))) for e in (errors, left))
        helps = corrected < plain
        self._booster = self._train(rows, errors) if helps else None
        self.sd = min(max(min(plain, corrected), 0.05), 2 * PRIOR_SD)

    def _train(self, rows: np.ndarray, errors: np.ndarray):
        import xgboost

        matrix = xgboost.DMatrix(rows, errors, nthread=1)
        return xgboost.train({**_PARAMETERS, "seed": self.seed}, matrix, _ROUNDS)


def _predict(booster, rows: np.ndarray) -> np.ndarray:
    import xgboost

    return booster.predict(xgboost.DMatrix(rows, nthread=1)).astype(np.float64)


def _row(x: np.ndarray, base: np.ndarray, guess: float) -> np.ndarray:
    own, other = np.asarray(x, dtype=np.float32), np.asarray(base, dtype=np.float32)
    return np.concatenate([own, own - other, [np.float32(guess)]]).astype(np.float32)


def _normal(z: float) -> float:
    """Return the normal distribution function at ``z``."""
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
