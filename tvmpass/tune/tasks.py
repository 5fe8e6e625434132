"""What a session tunes: the distinct kernels of a model, costliest promise first.

A task is one distinct kernel.  Which task gets the next candidates is decided by
what they are expected to save over the whole model per second of tuning: calls x
time of a call x what the search expects, less with every round that brought
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import tvm

from tvmpass import catalogue
from tvmpass.compile.build import bind_parameters
from tvmpass.compile.context import usual_tvm_passes
from tvmpass.compile.kernel_key import kernel_key
from tvmpass.compile.pipeline import Job as Pipeline
from tvmpass.compile.pipeline import run_pipeline
from tvmpass.compile.records import GATE, MIN_WINS
from tvmpass.compile.schedule import canonical_kernel
from tvmpass.core.options import Options
from tvmpass.core.report import Ledger

from .work import CANDIDATE0, Candidate, Measurement, Workload

PRIOR = 0.8
"""Expected time, over candidate 0's, of the best schedule of a kernel not looked at yet."""
FLOOR = 0.01
"""Gain that is hoped for where the search expects none: it may be wrong."""
DECAY = 0.6
"""What a round without improvement leaves of a task's promise."""
IMPROVED = 0.99
"""A round improved a task where its best time fell below this share of the old."""
MARGIN = 0.01
"""A first measurement so far above the gate may still turn out to pass it."""
ROUND = 4
"""Candidates of one task in a row."""
FIRST_SECONDS, LEAST_SECONDS = 0.5, 0.1
"""Guess of the time that one candidate takes, until some were measured; the least it counts as."""


class Search(Protocol):
    """What a task needs of its search; `tvmpass.tune.search.TaskSearch` is one."""

    def propose(self, count: int) -> list[Candidate]:
        """Return up to ``count`` candidates to measure next; none when nothing is left."""
        ...

    def tell(self, candidate: Candidate, measurement: Measurement) -> None:
        """Take note of how a candidate went."""
        ...

    def expected(self) -> float:
        """Return the predicted time of the best one left over candidate 0's, at most 1."""
        ...

    def close(self) -> None:
        """End what the search runs."""
        ...


@dataclass(frozen=True)
class Screened:
    """A first measurement that promises a new best, to be repeated thoroughly."""

    candidate: Candidate
    ratio: float
    measurement: Measurement | None = None
    """None where an earlier session took it."""


@dataclass(eq=False)
class Task:
    """One distinct kernel of the model, and how far its tuning got.

    Times are µs per call; ``best_ratio`` is the best candidate's time over that of
    candidate 0 in the same alternation, 1 while none beats it beyond the gate.
    """

    key: str
    kind: str
    recipe_version: int
    candidate0: str
    """Text of the library's own choice."""
    names: list[str]
    origin: list[str]
    calls: int
    predicted_us: float
    workload: Workload | None = None
    """None for a task that is only remembered, not planned."""
    features: list[float] | None = None
    """Candidate 0's, for its record."""
    candidate0_us: float | None = None
    best: Candidate | None = None
    best_ratio: float = 1.0
    tried: dict[str, str] = field(default_factory=dict)
    """Status by the text of each candidate that has a record."""
    screened: dict[str, Screened] = field(default_factory=dict)
    """Measured and promising, but not recorded: a thorough measurement is due."""
    seeds: list[Candidate] = field(default_factory=list)
    """Known to be good elsewhere, but not measured here: tried first."""
    has_candidate0: bool = False
    """A line of candidate 0 is in the record file."""
    stale: int = 0
    """Rounds in a row without improvement."""
    spent_s: float = 0.0
    exhausted: bool = False
    search: Search | None = None

    @property
    def call_us(self) -> float:
        """Return the time of a call of candidate 0: measured, else predicted."""
        return self.predicted_us if self.candidate0_us is None else self.candidate0_us

    @property
    def cost_us(self) -> float:
        """Return what the kernel costs in one run of the model, as untuned."""
        return self.calls * self.call_us

    def promise(self, rounds: int = 0) -> float:
        """Return the µs per run of the model that a second of tuning may save.

        ``rounds`` are rounds already planned whose outcome is not known: they
        count as if they had brought nothing.
        """
        if self.exhausted:
            return 0.0
        expected = PRIOR * self.best_ratio
        if self.search is not None and not self.seeds:
            expected = self.search.expected()
        gain = max(self.best_ratio - expected, FLOOR * self.best_ratio)
        done = len(self.tried)
        seconds = (self.spent_s + 2 * FIRST_SECONDS) / (done + 2)
        return self.cost_us * gain * DECAY ** (self.stale + rounds) / max(seconds, LEAST_SECONDS)

    def take_seeds(self) -> list[Candidate]:
        """Return the seeds that have no record yet, once."""
        seeds, self.seeds = self.seeds, []
        return [seed for seed in seeds if seed.text not in self.tried and seed.text != self.candidate0]

    def promising(self, ratio: float | None) -> bool:
        """Return True where a first measurement calls for a thorough one."""
        return ratio is not None and ratio < min(self.best_ratio, GATE + MARGIN)

    def note(self, candidate: Candidate, status: str, ratio: float | None, wins: float | None) -> bool:
        """Take note of a recorded candidate; return whether it is the new best."""
        self.tried[candidate.text] = status
        self.screened.pop(candidate.text, None)
        if status != "ok" or ratio is None or ratio > GATE or (wins is not None and wins < MIN_WINS):
            return False
        if ratio >= self.best_ratio:
            return False
        self.best, self.best_ratio = candidate, ratio
        return True


