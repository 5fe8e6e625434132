"""How much tuning is wanted, what of it is done, and what a record file remembers.

The budget is for the model, over all sessions: it is computed from the records,
so that a tune that was killed goes on where it stopped and one that is finished
does nothing.  Besides records a file holds *session lines*, ``{"session": {...}}``,
of these events:

- ``screened``: a candidate was measured and a thorough measurement is due;
- ``time``: time that no record accounts for (planning, searching);
- ``end``: a session ended, with the plan it followed, so that the next need not
  plan again to find that nothing is left to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tvmpass.compile.records import LogFile, TuningRecord
from tvmpass.core.errors import UsageError
from tvmpass.core.options import Options
from tvmpass.version import VERSION

from .tasks import IMPROVED, ROUND, Screened, Task
from .work import CANDIDATE, CANDIDATE0, Candidate, Measurement, ratio_of

DEFAULT_MINUTES = 10.0
SCREENED, TIME, END = "screened", "time", "end"


@dataclass
class Budget:
    """What is wanted (``trials`` or ``seconds``) and what is done, over all sessions."""

    trials: int | None
    seconds: float | None
    recorded: int = 0
    spent_s: float = 0.0

    @classmethod
    def of(cls, trials: int | None, minutes: float | None) -> Budget:
        """Check the two and return the budget; ten minutes where neither is given."""
        if trials is not None and minutes is not None:
            raise UsageError("give trials or minutes, not both")
        if trials is not None:
            if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
                raise UsageError(f"trials={trials!r}: expected a whole number, at least 1")
            return cls(trials, None)
        if minutes is None:
            minutes = DEFAULT_MINUTES
        if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 < minutes < 1e6:
            raise UsageError(f"minutes={minutes!r}: expected a number above 0 and below a million")
        return cls(None, float(minutes) * 60.0)

    @property
    def used_up(self) -> bool:
        return self.fraction >= 1.0

    @property
    def fraction(self) -> float:
        """Return the share that is used, 0 to 1."""
        done, wanted = (
            (self.recorded, self.trials) if self.trials is not None else (self.spent_s, self.seconds)
        )
        return min(done / wanted, 1.0) if wanted else 1.0

    def left(self, seconds_each: float, pending: int = 0) -> int:
        """Return how many candidates may still be begun, ``pending`` measured but not recorded."""
        if self.trials is not None:
            return max(0, self.trials - self.recorded - pending)
        assert self.seconds is not None
        if self.used_up:
            return 0
        return max(1, int((self.seconds - self.spent_s) / max(seconds_each, 1e-3)))

    def eta_s(self, seconds_each: float) -> float:
        """Return about how many seconds are left."""
        if self.trials is not None:
            return max(0, self.trials - self.recorded) * seconds_each
        assert self.seconds is not None
        return max(0.0, self.seconds - self.spent_s)


@dataclass
class Memory:
    """What a record file remembers of one model: time without records, and the last end."""

    overhead_s: float = 0.0
    end: dict[str, Any] | None = None
    told: list[tuple[Task, Candidate, Measurement]] = field(default_factory=list)
    """Measured in earlier sessions, in file order, for the searches."""


def recall(tasks: Sequence[Task], log: LogFile, model: str, budget: Budget) -> Memory:
    """Bring ``tasks`` and ``budget`` to where the record file says that they are."""
    by_key = {task.key: task for task in tasks}
    memory = Memory()
    rounds: dict[str, int] = {}
    for record in log.records:
        task = by_key.get(record.kernel_key)
        if task is None or record.recipe_version != task.recipe_version:
            continue
        ratio = ratio_of(record)
        if record.role == CANDIDATE0:
            task.has_candidate0 = True
        if record.candidate0_us is not None:
            task.candidate0_us = record.candidate0_us
        if record.role != CANDIDATE:
            continue
        candidate = Candidate(recipe=record.recipe, trace=record.trace)
        if candidate.text in task.tried:
            continue
        if record.status == "ok" and record.candidate0_us is None:
            task.seeds.append(candidate)  # from elsewhere, and compared with nothing yet
            continue
        before = task.best_ratio
        task.note(candidate, record.status, ratio, record.wins)
        task.spent_s += record.spent_s
        budget.recorded += 1
        budget.spent_s += record.spent_s
        _count_rounds(task, before, rounds)
        memory.told.append((task, candidate, _measurement(record)))
    for line in log.sessions:
        _recall_session(line, by_key, model, memory)
    budget.spent_s += memory.overhead_s
    return memory


def _count_rounds(task: Task, before: float, rounds: dict[str, int]) -> None:
    """Let every few recorded candidates without improvement count as a round."""
    if task.best_ratio < IMPROVED * before:
        task.stale = rounds[task.key] = 0
        return
    rounds[task.key] = rounds.get(task.key, 0) + 1
    if rounds[task.key] == ROUND:
        task.stale += 1
        rounds[task.key] = 0


def _recall_session(line: Mapping[str, Any], by_key: Mapping[str, Task], model: str, memory: Memory) -> None:
    event = line.get("event")
    if event == SCREENED:
        task, ratio = by_key.get(str(line.get("kernel_key"))), line.get("ratio")
        if task is None or line.get("recipe_version") != task.recipe_version:
            return
        trace = line.get("trace")
        recipe = line.get("recipe")
        if not isinstance(recipe, (str, type(None))) or not isinstance(ratio, (int, float)):
            return
        candidate = Candidate(recipe, None if trace is None else json.dumps(trace, separators=(",", ":")))
        if candidate.text not in task.tried and (recipe is None) != (trace is None):
            task.screened[candidate.text] = Screened(candidate, float(ratio))
    elif line.get("model") == model:
        seconds = line.get("overhead_s")
        if isinstance(seconds, float) and 0.0 <= seconds < 1e7:
            memory.overhead_s += seconds
        if event == END:
            memory.end = dict(line)


def screened_line(task: Task, candidate: Candidate, ratio: float) -> dict[str, Any]:
    """Return the line that says that a candidate waits for a thorough measurement."""
    return {
        "session": {
            "event": SCREENED,
            "kernel_key": task.key,
            "recipe": candidate.recipe,
            "trace": None if candidate.trace is None else json.loads(candidate.trace),
            "recipe_version": task.recipe_version,
            "ratio": round(ratio, 5),
        }
    }


def time_line(model: str, seconds: float) -> dict[str, Any]:
    """Return the line that accounts for time spent on ``model`` beside its records."""
    return {"session": {"event": TIME, "model": model, "overhead_s": round(float(seconds), 3)}}


def _measurement(record: TuningRecord) -> Measurement:
    return Measurement(
        status=record.status,
        median_us=record.median_us,
        candidate0_us=record.candidate0_us,
        wins=record.wins,
        features=None if record.features is None else list(record.features),
        cause=record.cause,
        spent_s=record.spent_s,
    )


def model_id(mod: Any, params: Mapping[str, Any] | None, device_class: str) -> str:
    """Return what tells a model (weights included) on a class of device from others."""
    parts = [f"{tvm_ffi.structural_hash(mod) & (1 << 64) - 1:016x}", device_class]
    for name in sorted(params or {}):
        array = params[name]  # type: ignore[index]
        content = array.numpy() if hasattr(array, "numpy") else array
        parts += [name, hashlib.sha256(memoryview(content).cast("B")).hexdigest()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def plan_id(
    target: Any, options: Options, rules: Iterable[Any], without: Iterable[str], rule_files: Iterable[str]
) -> str:
    """Return what, beside the model, decides about its plan and what a search tries."""
    read = [*rule_files, *([options.cost_model] if Path(options.cost_model).is_file() else [])]
    files = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in read]
    told = {key: getattr(options, spec.name) for key, spec in Options.keys().items()}
    for name in ("tvmpass.tuning_logs", "tvmpass.verify"):
        told.pop(name)
    context = [options.level, sorted(options.disabled), sorted(options.required)]
    parts = [str(target), told, context, [str(rule) for rule in rules], sorted(without), files]
    text = json.dumps([VERSION, tvm.__version__, source_id(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def source_id() -> str:
    """Hash the source of tvmpass and of the models it ships: what a plan follows from."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in ("tvmpass", "relay_passes", "tir_passes", "schedules", "tuning_logs"):
        for path in sorted((root / package).rglob("*.py")) + sorted((root / package).glob("*.model.json")):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
