"""The session's cost model: ratios to candidate 0, corrected by measurements."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.tir_passes.cases import OPTIONS, TARGET, matmul
from tests.tune.workloads import LATENCY
from tir_passes.recipes import apply_recipe, recipes
from tvmpass.core.kernels import classify
from tvmpass.tune.refit import MIN_RECORDS, PRIOR_SD, Comparison, SessionModel


def rows() -> list[np.ndarray]:
    function = matmul(32, 64, 48)
    made = [apply_recipe(r, function, TARGET) for r in recipes(classify(function), TARGET, OPTIONS)]
    return [LATENCY.features(m) for m in made]


ROWS = rows()


def taught(model: SessionModel, factor: float, count: int) -> SessionModel:
    """Teach that everything takes ``factor`` times what the cost model says, on several kernels."""
    for i in range(count):
        x = ROWS[i % len(ROWS)]
        ratio = math.exp(model.guess(x, ROWS[0], "matmul")) * factor
        model.add(x, ROWS[0], "matmul", ratio, f"kernel{i % 6}")
    return model


def test_untaught_it_says_what_the_cost_model_says():
    model = SessionModel(LATENCY)
    first, other = model.compare([ROWS[0], ROWS[5]], ROWS[0], "matmul")
    assert first.mean == pytest.approx(0.0, abs=1e-9) and first.sd == PRIOR_SD
    own, base = (LATENCY.kernel(x, "matmul").mean for x in (ROWS[5], ROWS[0]))
    assert other.mean == pytest.approx(math.log(own / base), abs=1e-9)


def test_a_constant_error_is_learned():
    model = taught(SessionModel(LATENCY), 1.5, 3 * MIN_RECORDS)
    assert model.records == 3 * MIN_RECORDS
    (found,) = model.compare([ROWS[3]], ROWS[0], "matmul")
    expected = model.guess(ROWS[3], ROWS[0], "matmul") + math.log(1.5)
    assert found.mean == pytest.approx(expected, abs=0.05) and found.sd < PRIOR_SD


def test_noise_is_not_learned():
    model = SessionModel(LATENCY)
    rng = np.random.default_rng(0)
    for i in range(4 * MIN_RECORDS):
        x = ROWS[int(rng.integers(len(ROWS)))]
        ratio = math.exp(model.guess(x, ROWS[0], "matmul") + rng.normal(0.0, 0.3))
        model.add(x, ROWS[0], "matmul", ratio, f"kernel{i % 6}")
    gaps = [
        c.mean - model.guess(x, ROWS[0], "matmul")
        for x, c in zip(ROWS, model.compare(ROWS, ROWS[0], "matmul"))
    ]
    assert float(np.abs(gaps).mean()) < 0.2 and 0.2 < model.sd < 0.4


def test_few_measurements_change_nothing_and_nonsense_is_dropped():
    model = taught(SessionModel(LATENCY), 2.0, MIN_RECORDS - 1)
    assert model.refitted == 0 and model.compare([ROWS[3]], ROWS[0], "matmul")[0].sd == PRIOR_SD
    for ratio in (0.0, -1.0, math.inf, math.nan):
        model.add(ROWS[1], ROWS[0], "matmul", ratio)
    assert model.records == MIN_RECORDS - 1


def test_the_same_measurements_give_the_same_model_also_elsewhere():
    one, two = (taught(SessionModel(LATENCY), 1.3, 40) for _ in range(2))
    moved = SessionModel.from_json(LATENCY, json.loads(json.dumps(one.to_json())))
    answers = [m.compare(ROWS, ROWS[0], "matmul") for m in (one, two, moved)]
    assert answers[0] == answers[1] == answers[2]
    untaught = SessionModel.from_json(LATENCY, json.loads(json.dumps(SessionModel(LATENCY).to_json())))
    assert untaught.compare(ROWS, ROWS[0], "matmul") == SessionModel(LATENCY).compare(ROWS, ROWS[0], "matmul")


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.2), (-0.3, 0.1), (0.5, 0.3), (0.1, 0.0)])
def test_the_expected_minimum(mean, sd):
    draws = np.exp(mean + sd * np.random.default_rng(1).standard_normal(200_000))
    assert Comparison(mean, sd).below(0.9) == pytest.approx(float(np.minimum(draws, 0.9).mean()), abs=2e-3)


def test_what_a_family_is_off_by_is_learned_from_one_measurement_on_the_kernel_itself():
    model = SessionModel(LATENCY)
    guess = model.guess(ROWS[2], ROWS[0], "matmul")
    model.add(ROWS[2], ROWS[0], "matmul", math.exp(guess) * 0.5, "this", "tile unroll")

    def judged(family: str, kernel_key: str) -> float:
        return model.compare([ROWS[3]], ROWS[0], "matmul", [family], kernel_key)[0].mean

    plain = model.guess(ROWS[3], ROWS[0], "matmul")
    assert judged("tile unroll", "this") == pytest.approx(plain + math.log(0.5))
    assert judged("tile unroll", "other") == judged("tile", "this") == pytest.approx(plain)
    for key in ("second", "third"):
        model.add(ROWS[2], ROWS[0], "matmul", math.exp(guess) * 0.6, key, "tile unroll")
    assert judged("tile unroll", "other") == pytest.approx(plain + math.log(0.6))
