"""What a search proposes, in which order, and what it learns."""

from __future__ import annotations

import pytest
import tvm_ffi

from tests.tir_passes.cases import OPTIONS, TARGET, conv, depthwise, elementwise, finite, matmul
from tests.tune.workloads import LATENCY, measured, workload
from tir_passes.recipes import apply_recipe, parse_recipe, recipes
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import TvmpassError
from tvmpass.core.kernels import classify
from tvmpass.tune.refit import SessionModel
from tvmpass.tune.search import TaskSearch, family_of
from tvmpass.tune.work import Candidate, Measurement

CRASH = Measurement("crash", cause="signal 11")


def search(function, done=(), **more) -> TaskSearch:
    return TaskSearch(workload(function), LATENCY, SessionModel(LATENCY), done, **more)


def drain(task: TaskSearch, count: int = 8, limit: int = 200) -> list[str]:
    texts: list[str] = []
    while len(texts) < limit and (batch := task.propose(count)):
        assert len(batch) <= count
        texts += [candidate.text for candidate in batch]
    return texts


@pytest.mark.parametrize("make", [lambda: matmul(32, 64, 48), lambda: depthwise(1, 9, 14, 32, 5, pad=2)])
def test_every_proposal_is_new_and_makes_another_kernel(make):
    task = search(make())
    texts = drain(task)
    assert texts and len(set(texts)) == len(texts)
    assert task.workload.candidate0.text not in texts
    assert task.propose(4) == []
    made = [apply_recipe(parse_recipe(text), task.workload.function, TARGET) for text in texts]
    assert not any(isinstance(m, Refusal) for m in made)
    assert len({tvm_ffi.structural_hash(m) for m in made}) == len(made)


def test_the_generators_recipes_are_all_there():
    task = search(matmul(32, 64, 48))
    listed = recipes(classify(task.workload.function), TARGET, OPTIONS)
    made = {str(r): apply_recipe(r, task.workload.function, TARGET) for r in listed}
    known = {tvm_ffi.structural_hash(m) for m in made.values() if not isinstance(m, Refusal)}
    first = tvm_ffi.structural_hash(made[task.workload.candidate0.recipe])
    texts = drain(task)
    proposed = {
        tvm_ffi.structural_hash(apply_recipe(parse_recipe(t), task.workload.function, TARGET)) for t in texts
    }
    assert known - {first} <= proposed


def test_the_same_records_give_the_same_proposals():
    def run() -> list[str]:
        task, texts = search(conv(1, 12, 12, 16, 32, 3, pad=1)), []
        for batch in range(4):
            for i, candidate in enumerate(task.propose(4)):
                texts.append(candidate.text)
                task.tell(candidate, measured(0.9 + 0.05 * ((batch + i) % 5)))
        return texts

    assert run() == run()


def test_the_cheapest_by_the_model_comes_first():
    task = search(matmul(64, 256, 128))
    first, second = task.propose(2)
    means = [
        LATENCY.kernel(
            LATENCY.features(apply_recipe(parse_recipe(c.text), task.workload.function, TARGET)), "matmul"
        ).mean
        for c in (first, second)
    ]
    assert means[0] <= means[1] * 1.05


def test_what_is_done_is_not_proposed():
    everything = drain(search(matmul(32, 64, 48)))
    task = search(matmul(32, 64, 48), done=set(everything[:5]))
    assert not set(everything[:5]) & set(drain(task))
    told = search(matmul(32, 64, 48))
    told.tell(Candidate(recipe=everything[0]), measured(1.2))
    assert everything[0] not in drain(told)


def test_it_looks_around_what_turned_out_best():
    task = search(conv(1, 12, 12, 16, 32, 3, pad=1))
    listed = {str(r) for r in recipes(classify(task.workload.function), TARGET, OPTIONS)}
    tile = "tile-conv{m=3,n=32,rows=5} stage-padding"
    best = f"inline-neighbours {tile} vectorize-inner unroll-inner decompose-reduction"
    assert best not in listed
    task.tell(Candidate(recipe=best), measured(0.5))
    assert any("m=3,n=32,rows=4" in text for text in drain(task))


def test_expectation_falls_to_the_best_where_nothing_is_left():
    task = search(matmul(32, 64, 48))
    assert 0.3 < task.expected() < 1.0 and task.best == 1.0
    for candidate in task.propose(1):
        task.tell(candidate, measured(0.8))
    assert task.best == pytest.approx(0.8) and task.expected() <= 0.8
    drain(task)
    assert task.expected() == task.best == pytest.approx(0.8)


def test_failures_are_no_times():
    task = search(matmul(32, 64, 48))
    candidate = task.propose(1)[0]
    task.tell(candidate, CRASH)
    assert task.best == 1.0 and candidate.text not in drain(task)


