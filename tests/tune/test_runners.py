"""Candidates measured on this machine: right ones, wrong ones, and those that take others down."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import pytest
from tvm import te, tirx, topi

from tests.tir_passes import cases
from tests.tune.workloads import workload
from tir_passes.recipes import recipes
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.kernels import classify
from tvmpass.cost.features import FEATURE_NAMES
from tvmpass.tune import builder as builder_module
from tvmpass.tune import runners
from tvmpass.tune.builder import Builder, Prepared
from tvmpass.tune.runners import LocalRunner, make_runner
from tvmpass.tune.work import Candidate, Job, Measurement, Workload

pytestmark = pytest.mark.slow  # many builds, each in a process of its own

PLANTED = Path(__file__).parents[2] / "scripts" / "acceptance" / "planted_rules.py"
FAULTS = runpy.run_path(str(PLANTED))["FAULTS"]
ENDLESS = ["schedule-endless", "compile-endless", "run-endless"]


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(cases.TARGET, cases.OPTIONS, [PLANTED], build_seconds=30.0, run_seconds=30.0) as made:
        yield made


def measure(runner, *jobs: Job) -> list[Measurement]:
    found: dict[int, Measurement] = {}
    runner.measure(jobs, lambda job, measurement: found.update({id(job): measurement}))
    assert len(found) == len({id(job) for job in jobs})
    return [found[id(job)] for job in jobs]


def named(function: tirx.PrimFunc, name: str) -> Workload:
    """Return a workload with a key of its own."""
    made = workload(function)
    return Workload(**{**vars(made), "kernel_key": name})


def plant(fault: str) -> Candidate:
    return Candidate(recipe=f"plant{{fault={fault}}}")


def test_a_recipe_and_candidate_0(runner):
    work = named(cases.matmul(16, 32, 24), "plain")
    other = Candidate(recipe=str(recipes(classify(work.function), work.target, work.options)[1]))
    for made in measure(runner, Job(work, work.candidate0), Job(work, other), Job(work, Candidate())):
        assert (made.status, made.cause, made.checked) == ("ok", None, "reference")
        assert made.median_us is not None and made.candidate0_us is not None and made.median_us > 0
        assert len(made.samples_us) >= 3 and made.wins is not None and 0 <= made.wins <= 1
        assert made.features is not None and len(made.features) == len(FEATURE_NAMES)
        assert made.spent_s > 0 and made.worker


def test_a_thorough_look(runner):
    work = named(cases.matmul(8, 16, 8), "thorough")
    (made,) = measure(runner, Job(work, work.candidate0, thorough=True))
    assert made.status == "ok" and len(made.samples_us) >= 15


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in ENDLESS])
def test_a_planted_candidate_costs_only_itself(runner, fault):
    work = named(cases.matmul(16, 32, 16), "planted")
    bad, good = measure(runner, Job(work, plant(fault)), Job(work, work.candidate0))
    assert bad.status == FAULTS[fault] and bad.cause and "\n" not in bad.cause
    assert bad.median_us is None and bad.samples_us == []
    assert good.status == "ok"


def test_candidates_without_end():
    work = named(cases.matmul(16, 32, 16), "endless")
    begin = time.monotonic()
    with LocalRunner(cases.TARGET, cases.OPTIONS, [PLANTED], build_seconds=4.0, run_seconds=4.0) as own:
        found = measure(own, *(Job(work, plant(fault)) for fault in ENDLESS))
    assert [made.status for made in found] == ["timeout"] * 3
    assert all("no end after 4 s" in (made.cause or "") for made in found)
    assert time.monotonic() - begin < 60


def test_memory_that_only_the_running_kernel_asks_for(runner, monkeypatch):
    """The bound on a child holds where the kernel's size was not seen before."""
    work = named(cases.matmul(16, 32, 16), "hungry")
    builder = Builder(runner.server, [PLANTED], memory_bytes=4 << 30)
    monkeypatch.setattr(builder, "_call", _without_look(builder))
    monkeypatch.setattr(runner, "builder", builder)
    (made,) = measure(runner, Job(work, plant("run-memory")))
    assert made.status == "memory"


