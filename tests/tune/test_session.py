"""A whole tune with a runner that answers by formula: budget, resume, records, errors."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import tvmpass
from tests.tune.stubs import CONFIG, Killed, StubRunner, drawn, model
from tvmpass.compile.records import GATE, read_file
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.tune import metaschedule, model_check
from tvmpass.tune.result import ModelCheck
from tvmpass.tune.session import TuneInterrupted


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leave MetaSchedule and the timing of the whole model out."""
    monkeypatch.setattr(metaschedule.MetaSchedule, "propose", lambda *_: [])
    monkeypatch.setattr(model_check, "check_model", lambda *_, **__: ModelCheck(1.0, 2.0, 0.5, 11, 0.0))


def tune(folder: Path, runner=None, mod=None, **options):
    with tvmpass.PassContext(config=CONFIG):
        return tvmpass.tune(mod or model(), "llvm", logs=folder, runner=runner or StubRunner(), **options)


def entries(folder: Path) -> list[dict]:
    (path,) = folder.glob("*.tuned.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def candidates(folder: Path) -> list[dict]:
    return [entry for entry in entries(folder) if entry.get("role") == "candidate"]


def test_writes_a_header_candidate_0_and_as_many_candidates_as_were_asked_for(tmp_path):
    result = tune(tmp_path, trials=10)
    lines = entries(tmp_path)
    assert lines[0]["device_class"] == result.device_class and lines[0]["host"] == {"host": "stub"}
    kept = candidates(tmp_path)
    assert len(kept) == result.recorded == result.new == 10
    assert len({entry["key"] for entry in kept}) == 10
    first = [entry["kernel_key"] for entry in lines if entry.get("role") == "candidate0"]
    assert sorted(first) == sorted({entry["kernel_key"] for entry in kept})
    assert result.reason == "budget" and result.finished and result.check.ratio == 0.5
    assert read_file(result.path).problems == []


def test_a_finished_tune_does_nothing_and_says_so(tmp_path, monkeypatch):
    tune(tmp_path, trials=10)
    before = entries(tmp_path)

    def plan(*_, **__):
        raise AssertionError("the model was planned again")

    monkeypatch.setattr("tvmpass.tune.session.plan_tasks", plan)
    runner = StubRunner()
    again = tune(tmp_path, runner, trials=10)
    assert (again.reason, again.new, again.recorded) == ("already", 0, 10)
    assert runner.log == [] and entries(tmp_path) == before
    assert again.check.ratio == 0.5
    assert again.finished and len(again.tasks) == 2


def test_a_finished_tune_without_a_remembered_plan_does_nothing_either(tmp_path):
    first = tune(tmp_path, trials=10)
    path = Path(first.path)
    path.write_text("".join(ln for ln in path.read_text().splitlines(True) if '"session"' not in ln))
    runner = StubRunner()
    again = tune(tmp_path, runner, trials=10)
    assert (again.reason, again.new, again.recorded, runner.log) == ("already", 0, 10, [])
    best = {task.name: task.best_ratio for task in first.tasks}
    assert {task.name: task.best_ratio for task in again.tasks} == pytest.approx(best, rel=1e-4)


def test_a_comparison_that_was_killed_is_made_by_the_next_tune(tmp_path, monkeypatch):
    def killed(*_, **__):
        raise Killed

    compare = model_check.check_model
    monkeypatch.setattr(model_check, "check_model", killed)
    with pytest.raises(Killed):
        tune(tmp_path, trials=30)
    monkeypatch.setattr(model_check, "check_model", compare)
    result = tune(tmp_path, trials=30)
    assert (result.reason, result.new, result.check.ratio) == ("already", 0, 0.5)
    monkeypatch.setattr(model_check, "check_model", killed)
    assert tune(tmp_path, trials=30).check.ratio == 0.5


def test_a_larger_budget_goes_on_where_the_smaller_ended(tmp_path):
    first, second, whole = StubRunner(), StubRunner(), StubRunner()
    tune(tmp_path / "a", first, trials=6)
    result = tune(tmp_path / "a", second, trials=14)
    tune(tmp_path / "b", whole, trials=14)
    assert (result.new, result.recorded) == (8, 14)
    assert not set(first.screened) & set(second.screened)
    assert len(set(first.screened) | set(second.screened)) == len(set(whole.screened)) == 14


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_any_moment_neither_repeat_nor_lose_a_candidate(tmp_path, seed):
    budget, runners = 24, []
    for number in range(40):
        runner = StubRunner(lucky=0.8, limit=1 + (number * 7 + seed * 3) % 5)
        runners.append(runner)
        try:
            result = tune(tmp_path, runner, trials=budget)
            break
        except Killed:
            pass
    screened = [pair for runner in runners for pair in runner.screened]
    assert len(runners) > 3
    assert len(screened) == len(set(screened)) == budget
    kept = candidates(tmp_path)
    assert len(kept) == len({entry["key"] for entry in kept}) == result.recorded == budget
    assert read_file(result.path).problems == []


def test_only_thorough_numbers_make_a_best(tmp_path):
    """Every first measurement is lucky by a third: nothing of that reaches the records' best."""
    runner = StubRunner(lucky=0.67)
    result = tune(tmp_path, runner, trials=20)
    thorough = {(key, text) for key, text, long in runner.log if long}
    assert thorough
    for task in result.tasks:
        tried = [drawn(key, text) for key, text in runner.screened if key == task.kernel_key]
        if task.best is not None:
            assert (task.kernel_key, task.best) in thorough
            assert task.best_ratio == pytest.approx(drawn(task.kernel_key, task.best), rel=1e-3)
            assert task.best_ratio <= GATE
        assert min(tried, default=1.0) >= task.best_ratio - 1e-3 or task.best is None


def test_a_build_takes_the_best_records(tmp_path):
    result = tune(tmp_path, trials=30)
    assert result.used
    with tvmpass.PassContext(config={**CONFIG, "tvmpass.tuning_logs": str(tmp_path)}):
        _, report = tvmpass.optimize(model(), "llvm")
    assert report.records["used"] == result.used
    tuned = [k for k in report.kernels if k.schedule == "tuned"]
    assert {k.name for k in tuned} == {t.name for t in result.tasks if t.used}


def test_failures_are_recorded_with_their_cause_and_never_best(tmp_path):
    statuses = ("crash", "timeout", "memory", "wrong")

    def truth(key, text):
        ratio = drawn(key, text)
        return statuses[int(ratio * 1000) % 4] if ratio < 0.99 else ratio

    result = tune(tmp_path, StubRunner(truth), trials=20)
    kept = [entry for entry in candidates(tmp_path) if entry["status"] != "ok"]
    assert kept and all(entry["cause"] == "planted" and entry["median_us"] is None for entry in kept)
    assert sum(result.failed.values()) == len(kept)
    assert result.used == 0 and result.kernel_ratio == 1.0


def test_equal_kernels_of_several_models_share_their_records(tmp_path):
    first, second = StubRunner(), StubRunner()
    one = tune(tmp_path, first, trials=12)
    two = tune(tmp_path, second, mod=model(extra=True), trials=20)
    shared = {t.kernel_key for t in one.tasks} & {t.kernel_key for t in two.tasks}
    assert len(shared) == 2 and len(two.tasks) == 3
    assert two.new == 8 and two.recorded == 20
    assert not set(first.screened) & set(second.screened)


def test_nothing_left_to_try_ends_a_tune_for_good(tmp_path):
    result = tune(tmp_path, trials=100_000)
    assert result.reason == "exhausted" and result.recorded < 100_000
    runner = StubRunner()
    again = tune(tmp_path, runner, trials=100_000)
    assert (again.reason, again.new, runner.log) == ("already", 0, [])


def test_time_is_counted_over_all_sessions(tmp_path):
    result = tune(tmp_path, minutes=1e-4)
    assert result.reason == "budget" and result.spent_s >= 0.006
    again = tune(tmp_path, minutes=1e-4)
    assert again.reason == "already"
    assert again.spent_s == pytest.approx(result.spent_s, abs=0.05)


def test_ctrl_c_keeps_what_was_measured_and_ends_the_session(tmp_path):
    runner = StubRunner(limit=7, ending=KeyboardInterrupt)
    with pytest.raises(TuneInterrupted) as caught:
        tune(tmp_path, runner, trials=30)
    result = caught.value.result
    assert result.reason == "interrupted" and not result.finished
    assert result.new == len(candidates(tmp_path)) > 0
    assert entries(tmp_path)[-1]["session"]["reason"] == "interrupted"
    assert tune(tmp_path, trials=30).recorded == 30


def test_a_second_tune_waits_and_then_finds_the_work_done(tmp_path):
    inside, go = threading.Event(), threading.Event()

    class Slow(StubRunner):
        def measure(self, jobs, done):
            inside.set()
            assert go.wait(60)
            super().measure(jobs, done)

    results, told = {}, []
    first = threading.Thread(target=lambda: results.update(first=tune(tmp_path, Slow(), trials=8)))
    first.start()
    assert inside.wait(60)

    def watch(progress):
        told.append(str(progress))
        if "waiting" in str(progress):
            go.set()

    with pytest.raises(TvmpassError, match="is being written by"):
        tune(tmp_path, trials=8, wait=False)
    second = StubRunner()
    result = tune(tmp_path, second, trials=8, progress=watch)
    first.join(60)
    assert any("waiting until it is done" in line for line in told)
    assert results["first"].new == 8
    assert (result.reason, result.new, second.log) == ("already", 0, [])


def test_progress_tells_stages_candidates_and_what_is_left(tmp_path):
    told = []
    tune(tmp_path, trials=12, progress=told.append)
    assert "planning the model" in [p.text for p in told if p.kind == "stage"]
    counted = [p for p in told if p.kind in ("measured", "better")]
    assert [p.recorded for p in counted] == list(range(1, 13))
    assert counted[-1].fraction == 1.0 and counted[-1].eta_s == 0.0
    assert all(p.gain >= 1.0 and 1 <= p.position <= p.kernels == 2 for p in counted)
    better = [p for p in counted if p.kind == "better"]
    assert better and better[0].text in str(better[0])


def test_the_result_is_json_with_the_figures_of_every_kernel(tmp_path):
    result = tune(tmp_path, trials=12)
    data = json.loads(json.dumps(result.to_json()))
    assert data["recorded"] == 12 and data["finished"] is True and data["gate"] == GATE
    for task in data["tasks"]:
        assert task["saved_us"] <= task["cost_us"] and task["calls"] >= 1
        assert task["used"] == (task["best"] is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 5, "minutes": 1}, "trials or minutes, not both"),
        ({"trials": 0}, "at least 1"),
        ({"trials": 2.5}, "whole number"),
        ({"minutes": -1}, "above 0"),
        ({"minutes": float("nan")}, "above 0"),
        ({"without": ("no-such-rule",)}, "unknown rule 'no-such-rule'"),
        ({"mod": "model.onnx"}, "expected an IRModule, got str; tvmpass.load reads model files"),
        ({"params": {"nope": 1}}, "unknown parameter 'nope'"),
        ({"rpc": "host:9190"}, "a runner or rpc="),
        ({"rule_files": ("no-such-file.py",)}, "no such file"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        tune(tmp_path, **options)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TvmpassError) as caught:
        tune(tmp_path / "file" / "logs", trials=5)
    assert str(caught.value).count("\n") == 0 and "file" in str(caught.value)


