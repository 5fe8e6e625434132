"""Builds with tuning records: used where they gained, and the report says what became of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir

import tvmpass
from tests.compile.record_lines import line, write
from tvmpass import catalogue
from tvmpass.compile import codegen, records
from tvmpass.compile.context import read_options
from tvmpass.compile.passes import _schedule_module
from tvmpass.compile.target import parse_target
from tvmpass.compile.trace import renamed, trace_text
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options
from tvmpass.core.report import Report
from tvmpass.core.rule import ScheduleRule
from tvmpass.cost.device import device_class
from tvmpass.testing.graphs import graph
from tvmpass.tune.tasks import plan_tasks

pytestmark = pytest.mark.slow  # ten small builds

TARGET = "llvm"
R = relax.op
X = np.random.default_rng(1).standard_normal((5, 24)).astype("float32")
OPTIONS = {"tvmpass.threads": 1}


def net():
    """Two layers and a softmax: three kinds of kernel."""
    rng = np.random.default_rng(0)
    w, v = (relax.const(rng.standard_normal((24, 24)).astype("float32")) for _ in range(2))
    return graph(lambda x: R.nn.softmax(R.matmul(R.nn.relu(R.matmul(x, w)), v)), ((5, 24),))


@pytest.fixture(scope="module")
def tasks():
    target = parse_target(TARGET, 1)
    return plan_tasks(net(), target, Options(threads=1), own_class())[0]


def own_class() -> str:
    return device_class(parse_target(TARGET, 1), 1)


def other_recipe(task) -> str:
    work = task.workload
    listed = catalogue.recipes(classify(work.function), work.target, work.options)
    return next(str(r) for r in listed if str(r) != work.candidate0.recipe)


def entry(task, **changes):
    given = {"recipe": other_recipe(task), "recipe_version": task.recipe_version, **changes}
    return line(kernel_key=task.key, kind=task.kind, **given)


def build(folder="off", verify="structure", rules=None):
    config = {**OPTIONS, "tvmpass.tuning_logs": str(folder), "tvmpass.verify": verify}
    with tvmpass.PassContext(config=config):
        return tvmpass.build(net(), TARGET, rules=rules)


@pytest.fixture(autouse=True)
def nothing_ships(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "shipped_logs", lambda: tmp_path / "none")


@pytest.fixture(scope="module")
def plain():
    made = build()
    return made.run(x=X)[0]


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * np.abs(want).max())


def tuned(lib) -> list:
    return [k for k in lib.report.kernels if k.schedule == "tuned"]


def test_records_are_used_and_the_report_says_so(tmp_path, tasks, plain):
    lines = [entry(task) for task in tasks]
    slow = [entry(task, recipe=task.workload.candidate0.recipe, median_us=9.9) for task in tasks]
    crashed = entry(tasks[0], recipe="vectorize-inner", status="crash", median_us=None)
    write(tmp_path / "a.tuned.jsonl", *lines, *slow, crashed, device_class=own_class())
    lib = build(tmp_path)
    close(lib.run(x=X)[0], plain)
    assert lib.report.records == {"present": 2 * len(tasks) + 1, "used": len(tasks), "orphaned": 0}
    used = tuned(lib)
    assert len(used) == len(tasks)
    assert {k.record["key"] for k in used} == {e["key"] for e in lines}
    first = used[0]
    assert first.record["median_us"] == 8.0 and first.record["candidate0_us"] == 10.0
    assert first.record["recipe"] and first.record["trace"] is False and first.note is None
    assert first.predicted.source == "measured" and first.predicted.mean == 8.0
    saved = lib.report.to_json()
    assert Report.from_json(saved).to_json() == saved
    assert saved["kernels"][0]["record"] == first.record
    assert build(tmp_path).report.dumps() == lib.report.dumps()  # byte for byte


def test_the_plan_is_the_same_with_and_without_records(tmp_path, tasks):
    write(tmp_path / "a.tuned.jsonl", *map(entry, tasks), device_class=own_class())
    with_records, without = build(tmp_path).report, build().report
    assert [d.site for d in with_records.decisions] == [d.site for d in without.decisions]
    assert [k.name for k in with_records.kernels] == [k.name for k in without.kernels]


def test_records_of_another_class_or_version_are_orphans(tmp_path, tasks):
    lines = [entry(task) for task in tasks]
    write(tmp_path / "a.tuned.jsonl", *lines, device_class="aarch64-dotprod-t1")
    write(tmp_path / "b.tuned.jsonl", *lines, device_class=own_class(), tvm="0.0.1")
    old = [entry(task, recipe_version=task.recipe_version + 1) for task in tasks]
    write(tmp_path / "c.tuned.jsonl", *old, device_class=own_class())
    report = build(tmp_path).report
    assert report.records == {"present": 3 * len(tasks), "used": 0, "orphaned": 3 * len(tasks)}
    assert all(k.schedule.startswith("library:") for k in report.kernels)


def test_a_traced_kernel_is_built(tmp_path, tasks, plain):
    task = next(t for t in tasks if t.kind == "matmul")
    function = renamed(task.workload.function)
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    rows, columns, _ = schedule.get_loops(schedule.get_sblock("b0"))
    schedule.reorder(columns, rows)
    trace = json.loads(trace_text(schedule))
    found = entry(task, recipe=None, trace=trace)
    write(tmp_path / "a.tuned.jsonl", found, device_class=own_class())
    lib = build(tmp_path)
    (kernel,) = tuned(lib)
    assert kernel.record["trace"] is True and kernel.record["recipe"] is None
    close(lib.run(x=X)[0], plain)


def test_a_record_that_is_refused_leaves_the_library_choice(tmp_path, tasks, plain):
    evil = [[["Annotate", ["b0", '"x"'], ["pragma_import_c"], []]], []]
    lines = [entry(tasks[0], recipe="tile-conv"), entry(tasks[1], recipe=None, trace=evil)]
    write(tmp_path / "a.tuned.jsonl", *lines, device_class=own_class())
    lib = build(tmp_path)
    assert lib.report.records["used"] == 0 and not tuned(lib)
    notes = " ".join(k.note or "" for k in lib.report.kernels)
    assert "wrong-kernel-kind" in notes and "trace-unreadable" in notes
    assert re.search(rf"tuning record {lines[0]['key'][:12]} is not used", notes)
    close(lib.run(x=X)[0], plain)


def test_a_record_that_does_not_compile_leaves_the_library_choice(tmp_path, tasks, plain, monkeypatch):
    write(tmp_path / "a.tuned.jsonl", *map(entry, tasks), device_class=own_class())
    first = codegen.compile_object
    failed = []

    def fail_once(name, *arguments):
        if name not in failed and name.startswith("tvmpass_"):
            failed.append(name)
            raise ValueError("no such instruction")
        return first(name, *arguments)

    monkeypatch.setattr(codegen, "compile_object", fail_once)
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path / "cache"))
    lib = build(tmp_path)
    assert len(failed) == len(tasks)
    assert lib.report.records["used"] == 0
    for kernel in lib.report.kernels:
        assert kernel.schedule.startswith("library:") and kernel.record is None
        assert "tuned: not compiled: no such instruction" in kernel.note
    close(lib.run(x=X)[0], plain)


@dataclass(frozen=True)
class LoseSign(ScheduleRule):
    """Compute something else, as a faulty rule of a user's."""

    def rewrite(self, schedule, kernel):
        text = schedule.mod.script().replace("T.float32(0.0)", "T.float32(0.5)")
        return s_tir.Schedule(tvm.script.from_source(text))


