"""What is wanted, what is done, and what session lines of a file are believed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tvmpass
from tests.tune.stubs import CONFIG, model
from tvmpass.compile.context import read_options
from tvmpass.compile.record_files import LogFile
from tvmpass.tune.budget import Budget, model_id, plan_id, recall, screened_line, time_line
from tvmpass.tune.remember import remembered_tasks, task_lines
from tvmpass.tune.tasks import Task
from tvmpass.tune.work import Candidate

KEY = "a" * 64


def task() -> Task:
    return Task(KEY, "matmul", 3, "c0", ["kernel"], ["node"], 2, 10.0)


def log(*sessions: dict) -> LogFile:
    return LogFile("logs", sessions=[json.loads(json.dumps(s)) for s in sessions])


def test_ten_minutes_are_the_default():
    assert Budget.of(None, None).seconds == 600.0
    assert Budget.of(7, None).trials == 7 and Budget.of(None, 0.5).seconds == 30.0


def test_trials_left_do_not_count_what_waits():
    budget = Budget.of(10, None)
    budget.recorded = 7
    assert budget.left(2.0) == 3 and budget.left(2.0, pending=2) == 1 and budget.left(2.0, pending=9) == 0
    assert budget.eta_s(2.0) == 6.0 and budget.fraction == 0.7 and not budget.used_up


def test_time_left_is_counted_in_candidates():
    budget = Budget.of(None, 1.0)
    budget.spent_s = 50.0
    assert budget.left(2.0) == 5 and budget.left(100.0) == 1
    budget.spent_s = 60.0
    assert budget.left(2.0) == 0 and budget.used_up and budget.eta_s(1.0) == 0.0


def test_time_beside_records_belongs_to_its_model():
    budget = Budget.of(None, 1.0)
    lines = [time_line("mine", 12.5)["session"], time_line("other", 99.0)["session"]]
    lines += [{"event": "time", "model": "mine", "overhead_s": bad} for bad in (-5, "x", None, True, 1e99)]
    recall([task()], log(*lines), "mine", budget)
    assert budget.spent_s == 12.5


def test_a_promising_candidate_is_remembered_until_it_has_a_record():
    own = task()
    line = screened_line(own, Candidate(recipe="tile-matmul{m=6}"), 0.81)["session"]
    recall([own], log(line), "m", Budget.of(5, None))
    assert own.screened["tile-matmul{m=6}"].ratio == 0.81
    assert own.screened["tile-matmul{m=6}"].measurement is None


@pytest.mark.parametrize(
    "change",
    [
        {"kernel_key": "b" * 64},
        {"kernel_key": 5},
        {"recipe_version": 2},
        {"recipe": 5},
        {"recipe": None},
        {"trace": [1]},
        {"ratio": "fast"},
    ],
)
def test_a_screened_line_that_does_not_fit_is_passed_over(change):
    own = task()
    line = {**screened_line(own, Candidate(recipe="tile"), 0.81)["session"], **change}
    recall([own], log(line), "m", Budget.of(5, None))
    assert own.screened == {}


def end(rows, **change) -> dict:
    return {"event": "end", "model": "m", "plan": "p", "tasks": rows, **change}


def test_a_plan_is_remembered_as_it_was():
    own = task()
    (found,), line = remembered_tasks([end(task_lines([own]))], "m", "p")
    assert (found.key, found.kind, found.recipe_version, found.calls) == (KEY, "matmul", 3, 2)
    assert (found.candidate0, found.names, found.origin, found.predicted_us) == (
        "c0",
        ["kernel"],
        ["node"],
        10.0,
    )
    assert found.workload is None and line["plan"] == "p"


@pytest.mark.parametrize(
    "sessions",
    [
        [],
        [end([["short"]])],
        [end("x")],
        [end(None)],
        [end(task_lines([task()]), plan="other")],
        [end(task_lines([task()]), model="other")],
        [end([[KEY, "matmul", "3", "c0", "n", [], 1, 1.0]])],
    ],
)
def test_a_plan_that_cannot_be_read_is_made_again(sessions):
    assert remembered_tasks(sessions, "m", "p")[0] == []


def test_a_model_of_very_many_kernels_is_not_remembered():
    assert task_lines([task()] * 1000) is None


def test_a_model_is_told_by_its_graph_its_weights_and_its_class():
    one = model_id(model(), None, "class-t1")
    assert one == model_id(model(), None, "class-t1")
    others = [
        model_id(model(width=64), None, "class-t1"),
        model_id(model(), None, "class-t2"),
        model_id(model(), {"w": np.ones(3, "float32")}, "class-t1"),
        model_id(model(), {"w": np.zeros(3, "float32")}, "class-t1"),
    ]
    assert len({one, *others}) == 5


def test_a_plan_is_told_by_options_rules_and_files(tmp_path):
    file = tmp_path / "rules.py"
    file.write_text("RULES = ()\n")

    def plan(config=(), rules=("a",), without=(), files=()):
        with tvmpass.PassContext(config={**CONFIG, **dict(config)}):
            return plan_id("llvm", read_options()[0], rules, without, files)

    one = plan()
    assert one == plan({"tvmpass.tuning_logs": "off"}) == plan({"tvmpass.verify": "numeric"})
    others = [
        plan({"tvmpass.fusion": "never"}),
        plan(rules=("a", "b")),
        plan(without=("a",)),
        plan(files=(str(file),)),
    ]
    file.write_text("RULES = (1,)\n")
    others.append(plan(files=(str(file),)))
    assert len({one, *others}) == 6
