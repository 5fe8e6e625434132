"""What a tuning session hands to a runner, and what it gets back.

A *workload* is one unscheduled kernel on one class of device.  A *candidate* is
one way to schedule it.  A *job* is a candidate to be built, checked against the
unscheduled kernel, and timed in alternation with the library's own choice
(candidate 0); its *measurement* says how that went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import tirx

from tvmpass.compile.records import TuningRecord
from tvmpass.core.options import Options

CANDIDATE0 = "candidate0"
CANDIDATE = "candidate"
TRAIN = "train"

STATUSES = ("ok", "crash", "timeout", "memory", "wrong")
"""How a measurement may end, as records spell it."""


@dataclass(frozen=True)
class Candidate:
    """One way to schedule a kernel: a recipe, a MetaSchedule trace, or neither.

    ``recipe`` is a recipe's text, ``trace`` a trace's JSON text; at most one is
    given.  With neither the kernel gets the library's fallback schedule.
    """

    recipe: str | None = None
    trace: str | None = None
    role: str = CANDIDATE

    @property
    def text(self) -> str:
        """Return what tells it from others of its kernel, as in a record's key."""
        return self.recipe if self.recipe is not None else self.trace or "fallback"


@dataclass(frozen=True, eq=False)
class Workload:
    """One unscheduled kernel to tune, its attributes and name stripped."""

    kernel_key: str
    kind: str
    function: tirx.PrimFunc
    target: tvm.target.Target
    options: Options
    device_class: str
    recipe_version: int
    candidate0: Candidate
    """The library's own choice, which every candidate is timed against."""


@dataclass(frozen=True, eq=False)
class Job:
    """A candidate to measure; ``thorough`` asks for more rounds and special values."""

    workload: Workload
    candidate: Candidate
    thorough: bool = False


@dataclass
class Measurement:
    """How a job went; times are µs per call, both sides from the same alternation.

    ``cause`` says in one line why it is not ``ok``, and else what is worth
    knowing.  ``spent_s`` is the wall time that it took, compiling included.
    """

    status: str
    median_us: float | None = None
    samples_us: list[float] = field(default_factory=list)
    candidate0_us: float | None = None
    wins: float | None = None
    """Share of the alternated rounds in which it was faster than candidate 0."""
    features: list[float] | None = None
    cause: str | None = None
    spent_s: float = 0.0
    worker: str = ""
    """Which machine measured it."""
    checked: str = "reference"
    """What its numbers were compared with: the unscheduled kernel (``reference``), or
    ``candidate0`` where that would take too long."""


def ratio_of(record: TuningRecord | Measurement) -> float | None:
    """Return time over candidate 0's in the same alternation, None where it failed."""
    if record.status != "ok" or not record.median_us or not record.candidate0_us:
        return None
    return record.median_us / record.candidate0_us


class Runner(Protocol):
    """Builds and measures jobs somewhere, each in a process that may die alone.

    ``workers`` is how many jobs it can have in hand at once; ``facts`` go into the
    record file's header (host, mcpu; CUDA: sms, name).
    """

    @property
    def name(self) -> str: ...

    @property
    def workers(self) -> int: ...

    @property
    def facts(self) -> dict[str, Any]: ...

    def measure(self, jobs: Sequence[Job], done: Callable[[Job, Measurement], None]) -> None:
        """Measure ``jobs``; call ``done`` in this thread for each, as results come.

        A job that crashes, hangs, takes too much memory or computes wrong numbers
        is a `Measurement` with that status, never an exception.  Raises
        `TvmpassError` only where nothing can be measured any more.
        """
        ...

    def close(self) -> None:
        """End every process; also after an exception, also twice."""
        ...
