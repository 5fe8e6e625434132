"""Time two kernels in alternation, so that what disturbs one disturbs the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Side = Callable[[int, int], Sequence[float]]
"""``side(number, repeats)``: times of ``repeats`` rows of ``number`` runs, in µs per run."""

ROW_US = 200.0
"""A row of runs, where one run does not take longer.  Short against the time that an
operating system gives to one process at a stretch: of a slot's rows few are cut into."""
FEW_ROUNDS = 3
MAX_NUMBER = 100_000
MAX_NOISE = 0.05
"""Half the spread between the quartiles of the rounds' ratios above which more rounds follow."""


@dataclass(frozen=True)
class Plan:
    """How long to look: ``rounds`` of two slots each, a slot of at least ``slot_us``.

    What is more than ``hopeless`` times slower after `FEW_ROUNDS` gets no more.
    ``seconds`` bounds the rounds of kernels that take long; one is made in any case.
    """

    rounds: int
    slot_us: float
    seconds: float
    hopeless: float = math.inf


SCREENING = Plan(rounds=7, slot_us=2_000.0, seconds=5.0, hopeless=2.0)
THOROUGH = Plan(rounds=15, slot_us=4_000.0, seconds=15.0)


@dataclass
class Alternation:
    """Times per run in µs, by round, of both sides."""

    samples_us: list[float] = field(default_factory=list)
    candidate0_us: list[float] = field(default_factory=list)

    @property
    def median_us(self) -> float:
        return statistics.median(self.samples_us)

    @property
    def median0_us(self) -> float:
        return statistics.median(self.candidate0_us)

    @property
    def wins(self) -> float:
        """Return the share of rounds in which the candidate was the faster."""
        won = sum(a < b for a, b in zip(self.samples_us, self.candidate0_us))
        return won / len(self.samples_us)

    @property
    def noise(self) -> float:
        """Return half the spread between the quartiles of the ratios, over their median."""
        ratios = sorted(a / b for a, b in zip(self.samples_us, self.candidate0_us))
        quarter = len(ratios) // 4
        return (ratios[-1 - quarter] - ratios[quarter]) / 2 / statistics.median(ratios)


def alternate(candidate: Side, candidate0: Side, plan: Plan) -> Alternation:
    """Time ``candidate`` against ``candidate0``, each first in every other round.

    A slot is as many runs of one side as fill it, its time the median of its rows.
    The first slots warm up and are not counted.  Rounds that disagree are followed
    by as many again.
    """
    first, second = _Slot(candidate, plan.slot_us), _Slot(candidate0, plan.slot_us)
    affordable = max(1, int(plan.seconds * 1e6 / (first.cost_us + second.cost_us)))
    rounds = min(plan.rounds, affordable)
    found = Alternation()
    _add_rounds(found, first, second, min(rounds, FEW_ROUNDS))
    if found.median_us > plan.hopeless * found.median0_us:
        return found
    _add_rounds(found, first, second, rounds - len(found.samples_us))
    if found.noise > MAX_NOISE:
        _add_rounds(found, first, second, min(rounds, affordable - rounds))
    return found


def _add_rounds(found: Alternation, first: _Slot, second: _Slot, count: int) -> None:
    for _ in range(count):
        if len(found.samples_us) % 2 == 0:
            time, time0 = first.time(), second.time()
        else:
            time0, time = second.time(), first.time()
        found.samples_us.append(time)
        found.candidate0_us.append(time0)


class _Slot:
    """One side: how many runs make a row, and how many rows a slot."""

    def __init__(self, side: Side, slot_us: float):
        self.side = side
        self.number, self.rows = 1, 1
        self.run_us = self._fastest()
        if self.run_us < ROW_US:
            # The time of a single run is mostly the timer's: look again at a short row.
            self.number = self._runs(ROW_US / 10)
            self.run_us = self._fastest()
            self.number = self._runs(ROW_US)
        self.rows = max(1, math.ceil(slot_us / (self.number * self.run_us)))
        if self.run_us < slot_us:
            self.run_us = self._fastest()
            self.rows = max(1, math.ceil(slot_us / (self.number * self.run_us)))

    def _runs(self, row_us: float) -> int:
        return min(MAX_NUMBER, max(1, math.ceil(row_us / self.run_us)))

    def _times(self) -> list[float]:
        # What the clock cannot tell from nothing still has a ratio.
        return [max(time, 1e-4) for time in self.side(self.number, self.rows)]

    def _fastest(self) -> float:
        return min(self._times())

    @property
    def cost_us(self) -> float:
        """Return about what one slot takes: the timer runs once more, to warm up."""
        return (self.number * self.rows + 1) * self.run_us

    def time(self) -> float:
        return statistics.median(self._times())
