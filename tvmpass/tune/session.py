"""One tune: from a module to records that make it faster, in one call.

The session takes the lock of the record file, plans the model, reads what the
file already holds of its kernels, and measures candidate after candidate until
the budget is used up.  A candidate that promises a new best is measured again,
thoroughly, before it is recorded: of many noisy first numbers the best is mostly
lucky, and only the second one counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvmpass import catalogue
from tvmpass.compile.context import read_options
from tvmpass.compile.latency import Latency
from tvmpass.compile.records import read_file
from tvmpass.compile.target import describe_target, parse_target
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.core.rule import Rule
from tvmpass.cost.device import device_class as class_of

from . import progress as shown
from .budget import END, Budget, model_id, plan_id, ratio_of, recall, screened_line, time_line
from .progress import Progress, Watcher
from .records import RecordFile, entry_of
from .refit import SessionModel
from .remember import remembered_tasks, task_lines
from .result import ALREADY, BUDGET, EXHAUSTED, INTERRUPTED, ModelCheck, TaskResult, TuneResult
from .tasks import IMPROVED, ROUND, Screened, Search, Task, choose, plan_tasks
from .work import Candidate, Job, Measurement, Runner

FOLDER = "tuning_logs"
"""Where records go, below the current folder, where nothing else is said."""
BATCH = 8
"""Candidates per worker that are handed to the runner at once."""
FIRST_SECONDS = 2.0
FLUSH_S = 5.0
"""Time without records that may be lost by a kill."""


class TuneInterrupted(KeyboardInterrupt):
    """A tune was interrupted; ``result`` holds what it found until then."""

    def __init__(self, result: TuneResult):
        super().__init__("interrupted")
        self.result = result


def tune(
    mod: Any,
    target: Any = "llvm",
    *,
    logs: str | os.PathLike | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    runner: Runner | None = None,
    rpc: str | None = None,
    rpc_key: str | None = None,
    params: Mapping[str, Any] | None = None,
    rules: Sequence[Rule] | None = None,
    rule_files: Sequence[str | os.PathLike] = (),
    without: Sequence[str] = (),
    collect: bool = False,
    progress: Watcher | None = None,
    wait: bool = True,
) -> TuneResult:
    """Measure schedules of a model's kernels and keep records that builds use.

    ``mod`` is a Relax module (`tvmpass.load`), ``target`` as in `tvmpass.build`;
    the thread count and all else come from the current `tvmpass.PassContext`.
    Records go into the folder ``logs`` (default: that of the option
    ``tvmpass.tuning_logs``, else ``./tuning_logs``), where builds find them.

    The budget, over all tunes of this model on this folder together, is either
    ``trials``, a number of distinct candidates, or ``minutes`` of wall time; ten
    minutes where neither is given.  A tune whose budget is used up does nothing.
    At the end the whole model is timed tuned against untuned.

    ``rpc`` (``HOST:PORT`` of a tracker) and ``rpc_key`` measure on other
    machines; ``runner`` replaces both.  ``rule_files`` are Python files with
    further rules and recipes; they are executed.  ``collect`` also measures
    fusion alternatives, for `tvmpass train`.  ``progress`` is called with a
    `Progress` at every step; ``progress=print`` shows a line each.  Without
    ``wait`` a folder that another tune writes is an error.

    Raises `UsageError` for wrong arguments, `TvmpassError` where the target has no
    device and no tracker, the folder cannot be written, or nothing can be
    measured any more; `TuneInterrupted` (a KeyboardInterrupt with the result) on
    Ctrl-C.  Whatever was measured is on record in each case.
    """
    budget = Budget.of(trials, minutes)
    options, notes = read_options()
    resolved = parse_target(target, options.threads)
    files = [str(Path(path).resolve()) for path in rule_files]
    added = [rule for path in files for rule in catalogue.rules_from_file(path)]
    base = tuple(rules) if rules is not None else catalogue.rules()
    every = catalogue.check_unique(
        (*base, *(rule for rule in added if rule.name not in {r.name for r in base}))
    )
    own = runner is None
    if runner is None:
        from .runners import make_runner

        runner = make_runner(resolved, options, rpc=rpc, rpc_key=rpc_key, rule_files=files)
    elif rpc is not None:
        raise UsageError("give a runner or rpc=, not both")
    try:
        session = Session(mod, resolved, options, runner, budget, progress, notes)
        session.params, session.rules, session.without, session.rule_files = (
            params,
            every,
            tuple(without),
            files,
        )
        session.collect, session.remote = collect, rpc is not None
        return session.run(Path(logs) if logs is not None else _folder(options), wait)
    finally:
        if own:
            runner.close()


def _folder(options: Options) -> Path:
    return Path(FOLDER if options.tuning_logs in ("lookup", "off") else options.tuning_logs)


class Session:
    """The state of one tune; `run` does it all."""

    params: Mapping[str, Any] | None = None
    rules: Sequence[Rule] = ()
    without: tuple[str, ...] = ()
    rule_files: Sequence[str] = ()
    collect = False
    remote = False

    def __init__(
        self,
        mod: Any,
        target: Any,
        options: Options,
        runner: Runner,
        budget: Budget,
        progress: Watcher | None = None,
        notes: Sequence[str] = (),
    ):
        self.mod, self.target, self.options = mod, target, options
        self.runner, self.budget, self.watcher = runner, budget, progress
        self.device_class = class_of(target, options.threads)
        self.notes = list(notes)
        self.tasks: list[Task] = []
        self.new = 0
        self.check: ModelCheck | None = None
        self.fusion: dict[str, Any] | None = None
        self.exhausted = False
        self._start = self._marked = time.monotonic()
        self._overhead = 0.0
        self._measuring_s = 0.0
        self._opened: list[Search] = []
        self._traces: Any = None

    def run(self, folder: Path, wait: bool) -> TuneResult:
        """Tune until the budget is used up or nothing is left; return the figures."""
        self._stage("opening the records")
        facts = self.runner.facts
        with RecordFile.open(folder, self.device_class, facts, wait, self._waiting) as file:
            self._mark()  # waiting for another tune is no time spent on this one
            self.file = file
            try:
                return self._run()
            except KeyboardInterrupt as error:
                self._end(INTERRUPTED)
                raise TuneInterrupted(self._result(INTERRUPTED)) from error
            finally:
                self._close()

    def _run(self) -> TuneResult:
        self.model = model_id(self.mod, self.params, self.device_class)
        self.plan = plan_id(self.target, self.options, self.rules, self.without, self.rule_files)
        log = read_file(self.file.path)
        self.notes += [*self.file.notes, *log.problems]
        already = self._already(log)
        if already is not None:
            return already
        self._stage("planning the model")
        self.tasks, pipeline = plan_tasks(
            self.mod,
            self.target,
            self.options,
            self.device_class,
            params=self.params,
            rules=self.rules,
            without=self.without,
        )
        memory = recall(self.tasks, log, self.model, self.budget)
        self.memory = memory
        known = memory.end is not None and memory.end.get("plan") == self.plan
        if known and memory.end is not None:
            self.exhausted = memory.end.get("exhausted") is True
            self.check = _read_check(memory.end.get("check"))
        due = any(task.screened for task in self.tasks)
        if not due and not self.collect and (self.budget.used_up or self.exhausted):
            if not known:
                self._end(ALREADY)
            return self._result(ALREADY)
        reason = self._search(pipeline.latency)
        if self.collect:
            self._collect()
        if self.new or (self.check is None and any(task.best for task in self.tasks)):
            self._check_model()
        self._end(reason)
        return self._result(reason)

    def _already(self, log) -> TuneResult | None:
        """Return the result of a tune that has nothing to do, without planning the model again."""
        tasks, end = remembered_tasks(log.sessions, self.model, self.plan)
        if not tasks or self.collect:
            return None
        budget = Budget(self.budget.trials, self.budget.seconds)
        recall(tasks, log, self.model, budget)
        if any(task.screened for task in tasks) or not (budget.used_up or end.get("exhausted") is True):
            return None
        self.tasks, self.budget, self.check = tasks, budget, _read_check(end.get("check"))
        return self._result(ALREADY)

    def _search(self, latency: Latency) -> str:
        """Measure candidates until the budget is used up or nothing is left."""
        self._latency = latency
        self._model = SessionModel(latency, self.options.seed)
        self._spend_overhead()
        self._thorough()
        while not self.budget.used_up:
            size = min(max(BATCH, self.runner.workers), self.budget.left(self._seconds_each))
            chosen = choose(self.tasks, size, self._open)
            self._spend_overhead()
            if not chosen:
                self.exhausted = True
                return EXHAUSTED
            self._measure(chosen)
            self._thorough()
        return BUDGET

    def _open(self, task: Task) -> Search:
        """Open a task's search and tell it what earlier sessions measured."""
        from .search import TaskSearch

        assert task.workload is not None
        search = TaskSearch(
            task.workload,
            self._latency,
            self._model,
            task.tried.keys(),
            rule_files=self.rule_files,
            traces=self._trace_source(),
        )
        self._opened.append(search)
        for known, candidate, measurement in self.memory.told:
            if known is task:
                search.tell(candidate, measurement)
        return search

    def _trace_source(self) -> Any:
        if self._traces is None:
            from .metaschedule import MetaSchedule

            self._traces = MetaSchedule()
        return self._traces

    def _measure(self, chosen: Sequence[tuple[Task, Candidate]]) -> None:
        """Screen candidates; what promises a new best waits for a thorough measurement."""
        best = {task.key: task.best_ratio for task, _ in chosen}
        rounds: dict[str, int] = {}
        for task, _ in chosen:
            rounds[task.key] = rounds.get(task.key, 0) + 1

        def done(task: Task, candidate: Candidate, measurement: Measurement) -> None:
            ratio = ratio_of(measurement)
            if ratio is None or not task.promising(ratio):
                self._record(task, candidate, measurement)
                return
            task.screened[candidate.text] = Screened(candidate, ratio, measurement)
            self.file.append(screened_line(task, candidate, ratio))
            task.spent_s += self._spend_overhead()

        self._hand_out(chosen, done)
        self._thorough()
        for task in {id(task): task for task, _ in chosen}.values():
            if task.best_ratio < IMPROVED * best[task.key]:
                task.stale = 0
            else:
                task.stale += max(1, rounds[task.key] // ROUND)

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
        jobs, owner = [], {}
        for task, candidate in chosen:
            assert task.workload is not None
            job = Job(task.workload, candidate, thorough)
            jobs.append(job)
            owner[id(job)] = task

        def take(job: Job, measurement: Measurement) -> None:
            done(owner.pop(id(job)), job.candidate, measurement)

        begin = time.monotonic()
        self.runner.measure(jobs, take)
        self._measuring_s += time.monotonic() - begin
        if owner:
            raise TvmpassError(
                f"internal: the runner {self.runner.name} left {len(owner)} jobs without an answer"
            )

    def _record(self, task: Task, candidate: Candidate, measurement: Measurement) -> None:
        """Write a candidate's line, and candidate 0's where there is none yet."""
        assert task.workload is not None
        measurement.spent_s = self._mark()
        if measurement.candidate0_us is not None:
            task.candidate0_us = measurement.candidate0_us
            if not task.has_candidate0:
                self.file.append(self._candidate0(task, measurement))
                task.has_candidate0 = True
        self.file.append(entry_of(task.workload, candidate, measurement))
        better = task.note(candidate, measurement.status, ratio_of(measurement), measurement.wins)
        task.spent_s += measurement.spent_s
        self.budget.recorded += 1
        self.budget.spent_s += measurement.spent_s
        self.new += 1
        if task.search is not None:
            task.search.tell(candidate, measurement)
        self._say(shown.BETTER if better else shown.MEASURED, _outcome(candidate, measurement), task)

    def _candidate0(self, task: Task, measurement: Measurement) -> dict[str, Any]:
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

    def _check_model(self) -> None:
        """Time the whole model tuned against untuned; the result says how it came out."""
        from .model_check import check_model

        if not any(task.best for task in self.tasks):
            self.check = ModelCheck(reason="no kernel got a faster schedule: both are the same")
            return
        if self.remote:
            self.check = ModelCheck(reason="the kernels were measured on other machines")
            return
        self.check = check_model(
            self.mod,
            self.target,
            self.options,
            self.file.path.parent,
            params=self.params,
            rules=self.rules,
            without=self.without,
            progress=self._stage,
        )
        self._mark()

    def _collect(self) -> None:
        from .fusion_alternatives import collect

        self._stage("measuring fusion alternatives")
        self.fusion = collect(self)

    @property
    def _seconds_each(self) -> float:
        return self._measuring_s / self.new if self.new else FIRST_SECONDS

    def _mark(self) -> float:
        """Return the wall time since the last mark: every second is counted once."""
        now = time.monotonic()
        passed, self._marked = now - self._marked, now
        return passed

    def _spend_overhead(self) -> float:
        """Count the time since the last mark as overhead; write it down now and then."""
        passed = self._mark()
        self._overhead += passed
        self.budget.spent_s += passed
        if self._overhead >= FLUSH_S:
            self.file.append(time_line(self.model, self._overhead))
            self._overhead = 0.0
        return passed

    def _end(self, reason: str) -> None:
        """Write the line that ends a session."""
        self.file.append(
            {
                "session": {
                    "event": END,
                    "model": self.model,
                    "plan": self.plan,
                    "name": _model_name(self.mod),
                    "reason": reason,
                    "exhausted": self.exhausted,
                    "recorded": self.budget.recorded,
                    "new": self.new,
                    "overhead_s": round(self._overhead, 3),
                    "check": None if self.check is None else asdict(self.check),
                    "tasks": task_lines(self.tasks),
                }
            }
        )
        self._overhead = 0.0

    def _close(self) -> None:
        for search in self._opened:
            search.close()
        if self._traces is not None:
            self._traces.close()
            self.notes += self._traces.problems

    def _result(self, reason: str) -> TuneResult:
        return TuneResult(
            model=_model_name(self.mod),
            target=describe_target(self.target),
            device_class=self.device_class,
            path=str(self.file.path),
            reason=reason,
            trials=self.budget.trials,
            minutes=None if self.budget.seconds is None else self.budget.seconds / 60.0,
            recorded=self.budget.recorded,
            new=self.new,
            spent_s=self.budget.spent_s,
            elapsed_s=time.monotonic() - self._start,
            tasks=[_task_result(task) for task in self.tasks],
            check=self.check,
            fusion=self.fusion,
            notes=self.notes,
        )

    def _waiting(self, text: str) -> None:
        self._say(shown.NOTE, text)

    def _stage(self, text: str) -> None:
        self._say(shown.STAGE, text)

    def _say(self, kind: str, text: str, task: Task | None = None) -> None:
        if self.watcher is None:
            return
        cost = sum(t.cost_us for t in self.tasks)
        tuned = sum(t.cost_us * t.best_ratio for t in self.tasks)
        self.watcher(
            Progress(
                kind=kind,
                text=text,
                elapsed_s=time.monotonic() - self._start,
                fraction=self.budget.fraction,
                eta_s=self.budget.eta_s(self._seconds_each) if task is not None else None,
                recorded=self.budget.recorded,
                trials=self.budget.trials,
                kernel="" if task is None else task.names[0],
                position=0 if task is None else self.tasks.index(task) + 1,
                kernels=len(self.tasks),
                best=1.0 if task is None else 1.0 / task.best_ratio,
                gain=cost / tuned if tuned else 1.0,
            )
        )


def _outcome(candidate: Candidate, measurement: Measurement) -> str:
    what = candidate.recipe if candidate.recipe is not None else "a trace of MetaSchedule"
    if measurement.status == "ok":
        return what
    return f"{what}: {measurement.status}" + (f" ({measurement.cause})" if measurement.cause else "")


def _task_result(task: Task) -> TaskResult:
    failed: dict[str, int] = {}
    for status in task.tried.values():
        if status != "ok":
            failed[status] = failed.get(status, 0) + 1
    best = None
    if task.best is not None:
        best = task.best.recipe if task.best.recipe is not None else "trace"
    return TaskResult(
        kernel_key=task.key,
        name=task.names[0],
        kind=task.kind,
        calls=task.calls,
        origin=task.origin,
        candidate0=task.candidate0,
        candidate0_us=task.call_us,
        measured=task.candidate0_us is not None,
        best_ratio=task.best_ratio,
        best=best,
        tried=len(task.tried),
        failed=failed,
        spent_s=task.spent_s,
    )


def _read_check(data: Any) -> ModelCheck | None:
    """Return the check of an earlier session; a form that is not ours is none."""
    if not isinstance(data, dict):
        return None
    try:
        return ModelCheck(**data)
    except TypeError:
        return None


def _model_name(mod: Any) -> str:
    attrs = mod["main"].attrs
    return str(attrs["tvmpass.model"]) if attrs and "tvmpass.model" in attrs else "module"