def test_a_kernel_without_choices_has_nothing_left():
    task = search(elementwise(3, 5))
    drain(task)
    assert task.propose(3) == [] and task.expected() == 1.0
    task.close()
    assert task.propose(3) == []


def test_measured_features_reach_the_model():
    task = search(matmul(32, 64, 48))
    candidate = task.propose(1)[0]
    made = apply_recipe(parse_recipe(candidate.text), task.workload.function, TARGET)
    task.tell(candidate, measured(0.7, LATENCY.features(made).tolist()))
    task.tell(candidate, measured(0.7, [1.0, 2.0]))  # of another version of the features: not used
    assert task.model.records == 1


def test_recipes_of_a_rules_file_come_first(tmp_path):
    rules = tmp_path / "mine.py"
    rules.write_text(
        "RULES = ()\n"
        "def recipes(kernel, target, options):\n"
        "    return ['inline-neighbours strange-step{m=3}'] if kernel.kind == 'matmul' else []\n"
    )
    task = search(matmul(32, 64, 48), rule_files=[rules])
    assert task.propose(2)[0].text == "inline-neighbours strange-step{m=3}"
    assert not any("strange" in text for text in drain(search(conv(1, 6, 6, 8, 8, 1), rule_files=[rules])))


def test_a_rules_file_that_fails_is_named(tmp_path):
    rules = tmp_path / "broken.py"
    rules.write_text("RULES = ()\ndef recipes(kernel, target, options):\n    return [1 / 0]\n")
    with pytest.raises(TvmpassError, match=r"broken\.py.*ZeroDivisionError"):
        search(matmul(32, 64, 48), rule_files=[rules]).propose(1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True: yield 'tile-matmul'", "more than 1000 recipes"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return [7, 'tile-matmul'] * 400", "must give recipe texts, not 7"),
    ],
)
def test_a_rules_file_that_gives_too_much_or_leaves_is_named(tmp_path, body, said):
    rules = tmp_path / "odd.py"
    rules.write_text(f"RULES = ()\ndef recipes(kernel, target, options):\n    {body}\n")
    with pytest.raises(TvmpassError, match=rf"odd\.py.*{said}"):
        search(matmul(32, 64, 48), rule_files=[rules]).propose(1)


class Traces:
    """Traces by number; the first two batches have some."""

    def __init__(self):
        self.asked: list[tuple[int, int]] = []

    def propose(self, workload, measured, count, seed, model):
        self.asked.append((len(measured), seed))
        return [f'["trace{len(self.asked)}.{i}"]' for i in range(count)] if len(self.asked) < 3 else []

    def close(self):
        raise AssertionError("the search does not own its source of traces")


def test_traces_follow_the_recipes():
    source = Traces()
    task = search(matmul(32, 64, 48), traces=source)
    found = []
    while batch := task.propose(6):
        for candidate in batch:
            task.tell(candidate, measured(1.1))
        found += batch
    kinds = [c.trace is not None for c in found]
    assert any(kinds) and source.asked[0][0] > 10 and source.asked[0][1] != source.asked[1][1]
    task.close()


def test_the_search_for_traces_ends_where_it_finds_nothing_better():
    class Endless(Traces):
        def propose(self, workload, measured, count, seed, model):
            self.asked.append((len(measured), seed))
            return [f'["trace{len(self.asked)}.{i}"]' for i in range(count)]

    source = Endless()
    task = search(matmul(32, 64, 48), traces=source)
    while batch := task.propose(4):
        for candidate in batch:
            task.tell(candidate, measured(1.1))
    assert len(source.asked) <= 6


def test_of_each_family_one_is_tried_early():
    task = search(finite(depthwise(1, 2, 14, 32, 5, pad=2)))
    early = [candidate.text for candidate in task.propose(6)]
    families = {family_of(text) for text in early}
    listed = recipes(classify(task.workload.function), TARGET, OPTIONS)
    possible = {
        family_of(str(r))
        for r in listed
        if not isinstance(apply_recipe(r, task.workload.function, TARGET), Refusal)
    }
    assert any("inline-padding" in family for family in possible)
    assert families == possible
    assert family_of("a{m=3} b c{k=0}") == "a b c" and family_of(None) == ""


def test_a_family_that_did_well_is_followed():
    task = search(finite(depthwise(1, 2, 14, 32, 5, pad=2)))
    good = "inline-padding"
    for candidate in task.propose(6):
        made = apply_recipe(parse_recipe(candidate.text), task.workload.function, TARGET)
        ratio = 0.5 if good in candidate.text else 1.1
        task.tell(candidate, measured(ratio, LATENCY.features(made).tolist()))
    assert all(good in candidate.text for candidate in task.propose(3))
    assert task.best == pytest.approx(0.5)