def choose(
    tasks: Sequence[Task], count: int, open_search: Callable[[Task], Search]
) -> list[tuple[Task, Candidate]]:
    """Return up to ``count`` candidates to measure next, those of most promise first.

    A search is opened when its task's turn comes; one that has nothing left makes
    its task exhausted.
    """
    chosen: list[tuple[Task, Candidate]] = []
    planned: dict[str, int] = {}
    while len(chosen) < count:
        open_tasks = [task for task in tasks if not task.exhausted]
        if not open_tasks:
            break
        task = max(open_tasks, key=lambda t: t.promise(planned.get(t.key, 0)))
        if task.search is None:
            task.search = open_search(task)
            continue  # what it expects is known now: the choice may fall on another task
        taken = {c.text for t, c in chosen if t is task} | task.tried.keys() | task.screened.keys()
        proposed = task.take_seeds() or task.search.propose(min(ROUND, count - len(chosen)))
        fresh = [candidate for candidate in proposed if candidate.text not in taken]
        if not fresh:  # nothing is left, or nothing that was not measured
            task.exhausted = True
            task.search.close()
        planned[task.key] = planned.get(task.key, 0) + 1
        chosen += [(task, candidate) for candidate in fresh]
    return chosen


def plan_tasks(
    mod: Any,
    target: tvm.target.Target,
    options: Options,
    device_class: str,
    *,
    params: Any = None,
    rules: Sequence[Any] | None = None,
    without: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Task], Pipeline]:
    """Plan ``mod`` as a build does and return its distinct kernels, costliest first.

    The plan does not depend on tuning records, so that what is tuned is what a
    build will look for.
    """
    options = replace(options, tuning_logs="off", verify="structure")
    every = catalogue.check_unique(tuple(rules) if rules is not None else catalogue.rules())
    active, disabled = catalogue.select(every, options, without)
    pipeline = Pipeline(target, options, active, Ledger(disabled=disabled), progress=progress)
    with usual_tvm_passes():
        run_pipeline(bind_parameters(mod, params), pipeline)
    tasks: dict[str, Task] = {}
    for entry in pipeline.kernels:
        function = canonical_kernel(pipeline.unscheduled[entry.name])
        key = kernel_key(function, device_class, options)
        if key in tasks:
            task = tasks[key]
            task.names.append(entry.name)
            task.calls += entry.calls
            task.origin += [node for node in entry.origin if node not in task.origin]
            continue
        made = pipeline.scheduled[entry.name]
        recipe = made.schedule.removeprefix("library:") if made.schedule.startswith("library:") else None
        workload = Workload(
            kernel_key=key,
            kind=entry.kind,
            function=function,
            target=target,
            options=options,
            device_class=device_class,
            recipe_version=catalogue.recipe_version(entry.kind, target.kind.name),
            candidate0=Candidate(recipe=recipe, role=CANDIDATE0),
        )
        predicted = entry.predicted.mean if entry.predicted is not None else 0.0
        features = [float(value) for value in made.features] if made.features is not None else None
        tasks[key] = Task(
            key,
            entry.kind,
            workload.recipe_version,
            workload.candidate0.text,
            [entry.name],
            list(entry.origin),
            entry.calls,
            predicted,
            workload,
            features,
        )
    return sorted(tasks.values(), key=lambda task: (-task.cost_us, task.key)), pipeline
