"""Alternated timing, on clocks that are known."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from tvmpass.tune.run_job import DEPTHS, _side
from tvmpass.tune.timing import MAX_NUMBER, ROW_US, SCREENING, THOROUGH, Alternation, Plan, alternate


class Clock:
    """A kernel that takes ``run_us``; notes in a common journal when it ran."""

    def __init__(self, name: str, run_us: float, journal: list, overhead_us: float = 0.0, factor=None):
        self.name, self.run_us, self.journal, self.overhead_us = name, run_us, journal, overhead_us
        self.factor = factor or (lambda slot: 1.0)
        self.calls = self.runs = 0

    def __call__(self, number: int, repeats: int) -> list[float]:
        self.journal.append(self.name)
        self.calls += 1
        self.runs += number * repeats + 1
        time = self.run_us * self.factor(self.calls) + self.overhead_us / number
        return [time] * repeats


def pair(run_us: float, run0_us: float, **options) -> tuple[Clock, Clock, list[str]]:
    journal: list[str] = []
    return Clock("a", run_us, journal, **options), Clock("b", run0_us, journal), journal


def test_medians_wins_and_order():
    a, b, journal = pair(80.0, 100.0)
    found = alternate(a, b, SCREENING)
    assert (found.median_us, found.median0_us, found.wins) == (80.0, 100.0, 1.0)
    assert len(found.samples_us) == len(found.candidate0_us) == SCREENING.rounds
    rounds = "".join(journal[-2 * SCREENING.rounds :])
    assert rounds == "ab" + "baab" * (SCREENING.rounds // 2)


@pytest.mark.parametrize("run_us", [0.02, 0.7, 30.0, 900.0])
def test_a_slot_is_filled(run_us):
    a, b, _ = pair(run_us, run_us, overhead_us=1.0)
    found = alternate(a, b, SCREENING)
    before = a.runs
    per_slot = before * run_us / a.calls
    assert per_slot > 0.4 * SCREENING.slot_us
    assert found.median_us == pytest.approx(run_us, rel=0.02, abs=0.01)


def test_rows_are_short_for_the_scheduler():
    numbers = []

    def side(number, repeats):
        numbers.append(number)
        return [2.0] * repeats

    alternate(side, side, SCREENING)
    assert numbers[-1] == ROW_US / 2.0


def test_what_the_clock_cannot_see_is_bounded():
    numbers = []

    def side(number, repeats):
        numbers.append(number * repeats)
        return [0.0] * repeats

    found = alternate(side, side, SCREENING)
    assert max(numbers) <= MAX_NUMBER * 1000 and found.wins == 0.0 and found.median_us > 0


def test_one_disturbed_row_does_not_count():
    def side(number, repeats):
        times = [10.0] * repeats
        times[0] = 500.0
        return times

    found = alternate(side, side, SCREENING)
    assert found.median_us == 10.0 and found.noise == 0.0


def test_the_hopeless_are_left_early_but_not_when_asked_thoroughly():
    a, b, _ = pair(500.0, 100.0)
    assert len(alternate(a, b, SCREENING).samples_us) == 3
    assert len(alternate(a, b, THOROUGH).samples_us) == THOROUGH.rounds


def test_slow_kernels_get_fewer_rounds_and_one_at_least():
    for run_us, rounds in ((50_000.0, 7), (500_000.0, 2), (5e6, 1)):
        a, b, _ = pair(run_us, run_us)
        found = alternate(a, b, SCREENING)
        assert len(found.samples_us) == rounds
        assert a.runs <= 2 + 2 * rounds  # each timer runs once more, to warm up


def test_rounds_that_disagree_are_followed_by_as_many():
    a, b, _ = pair(100.0, 100.0, factor=lambda slot: 1.5 if slot % 2 else 1.0)
    assert len(alternate(a, b, SCREENING).samples_us) == 2 * SCREENING.rounds
    a, b, _ = pair(100.0, 100.0, factor=lambda slot: 1.01 if slot % 2 else 1.0)
    assert len(alternate(a, b, SCREENING).samples_us) == SCREENING.rounds


def test_shares_of_wins():
    assert Alternation([1.0, 3.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.5]).wins == 0.5
    assert Plan(3, 1.0, 1.0).hopeless == float("inf")


class Module:
    """A library whose kernel takes as long as where it lies in memory makes it take."""

    def __init__(self, name: str, run_us: float, journal: list):
        self.name, self.run_us, self.journal = name, run_us, journal
        self.depths: list[int] = []

    def time_evaluator(self, symbol, device, number, repeat):
        def time(*_):
            self.journal.append(self.name)
            self.depths.append(len(inspect.stack(0)))
            return SimpleNamespace(results=[self.run_us / 1e6] * repeat)

        return time


def test_a_badly_placed_copy_does_not_decide():
    """Both sides have the same times by place; where the first of one is slow, none wins."""
    journal: list[str] = []
    times = (4.4, 3.2, 3.3)
    sides = [
        _side(
            [Module(f"{name}{i}", us, journal) for i, us in enumerate(turn)],
            shift,
            None,
            SimpleNamespace(values=()),
        )
        for name, shift, turn in (("a", 0, times), ("b", 1, (times[1], times[2], times[0])))
    ]
    found = alternate(sides[0], sides[1], THOROUGH)
    assert found.median_us == pytest.approx(3.3, abs=1e-9) and found.median0_us == pytest.approx(
        3.3, abs=1e-9
    )
    assert 0.2 < found.wins < 0.8
    pairs = {frozenset(pair) for pair in zip(journal[-24::2], journal[-23::2])}
    assert len(pairs) >= 6  # each copy meets each of the other side


def test_a_kernel_is_called_from_several_places_on_the_stack():
    module = Module("a", 3.0, [])
    side = _side([module], 0, None, SimpleNamespace(values=()))
    for _ in range(2 * DEPTHS):
        side(1, 1)
    assert module.depths[:DEPTHS] == module.depths[DEPTHS:] and len(set(module.depths)) == DEPTHS
