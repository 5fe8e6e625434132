"""MetaSchedule's search in a child process."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.tir_passes.cases import SYMBOLIC, arguments, close, compile_all, conv, depthwise, run, softmax
from tests.tune.workloads import LATENCY, measured, workload
from tir_passes.recipes import finish
from tvmpass.compile.latency import Latency
from tvmpass.compile.target import parse_target
from tvmpass.compile.tuned import apply_candidate
from tvmpass.core.decision import Refusal
from tvmpass.tune import metaschedule, metaschedule_child
from tvmpass.tune.forkserver import Call
from tvmpass.tune.metaschedule import MetaSchedule, request
from tvmpass.tune.refit import SessionModel
from tvmpass.tune.search import Measured, TaskSearch
from tvmpass.tune.work import Candidate, Workload

MODEL = SessionModel(LATENCY)


@pytest.fixture(scope="module")
def source():
    made = MetaSchedule()
    yield made
    made.close()


def small() -> Workload:
    return workload(depthwise(1, 2, 12, 32, 3, pad=1))


def built(work: Workload, text: str):
    made = apply_candidate(work.function, None, text, work.target, work.options)
    assert not isinstance(made, Refusal), made.text()
    return made


def test_traces_are_new_reproducible_and_right(source):
    work = small()
    first = source.propose(work, [], 4, 7, MODEL)
    assert source.problems == [] and 1 <= len(first) <= 4
    assert source.propose(work, [], 4, 7, MODEL) == first
    told = [Measured(Candidate(trace=text), 0.5 + i) for i, text in enumerate(first)]
    second = source.propose(work, told, 4, 8, MODEL)
    made = {f"trace{i}": built(work, text) for i, text in enumerate([*first, *second])}
    assert len({tvm_ffi.structural_hash(m) for m in made.values()}) == len(made) > len(first)
    module = compile_all({"plain": finish(work.function, work.target, work.options), **made})
    arrays = arguments(work.function)
    expected = run(module, "plain", arrays)
    for name in made:
        assert close(run(module, name, arrays), expected), name


def test_traces_fit_an_equal_kernel_with_other_names(source):
    work = small()
    text = source.propose(work, [], 1, 7, MODEL)[0]
    graph = json.loads(tvm.ir.save_json(work.function))
    for node in graph["nodes"]:
        if node["type"] == "ffi.String" and node["data"] in ("out", "added", "relu", "pad_temp"):
            node["data"] = "other_" + node["data"]
    renamed = tvm.ir.load_json(json.dumps(graph))
    assert "other_out" in renamed.script()
    made = apply_candidate(renamed, None, text, work.target, work.options)
    assert tvm_ffi.structural_equal(made, built(work, text))


def test_a_refitted_model_goes_along(source):
    model = SessionModel(LATENCY)
    x = LATENCY.features(finish(small().function, small().target, small().options))
    rng = np.random.default_rng(0)
    for i in range(24):
        moved = (x + rng.normal(0, 0.5, len(x))).astype(np.float32)
        model.add(moved, x, "depthwise", float(np.exp(model.guess(moved, x, "depthwise"))) * 1.4, f"k{i % 5}")
    assert model.refitted and model.to_json()["booster"] is not None
    assert source.propose(small(), [], 2, 3, model) and source.problems == []


def test_symbolic_kernels_have_no_traces(source):
    name, (make, _) = next(iter(SYMBOLIC.items()))
    assert source.propose(workload(make()), [], 2, 1, MODEL) == [], name


@pytest.mark.slow
def test_cuda_kernels_have_traces_too(source):
    target = parse_target("cuda:sm_90", 1)
    work = workload(softmax(64, 256), target=target)
    model = SessionModel(Latency(target, work.options))
    texts = source.propose(work, [], 3, 2, model)
    assert source.problems == [] and texts
    for text in texts:
        assert "threadIdx.x" in built(work, text).script()


def test_no_tensor_intrinsic_is_imported():
    assert metaschedule_child.propose(**request(small(), [], 2, 5, MODEL))
    assert "tvm.s_tir.tensor_intrin" not in sys.modules


def test_traces_of_strangers_do_not_run(source):
    work = small()
    text = source.propose(work, [], 1, 7, MODEL)[0]
    evil = json.loads(text)
    evil[0].append(["Annotate", ["b0", '"int x;"'], ["pragma_import_c"], []])
    told = [Measured(Candidate(trace=json.dumps(evil)), 0.1)]
    assert source.propose(work, told, 1, 7, MODEL) and source.problems == []


@pytest.mark.parametrize(("function", "status"), [("os:abort", "crash"), ("time:sleep", "timeout")])
def test_a_lost_batch_costs_only_itself(monkeypatch, function, status):
    def broken(name, arguments, seconds, memory_bytes):
        return Call(function, {} if function == "os:abort" else {"secs": 60}, 0.3, memory_bytes)

    if status == "timeout":
        monkeypatch.setattr(
            metaschedule, "Call", lambda *a: Call(f"{__name__}:hang", {}, 0.5, metaschedule.MEMORY_BYTES)
        )
    else:
        monkeypatch.setattr(metaschedule, "Call", broken)
    source = MetaSchedule()
    try:
        work = small()
        assert [source.propose(work, [], 2, 1, MODEL) for _ in range(3)] == [[], [], []]
        assert len(source.problems) == metaschedule.MAX_FAILURES
        assert status in source.problems[0]
    finally:
        source.close()
        source.close()


def hang() -> None:
    """Never end."""
    while True:
        pass


def test_a_search_goes_on_with_traces(source):
    work = workload(conv(1, 4, 8, 8, 16, 1))
    task = TaskSearch(work, LATENCY, SessionModel(LATENCY), traces=source)
    found: list[Candidate] = []
    while len(found) < 120 and not any(c.trace for c in found) and (batch := task.propose(8)):
        for candidate in batch:
            task.tell(candidate, measured(1.2))
        found += batch
    assert any(c.trace for c in found) and any(c.recipe for c in found)
    assert task.expected() < 1.0