def test_numeric_verification_looks_at_tuned_kernels(tmp_path, tasks, plain):
    rules = (*catalogue.rules(), LoseSign())
    wrong = [entry(t, recipe="lose-sign") for t in tasks if t.kind == "matmul"]
    right = [entry(t) for t in tasks if t.kind != "matmul"]
    write(tmp_path / "a.tuned.jsonl", *wrong, *right, device_class=own_class())
    lib = build(tmp_path, verify="numeric", rules=rules)
    assert lib.report.records["used"] == len(right)
    assert sum("is not used: " in (k.note or "") for k in lib.report.kernels) == len(wrong)
    close(lib.run(x=X)[0], plain)


def test_problems_of_files_are_notes(tmp_path, tasks):
    write(tmp_path / "a.tuned.jsonl", "{", *map(entry, tasks), device_class=own_class())
    (tmp_path / "b.tuned.jsonl").write_text("something else\n")
    report = build(tmp_path).report
    assert report.records["used"] == len(tasks)
    notes = [note for note in report.ledger.notes if ".tuned.jsonl" in note]
    assert len(notes) == 2 and "a.tuned.jsonl:2: skipped" in notes[0]


def test_records_switched_off(tmp_path, tasks, monkeypatch):
    write(tmp_path / "tuning_logs" / "a.tuned.jsonl", *map(entry, tasks), device_class=own_class())
    monkeypatch.chdir(tmp_path)
    assert build("lookup").report.records["used"] == len(tasks)
    assert build("off").report.records == {"present": 0, "used": 0, "orphaned": 0}


def test_tvms_own_entry_points_use_records(tmp_path, tasks, plain):
    write(tmp_path / "a.tuned.jsonl", *map(entry, tasks), device_class=own_class())
    task = next(t for t in tasks if t.kind == "matmul")
    kernels = tvm.IRModule({"main": task.workload.function.with_attr("global_symbol", "main")})
    texts = []
    for folder in (str(tmp_path), "off"):
        with tvmpass.PassContext(config={**OPTIONS, "tvmpass.tuning_logs": folder}):
            machine = tvm.compile(net(), TARGET, relax_pipeline=tvmpass.pipeline(TARGET))
            found = relax.VirtualMachine(machine, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()
            close(found, plain)
            texts.append(_schedule_module(kernels, read_options()[0])["main"].script())
    assert texts[0] != texts[1]
