"""One tune: from a module to records that make it faster, in one call.

The session takes the lock of the record file, plans the model, reads what the
file already holds of its kernels, and measures candidate after candidate until
the budget is used up.  Then it times the whole model, tuned against untuned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tvmpass import catalogue
from tvmpass.compile.build import bind_parameters
from tvmpass.compile.context import read_options
from tvmpass.compile.pipeline import Job as Pipeline
from tvmpass.compile.records import LogFile, Records, read_file
from tvmpass.compile.target import describe_target, parse_target
from tvmpass.core.errors import UsageError
from tvmpass.core.options import Options
from tvmpass.core.rule import Rule
from tvmpass.cost import dataset
from tvmpass.cost.device import device_class as class_of

from .budget import END, Budget, Memory, model_id, plan_id, recall
from .interrupts import Interrupts
from .measuring import Clock, Measuring
from .progress import Teller, Watcher
from .records import RecordFile, entry_of
from .refit import SessionModel
from .remember import remembered_tasks, task_lines
from .result import ALREADY, EXHAUSTED, INTERRUPTED, ModelCheck, TuneResult, task_result
from .tasks import Search, Task, plan_tasks
from .work import Candidate, Measurement, Runner, Workload

FOLDER = "tuning_logs"
"""Where records go, below the current folder, where nothing else is said."""


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
    # Checked before anything is written.
    catalogue.select(every, options, without)
    bind_parameters(mod, params)
    own = runner is None
    if runner is None:
        from .runners import make_runner

        runner = make_runner(resolved, options, rpc=rpc, rpc_key=rpc_key, rule_files=files)
    elif rpc is not None:
        raise UsageError("give a runner or rpc=, not both")
    folder = Path(logs) if logs is not None else _folder(options)
    try:
        with Interrupts() as interrupts:
            session = Session(mod, resolved, options, runner, budget, progress, notes, interrupts)
            session.params, session.rules, session.without = params, every, tuple(without)
            session.rule_files, session.collect, session.remote = files, collect, rpc is not None
            return session.run(folder, wait)
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
        interrupts: Interrupts | None = None,
    ):
        self.mod, self.target, self.options = mod, target, options
        self.runner, self.budget, self.tell = runner, budget, Teller(progress, interrupts or Interrupts())
        self.device_class = class_of(target, options.threads)
        self.notes = list(notes)
        self.tasks: list[Task] = []
        self.memory = Memory()
        self.check: ModelCheck | None = None
        self.fusion: dict[str, Any] | None = None
        self.exhausted = False
        self.measuring: Measuring | None = None
        self._opened: list[Search] = []
        self._traces: Any = None

    def run(self, folder: Path, wait: bool) -> TuneResult:
        """Tune until the budget is used up or nothing is left; return the figures."""
        self.tell.stage("opening the records")
        with RecordFile.open(folder, self.device_class, self.runner.facts, wait, self.tell.note) as file:
            self.file = file
            self.model = model_id(self.mod, self.params, self.device_class)
            self.plan = plan_id(self.target, self.options, self.rules, self.without, self.rule_files)
            self.clock = Clock(file, self.model, self.budget)
            try:
                return self._run()
            except KeyboardInterrupt as error:
                raise self._interrupted() from error
            except Exception as error:
                try:
                    self.tell.alive()
                except KeyboardInterrupt:  # which became that error inside TVM
                    raise self._interrupted() from error
                raise
            finally:
                self._close()

    def _run(self) -> TuneResult:
        log = read_file(self.file.path)
        self.notes += [*self.file.notes, *log.problems]
        if self._is_remembered(log):
            return self._result(ALREADY)
        self.tell.stage("planning the model")
        self.tasks, pipeline = plan_tasks(
            self.mod,
            self.target,
            self.options,
            self.device_class,
            params=self.params,
            rules=self.rules,
            without=self.without,
            progress=lambda _: self.tell.alive(),
        )
        self.memory = recall(self.tasks, log, self.model, self.budget)
        self._recall_end(self.memory.end or {})
        due = any(task.screened for task in self.tasks)
        if not due and not self.collect and (self.budget.used_up or self.exhausted):
            if (self.memory.end or {}).get("check") is None:
                self._check_model()  # the last session did not come to that
            self._end(ALREADY)
            return self._result(ALREADY)
        self._seed()
        self._latency, self._model = pipeline.latency, SessionModel(pipeline.latency, self.options.seed)
        self.clock.beside()
        self.measuring = Measuring(
            self.tasks, self.runner, self.file, self.clock, self._open, self.tell.recorded, self.tell.alive
        )
        self.tell.measuring = self.measuring
        self.tell.stage(f"looking for candidates for {len(self.tasks)} kernels")
        reason = self.measuring.run()
        self.exhausted = reason == EXHAUSTED
        if self.collect:
            self._collect(pipeline)
        if self.new or self.check is None:
            self._check_model()
        self._end(reason)
        return self._result(reason)

    @property
    def new(self) -> int:
        """Return how many candidates this session recorded."""
        return self.measuring.new if self.measuring is not None else 0

    def _is_remembered(self, log: LogFile) -> bool:
        """Find out, without planning the model again, whether there is nothing to do."""
        tasks, end = remembered_tasks(log.sessions, self.model, self.plan)
        if not tasks or self.collect or end.get("check") is None:
            return False
        budget = Budget(self.budget.trials, self.budget.seconds)
        recall(tasks, log, self.model, budget)
        if any(task.screened for task in tasks) or not (budget.used_up or end.get("exhausted") is True):
            return False
        self.tasks, self.budget = tasks, budget
        self._recall_end(end)
        return True

    def _recall_end(self, end: Mapping[str, Any]) -> None:
        """Take over how the last session of this model and plan ended."""
        if end.get("plan") == self.plan:
            self.exhausted = end.get("exhausted") is True
            self.check = _read_check(end.get("check"))

    def _seed(self) -> None:
        """Let what builds would use, but was not measured here, be tried first."""
        options = replace(self.options, tuning_logs=str(self.file.path.parent))
        found = Records.of(options, self.target, self.device_class)
        for task in self.tasks:
            record = found.best(task.key)
            if record is not None and record.text not in task.tried:
                task.seeds.insert(0, Candidate(recipe=record.recipe, trace=record.trace))

    def _open(self, task: Task) -> Search:
        """Open a task's search and tell it what earlier sessions measured."""
        from .metaschedule import MetaSchedule
        from .search import TaskSearch

        self.tell.alive()
        if self._traces is None:
            self._traces = MetaSchedule()
        assert task.workload is not None
        search = TaskSearch(
            task.workload,
            self._latency,
            self._model,
            task.tried.keys(),
            rule_files=self.rule_files,
            traces=self._traces,
        )
        self._opened.append(search)
        for known, candidate, measurement in self.memory.told:
            if known is task:
                search.tell(candidate, measurement)
        return search

    def _check_model(self) -> None:
        """Time the whole model tuned against untuned; the result says how it came out."""
        from .model_check import check_model

        if not any(task.best for task in self.tasks):
            self.check = ModelCheck(reason="no kernel got a faster schedule: both are the same")
        elif self.remote:
            self.check = ModelCheck(reason="the kernels were measured on other machines")
        else:
            self.check = check_model(
                self.mod,
                self.target,
                self.options,
                self.file.path.parent,
                params=self.params,
                rules=self.rules,
                without=self.without,
                progress=self.tell.stage,
            )

    def _collect(self, pipeline: Pipeline) -> None:
        """Measure the model's fusion alternatives, those that have no lines yet."""
        from .fusion_alternatives import as_json, collect

        self.tell.stage("measuring fusion alternatives")
        path = self.file.path
        known = {line.group_key for line in dataset.read([path], self.device_class).alternatives}

        def write(workload: Workload, candidate: Candidate, measurement: Measurement) -> None:
            self.file.append(entry_of(workload, candidate, measurement))

        self.fusion = as_json(
            collect(pipeline, self.runner, self.device_class, known, write, self.file.append, self.tell.stage)
        )

    def _interrupted(self) -> TuneInterrupted:
        self._end(INTERRUPTED)
        return TuneInterrupted(self._result(INTERRUPTED))

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
                    "overhead_s": round(self.clock.beside_s, 3),
                    "check": None if self.check is None else asdict(self.check),
                    "tasks": task_lines(self.tasks),
                }
            }
        )

    def _close(self) -> None:
        for search in self._opened:
            search.close()
        if self._traces is not None:
            self._traces.close()

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
            elapsed_s=self.tell.elapsed_s,
            tasks=[task_result(task) for task in self.tasks],
            check=self.check,
            fusion=self.fusion,
            notes=[*self.notes, *(self._traces.problems if self._traces is not None else ())],
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
