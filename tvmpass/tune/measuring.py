"""The loop of a tune: choose, screen, measure thoroughly, write down.

A candidate whose first, short measurement promises a new best of its kernel is
measured again, thoroughly, and only those numbers are recorded: of many noisy
numbers the best is mostly lucky.  That a thorough measurement is due is written
down too, so that a tune that was killed does not start such a candidate over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tvmpass.core.errors import TvmpassError

from .budget import Budget, screened_line, time_line
from .records import RecordFile, entry_of
from .result import BUDGET, EXHAUSTED
from .tasks import IMPROVED, ROUND, Screened, Search, Task, choose
from .work import Candidate, Job, Measurement, Runner, ratio_of

BATCH = 8
"""Candidates handed to the runner at once, at least."""
FIRST_SECONDS = 1.0
"""Guess of the time that a candidate takes, until some were measured."""
FLUSH_S = 5.0
"""Time beside the records that a kill may make forgotten."""

Recorded = Callable[[Task, Candidate, Measurement, bool], None]


class Clock:
    """Counts every second of a tune once: to a record, or as time beside them."""

    def __init__(self, file: RecordFile, model: str, budget: Budget):
        self.file, self.model, self.budget = file, model, budget
        self.beside_s = 0.0
        """Time beside the records that is not written down yet."""
        self._marked = time.monotonic()

    def mark(self) -> float:
        """Return the seconds since the last mark."""
        now = time.monotonic()
        passed, self._marked = now - self._marked, now
        return passed

    def beside(self) -> float:
        """Count the time since the last mark beside the records; write it down now and then."""
        passed = self.mark()
        self.beside_s += passed
        self.budget.spent_s += passed
        if self.beside_s >= FLUSH_S:
            self.file.append(time_line(self.model, self.beside_s))
            self.beside_s = 0.0
        return passed


class Measuring:
    """Measures candidates of ``tasks`` until the budget is used up or nothing is left.

    ``recorded`` is called after each line that is written, with whether it is the
    best of its task so far; ``open_search`` makes a task's search when its turn comes;
    ``alive`` is called now and then, and may raise.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        runner: Runner,
        file: RecordFile,
        clock: Clock,
        open_search: Callable[[Task], Search],
        recorded: Recorded,
        alive: Callable[[], None] = lambda: None,
    ):
        self.tasks, self.runner, self.file, self.clock = tasks, runner, file, clock
        self.open_search, self.recorded, self.alive = open_search, recorded, alive
        self.budget = clock.budget
        self.new = 0
        self._since = time.monotonic()

    def run(self) -> str:
        """Measure; return why it ended, `BUDGET` or `EXHAUSTED`."""
        self._since = time.monotonic()
        self._thorough()
        while not self.budget.used_up:
            size = min(max(BATCH, self.runner.workers), self.budget.left(self.seconds_each))
            chosen = choose(self.tasks, size, self.open_search)
            self.clock.beside()
            if not chosen:
                return EXHAUSTED
            self._round(chosen)
        return BUDGET

    @property
    def seconds_each(self) -> float:
        """Return how long a candidate took on average, all included."""
        return (time.monotonic() - self._since) / self.new if self.new else FIRST_SECONDS

    def _round(self, chosen: Sequence[tuple[Task, Candidate]]) -> None:
        """Screen candidates, and measure thoroughly what promises a new best."""
        touched: dict[str, tuple[Task, float, int]] = {}
        for task, _ in chosen:
            _, before, number = touched.get(task.key, (task, task.best_ratio, 0))
            touched[task.key] = (task, before, number + 1)
        self._hand_out(chosen, self._screened)
        self._thorough()
        for task, before, number in touched.values():
            improved = task.best_ratio < IMPROVED * before
            task.stale = 0 if improved else task.stale + max(1, number // ROUND)

    def _screened(self, task: Task, candidate: Candidate, measurement: Measurement) -> None:
        ratio = ratio_of(measurement)
        if ratio is None or not task.promising(ratio):
            self._record(task, candidate, measurement)
            return
        task.screened[candidate.text] = Screened(candidate, ratio, measurement)
        self.file.append(screened_line(task, candidate, ratio))
        task.spent_s += self.clock.beside()

    def _thorough(self) -> None:
        """Measure again what promised a new best, the most promising of each task first."""
        while True:
            due: list[tuple[Task, Candidate]] = []
            for task in self.tasks:
                for screened in sorted(task.screened.values(), key=lambda s: s.ratio):
                    if screened.measurement is None or task.promising(screened.ratio):
                        due.append((task, screened.candidate))
                        break
                    # Another one turned out better: the first numbers will do.
                    self._record(task, screened.candidate, screened.measurement)
            if not due:
                return
            self._hand_out(due, self._record, thorough=True)

    def _hand_out(
        self,
        chosen: Sequence[tuple[Task, Candidate]],
        done: Callable[[Task, Candidate, Measurement], None],
        thorough: bool = False,
    ) -> None:
        """Let the runner measure candidates; ``done`` gets each as it comes."""
        self.alive()
        jobs, owners = [], {}
        for task, candidate in chosen:
            assert task.workload is not None, "a remembered task is not measured"
            job = Job(task.workload, candidate, thorough)
            jobs.append(job)
            owners[id(job)] = task
        self.runner.measure(jobs, lambda job, found: done(owners.pop(id(job)), job.candidate, found))
        if owners:
            raise TvmpassError(
                f"internal: the runner {self.runner.name} left {len(owners)} jobs without an answer"
            )

    def _record(self, task: Task, candidate: Candidate, measurement: Measurement) -> None:
        """Write a candidate's line, and candidate 0's where there is none yet."""
        assert task.workload is not None
        measurement.spent_s = self.clock.mark()
        if measurement.candidate0_us is not None:
            task.candidate0_us = measurement.candidate0_us
            if not task.has_candidate0:
                self.file.append(_candidate0(task, measurement))
                task.has_candidate0 = True
        self.file.append(entry_of(task.workload, candidate, measurement))
        better = task.note(candidate, measurement.status, ratio_of(measurement), measurement.wins)
        task.spent_s += measurement.spent_s
        self.budget.recorded += 1
        self.budget.spent_s += measurement.spent_s
        self.new += 1
        if task.search is not None:
            task.search.tell(candidate, measurement)
        self.recorded(task, candidate, measurement, better)


def _candidate0(task: Task, measurement: Measurement) -> dict:
    """Return candidate 0's line, from the alternation with the first candidate."""
    assert task.workload is not None
    own = Measurement(
        status="ok",
        median_us=measurement.candidate0_us,
        candidate0_us=measurement.candidate0_us,
        features=task.features,
        worker=measurement.worker,
        checked=measurement.checked,
    )
    return entry_of(task.workload, task.workload.candidate0, own)
