"""Which kernel gets the next candidates: costly ones first, those that gain nothing less and less."""

from __future__ import annotations

import pytest

import tvmpass
from tests.tune.stubs import CONFIG, model
from tvmpass.compile.context import read_options
from tvmpass.compile.records import GATE
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import UsageError
from tvmpass.cost.device import device_class
from tvmpass.tune.tasks import DECAY, ROUND, Screened, Task, choose, plan_tasks
from tvmpass.tune.work import Candidate


class Listed:
    """A search that proposes numbered recipes and expects what it is told to expect."""

    def __init__(self, count: int, expected: float = 0.8):
        self.left = [f"r{number}" for number in range(count)]
        self.value = expected
        self.closed = False

    def propose(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return [Candidate(recipe=text) for text in taken]

    def tell(self, candidate, measurement):
        pass

    def expected(self):
        return self.value

    def close(self):
        self.closed = True


def task(name: str, us: float, calls: int = 1, **more) -> Task:
    return Task(name, "matmul", 1, "c0", [name], [], calls, us, **more)


def names(chosen) -> list[str]:
    return [found.key for found, _ in chosen]


def test_the_costly_kernel_comes_first_counting_its_calls():
    tasks = [task("dear", 100.0), task("often", 30.0, calls=10), task("cheap", 1.0)]
    opened = []

    def search(found):
        opened.append(found.key)
        return Listed(99)

    chosen = choose(tasks, ROUND, search)
    assert names(chosen) == ["often"] * ROUND
    assert "cheap" not in opened


def test_what_the_search_expects_counts_and_not_the_size_alone():
    tasks = [task("large", 100.0), task("promising", 60.0)]
    chosen = choose(tasks, ROUND, lambda t: Listed(99, 0.99 if t.key == "large" else 0.5))
    assert names(chosen) == ["promising"] * ROUND


def test_rounds_that_bring_nothing_let_others_come():
    tasks = [task("large", 100.0), task("small", 50.0)]
    assert names(choose(tasks, 4 * ROUND, lambda _: Listed(99))).count("small") > 0
    tasks[0].stale = 3
    assert names(choose(tasks, ROUND, lambda _: Listed(99))) == ["small"] * ROUND
    assert tasks[0].promise() == pytest.approx(tasks[0].promise(-3) * DECAY**3)


def test_a_measured_time_replaces_the_predicted():
    tasks = [task("predicted", 100.0), task("measured", 100.0, candidate0_us=300.0)]
    assert names(choose(tasks, 1, lambda _: Listed(9))) == ["measured"]


def test_a_kernel_is_done_when_nothing_is_left_and_its_search_is_closed():
    tasks = [task("one", 10.0), task("two", 5.0)]
    searches = {}

    def search(found):
        searches[found.key] = Listed(3)
        return searches[found.key]

    assert sorted(names(choose(tasks, 100, search))) == ["one"] * 3 + ["two"] * 3
    assert all(t.exhausted for t in tasks) and all(s.closed for s in searches.values())
    assert choose(tasks, 8, search) == []


def test_nothing_known_is_proposed_again():
    own = task("one", 10.0)
    own.tried["r0"] = "ok"
    own.screened["r1"] = Screened(Candidate(recipe="r1"), 0.9)
    assert [c.recipe for _, c in choose([own], 4, lambda _: Listed(6))] == ["r2", "r3", "r4", "r5"]


def test_seeds_come_first_and_once():
    tasks = [task("large", 100.0), task("small", 80.0)]
    tasks[1].seeds = [Candidate(recipe="seed"), Candidate(recipe="c0")]
    tasks[1].search = Listed(9, 0.99)
    tasks[0].search = Listed(9, 0.9)
    chosen = choose(tasks, 8, lambda _: Listed(9))
    texts = [c.recipe for found, c in chosen if found.key == "small"]
    assert texts[0] == "seed" and texts.count("seed") == 1 and "c0" not in texts


def test_only_what_passes_the_gate_becomes_the_best():
    own = task("one", 10.0)
    assert not own.note(Candidate(recipe="near"), "ok", GATE + 0.001, 1.0)
    assert not own.note(Candidate(recipe="unsure"), "ok", 0.9, 0.5)
    assert not own.note(Candidate(recipe="crashed"), "crash", None, None)
    assert own.best is None and own.promising(GATE) and not own.promising(1.0) and not own.promising(None)
    assert own.note(Candidate(recipe="good"), "ok", 0.9, 1.0)
    assert not own.note(Candidate(recipe="less"), "ok", 0.95, 1.0)
    assert own.best == Candidate(recipe="good") and own.best_ratio == 0.9
    assert own.promising(0.89) and not own.promising(0.91)
    assert set(own.tried) == {"near", "unsure", "crashed", "good", "less"}


def test_the_plan_is_that_of_a_build():
    with tvmpass.PassContext(config=CONFIG):
        options, _ = read_options()
        target = parse_target("llvm", 1)
        tasks, pipeline = plan_tasks(model(extra=True), target, options, device_class(target, 1))
        _, report = tvmpass.optimize(model(extra=True), "llvm")
    assert {name for t in tasks for name in t.names} == {k.name for k in report.kernels}
    assert sum(t.calls for t in tasks) == sum(k.calls for k in report.kernels)
    assert [t.cost_us for t in tasks] == sorted((t.cost_us for t in tasks), reverse=True)
    for found in tasks:
        (entry,) = [k for k in report.kernels if k.name == found.names[0]]
        assert entry.schedule == f"library:{found.candidate0}" or found.candidate0 == "fallback"
    assert pipeline.latency is not None


def test_an_unknown_rule_is_named():
    with tvmpass.PassContext(config=CONFIG):
        options, _ = read_options()
        target = parse_target("llvm", 1)
        with pytest.raises(UsageError, match="unknown rule 'nope'"):
            plan_tasks(model(), target, options, "x", without=("nope",))