def test_a_runner_that_leaves_a_job_unanswered_is_an_error(tmp_path):
    class Silent(StubRunner):
        def measure(self, jobs, done):
            super().measure(jobs[:-1], done)

    with pytest.raises(TvmpassError, match="without an answer"):
        tune(tmp_path, Silent(), trials=4)


def test_records_go_where_the_option_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with tvmpass.PassContext(config={**CONFIG, "tvmpass.tuning_logs": "mine"}):
        first = tvmpass.tune(model(), trials=2, runner=StubRunner())
    with tvmpass.PassContext(config=CONFIG):
        second = tvmpass.tune(model(), trials=2, runner=StubRunner())
    assert Path(first.path).parent.name == "mine" and Path(second.path).parent.name == "tuning_logs"


def test_what_is_known_to_be_good_elsewhere_is_tried_first(tmp_path, monkeypatch):
    """The shipped records: used by builds, but measured on another machine of the class."""
    from tvmpass.compile import records

    shipped = tune(tmp_path / "shipped", trials=40)
    best = {task.kernel_key: task.best for task in shipped.tasks if task.used}
    assert best
    monkeypatch.setattr(records, "shipped_logs", lambda: tmp_path / "shipped")
    runner = StubRunner()
    tune(tmp_path / "own", runner, trials=4)
    assert set(best.items()) <= set(runner.screened)


def test_a_record_that_was_compared_with_nothing_is_measured(tmp_path):
    first = tune(tmp_path, trials=4)
    path = Path(first.path)
    foreign = dict(candidates(tmp_path)[0], candidate0_us=None, wins=None)
    lines = path.read_text().splitlines(True)
    path.write_text(lines[0] + json.dumps(foreign) + "\n")
    runner = StubRunner()
    result = tune(tmp_path, runner, trials=4)
    assert result.new == 4 and runner.screened[0] == (foreign["kernel_key"], foreign["recipe"])