def _without_look(builder: Builder):
    usual = Builder._call

    def call(workload, candidate, path):
        made = usual(builder, workload, candidate, path)
        made.arguments["memory_bytes"] = 1 << 50
        return made

    return call


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32"])
def test_products_of_every_type(runner, dtype):
    work = named(cases.matmul(8, 16, 12, dtype=dtype), f"product {dtype}")
    candidates = [work.candidate0, Candidate()]
    assert [m.status for m in measure(runner, *(Job(work, c, thorough=True) for c in candidates))] == [
        "ok"
    ] * 2


def test_booleans_indices_and_nothing(runner):
    x, index = te.placeholder((30, 4), name="x"), te.placeholder((9,), "int32", name="index")
    taken = te.compute((9, 4), lambda i, j: x[index[i], j], name="taken")
    positive = te.compute((30, 4), lambda i, j: x[i, j] > tirx.const(0.0, "float32"), name="positive")
    empty = te.placeholder((0, 4), name="empty")
    doubled = te.compute((0, 4), lambda i, j: empty[i, j] + empty[i, j], name="doubled")
    functions = {
        "taken": te.create_prim_func([x, index, taken]),
        "positive": te.create_prim_func([x, positive]),
        "empty": te.create_prim_func([empty, doubled]),
    }
    for name, function in functions.items():
        work = named(function, name)
        assert [m.status for m in measure(runner, Job(work, work.candidate0, thorough=True))] == ["ok"]


def test_open_extents_are_timed_at_one_and_checked_at_several(runner):
    n = te.var("n", "int64")
    x = te.placeholder((n, 24), name="x")
    work = named(te.create_prim_func([x, topi.nn.softmax(x)]), "softmax")
    assert [m.status for m in measure(runner, Job(work, work.candidate0, thorough=True))] == ["ok"]
    ready = runner.builder.prepare(work)
    assert isinstance(ready, Prepared)
    from tvmpass.tune.checks import read_cases

    found = {case.name: case for case in read_cases(ready.folder)}
    assert list(found) == ["timed", "extent-3", "extent-1", "extent-17", "special"]
    assert [a.shape for a in found["timed"].arguments] == [(4, 24), (4, 24)]
    assert [case.thorough for case in found.values()] == [False, False, True, True, True]


def test_a_kernel_that_is_wrong_only_for_another_extent(runner, tmp_path):
    """What was derived for one extent must not pass because that is the one that is timed."""
    rules = tmp_path / "rules.py"
    rules.write_text(FOUR_ONLY)
    n = te.var("n", "int64")
    x = te.placeholder((n, 16), name="x")
    work = named(te.create_prim_func([x, te.compute((n, 16), lambda i, j: x[i, j] * 2.0, name="y")]), "four")
    with LocalRunner(cases.TARGET, cases.OPTIONS, [rules]) as own:
        (made,) = measure(own, Job(work, Candidate(recipe="four-only")))
    assert made.status == "wrong" and made.cause.startswith("extent-3 inputs: ")


FOUR_ONLY = """
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.rule import ScheduleRule


@dataclass(frozen=True)
class FourOnly(ScheduleRule):
    '''Multiply by the number of rows less two: by two where there are four.'''

    def rewrite(self, schedule, kernel):
        function = schedule.mod["main"]
        rows = function.params[0].ty.shape[0]

        def spoil(store):
            factor = tirx.Cast("float32", rows - tirx.const(2, "int64"))
            return tirx.BufferStore(store.buffer, store.value.a * factor, store.indices)

        body = tvm_ffi.structural_map(function.body, [(tirx.BufferStore, spoil)], order="post")
        return s_tir.Schedule(function.with_body(body))


RULES = (FourOnly(),)
"""


def test_too_much_work_for_the_unscheduled_kernel(runner, monkeypatch, tmp_path):
    """Candidate 0 is the reference then, and the measurement says so."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        "import tvmpass.compile.verify_numeric as v\nv.MAX_SCALAR_OPS = 100\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    work = named(cases.matmul(16, 32, 16), "large")
    with LocalRunner(cases.TARGET, cases.OPTIONS, [PLANTED]) as own:
        good, bad = measure(own, Job(work, work.candidate0), Job(work, plant("wrong-value")))
    assert (good.status, good.checked) == ("ok", "candidate0")
    assert (bad.status, bad.checked) == ("wrong", "candidate0")


def test_libraries_and_workloads_are_kept_within_bounds(runner, monkeypatch):
    works = [named(cases.matmul(8, 16, k), f"kept {k}") for k in (4, 5, 6)]
    builder = Builder(runner.server)
    folders = [builder.prepare(work).folder for work in works]
    assert all(folder.is_dir() for folder in folders)
    monkeypatch.setattr(builder_module, "KEPT_BYTES", 1)
    monkeypatch.setattr(builder_module, "KEPT_LIBRARIES", 1)
    assert builder.prepare(works[1]).folder == folders[1]
    assert [folder.is_dir() for folder in folders] == [False, True, False]
    (built,) = builder.build([(works[0], works[0].candidate0)])
    assert built.path.is_file() and len(builder._libraries) == 1
    assert builder.prepare(works[0]).folder.is_dir()


def test_equal_jobs_are_built_once(runner):
    work = named(cases.matmul(8, 16, 7), "once")
    first, second = runner.builder.build([(work, work.candidate0)] * 2)
    (again,) = runner.builder.build([(work, work.candidate0)])
    assert first is second is again


def test_an_interruption_ends_what_runs(runner):
    work = named(cases.matmul(8, 16, 9), "interrupted")
    calls = []

    def done(job, measurement):
        calls.append(job)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.measure([Job(work, work.candidate0)] * 2, done)
    assert len(calls) == 1
    assert [m.status for m in measure(runner, Job(work, work.candidate0))] == ["ok"]


def test_a_missing_compiler_is_no_candidates_fault(monkeypatch):
    def missing(*_):
        raise TvmpassError("tuning needs a C++ compiler: install g++")

    monkeypatch.setattr(builder_module, "host_compiler", missing)
    with pytest.raises(TvmpassError, match=r"needs a C\+\+ compiler"):
        LocalRunner(cases.TARGET, cases.OPTIONS)


def test_cuda_without_a_device_names_both_ways():
    from tvmpass.compile.cuda_probe import probe

    if probe().answers:
        pytest.skip("a CUDA device answers on this machine")
    with pytest.raises(TvmpassError) as caught:
        make_runner(parse_target("cuda:sm_90", 1), cases.OPTIONS)
    text = str(caught.value)
    assert text.startswith("cuda:sm_90 cannot be measured here: no CUDA device answers on this machine")
    assert text.endswith(
        "tune on a machine with such a device, or on others through a tracker: --rpc HOST:PORT --rpc-key KEY"
    )
    assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rpc_key": "k"}, "--rpc-key needs --rpc HOST:PORT"),
        ({"rpc": "host:1"}, "--rpc needs --rpc-key"),
        ({"rpc": "host", "rpc_key": "k"}, "given as HOST:PORT"),
        ({"rpc": "host:0", "rpc_key": "k"}, "given as HOST:PORT"),
        ({"rpc": ":70000", "rpc_key": "k"}, "given as HOST:PORT"),
    ],
)
def test_calls_that_make_no_sense(options, message):
    with pytest.raises(UsageError, match=message):
        make_runner(cases.TARGET, cases.OPTIONS, **options)


def test_slow_kernels_get_more_time(runner):
    work = named(cases.matmul(8, 16, 10), "slow")
    ready = runner.builder.prepare(work)
    job = Job(work, work.candidate0)
    slow = Prepared(**{**vars(ready), "operations": 2e9})
    endless = Prepared(**{**vars(ready), "operations": 1e15})
    limits = [runner._seconds(job, kernel) - runner.run_seconds for kernel in (ready, slow, endless)]
    assert limits == pytest.approx([0.0, 40.0, runners.LONGEST_SECONDS], abs=0.1)
