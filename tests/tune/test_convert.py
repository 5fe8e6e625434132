"""Records to MetaSchedule's database and back, through TVM's own classes."""

from __future__ import annotations

import base64
import json

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te
from tvm.s_tir import meta_schedule as ms

from tests.tir_passes.cases import KERNELS, OPTIONS, TARGET
from tests.tune import log_files
from tests.tune.log_files import write
from tests.tune.workloads import workload
from tvmpass.catalogue import recipe_version
from tvmpass.compile.kernel_key import kernel_key, plain_kernel, record_key
from tvmpass.compile.record_files import read_file
from tvmpass.compile.trace import apply_trace, renamed, trace_text
from tvmpass.core.errors import TvmpassError
from tvmpass.core.report import Refusal
from tvmpass.cost.device import device_class
from tvmpass.tune.convert import RECORDS, WORKLOADS, from_database, is_database, to_database
from tvmpass.tune.convert_child import convert, positional, read_module
from tvmpass.tune.log_lines import read_log
from tvmpass.tune.logs import kernels
from tvmpass.tune.records import record_path
from tvmpass.tune.work import Workload

CLASS = device_class(TARGET, OPTIONS.threads)


def keyed(function) -> Workload:
    made = workload(function)
    key = kernel_key(function, CLASS, OPTIONS)
    version = recipe_version(made.kind, "llvm")
    return Workload(key, made.kind, function, TARGET, OPTIONS, CLASS, version, made.candidate0)


def product(names: str = "ABCD"):
    a, b, c, d = names
    left, right = (te.placeholder((32, 32), "float32", name=n) for n in (a, b))
    k = te.reduce_axis((0, 32), "k")
    out = te.compute((32, 32), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name=c)
    top = te.compute((32, 32), lambda i, j: tvm.tirx.max(out[i, j], 0.0), name=d)
    return te.create_prim_func([left, right, top])


def tiled(function, block: str, size: int) -> s_tir.Schedule:
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    rows, columns, _ = schedule.get_loops(schedule.get_sblock(block))
    outer, inner = schedule.split(columns, [None, size])
    schedule.reorder(outer, rows, inner)
    schedule.vectorize(inner)
    written = schedule.cache_write(schedule.get_sblock(block), 0, "global")
    schedule.vectorize(schedule.get_loops(written)[-1])
    return schedule


def trace_record(made: Workload, size: int, **changes) -> dict:
    text = trace_text(tiled(renamed(made.function), "b0", size))
    shape = {"kernel_key": made.kernel_key, "kind": made.kind, "recipe_version": made.recipe_version}
    line = {**log_files.record(), **shape, "recipe": None, "trace": json.loads(text), **changes}
    return {**line, "key": record_key(made.kernel_key, text, made.recipe_version), "features": None}


def foreign(folder, function, *sizes: int, seconds=(1e-5, 2e-5), target=TARGET) -> None:
    """Make a database as MetaSchedule would, with the function's own names of blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    held = database.commit_workload(module)
    for size in sizes:
        schedule = s_tir.Schedule(module)
        block = schedule.get_sblock("C")
        _, columns, _ = schedule.get_loops(block)
        _, inner = schedule.split(columns, [None, size])
        schedule.vectorize(inner)
        schedule.cache_write(block, 0, "global")
        schedule.annotate(schedule.get_sblock("C_global"), "meta_schedule.cache_type", 0)
        arguments = ms.arg_info.ArgInfo.from_prim_func(function)
        database.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, held, list(seconds), target, arguments)
        )


def test_traces_go_there_and_come_back_the_same(tmp_path):
    made = keyed(product())
    lines = [trace_record(made, 8), trace_record(made, 16, samples_us=[7.0, 8.0, 9.0], median_us=8.0)]
    log = read_log(write(tmp_path / "a.tuned.jsonl", *lines, device_class=CLASS))
    assert log.problems == []
    row = to_database([log], [made], tmp_path / "db")
    assert (row["records"], row["kernels"], row["left_out"]) == (2, 1, {})
    assert is_database(tmp_path / "db")
    assert {p.name for p in (tmp_path / "db").iterdir()} == {WORKLOADS, RECORDS}

    # As a script of MetaSchedule would use it:
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"), allow_missing=False)
    module = tvm.IRModule({"main": made.function.with_attr("global_symbol", "main")})
    best = database.query_tuning_record(module, TARGET, "main")
    assert [round(float(t) * 1e6, 3) for t in best.run_secs] == [4.9, 5.0, 5.1]
    scheduled = database.query_schedule(module, TARGET, "main").mod["main"]
    wanted = apply_trace(made.function, json.dumps(lines[0]["trace"]))
    assert tvm_ffi.structural_equal(plain_kernel(scheduled), plain_kernel(wanted))

    row, problems = from_database(tmp_path / "db", tmp_path / "back", TARGET, OPTIONS, {})
    assert problems == [] and (row["records"], row["left_out"]) == (2, {})
    back = read_file(record_path(tmp_path / "back", CLASS))
    assert back.problems == []
    for found, line in zip(back.records, lines):
        for name in ("key", "kernel_key", "kind", "recipe_version", "median_us"):
            assert getattr(found, name) == line[name]
        assert json.loads(found.trace) == line["trace"]
        assert found.samples_us == tuple(line["samples_us"])
        assert found.candidate0_us is None and found.features


def test_what_has_no_trace_is_said(tmp_path):
    made = keyed(product())
    shape = {"kernel_key": made.kernel_key, "kind": made.kind}
    recipe = made.candidate0.recipe
    lines = [
        trace_record(made, 8),
        log_files.record(1),
        log_files.record(recipe=recipe, **shape),
        log_files.record(recipe="tile-matmul{m=8}", status="crash", median_us=None, **shape),
    ]
    log = read_log(write(tmp_path / "a.tuned.jsonl", *lines, device_class=CLASS))
    assert log.problems == []
    row = to_database([log], [made], tmp_path / "db")
    assert row["left_out"] == {"other-kernel": 1, "recipe-without-trace": 1, "failed": 1}
    with pytest.raises(TvmpassError, match="holds a database"):
        to_database([log], [made], tmp_path / "db")
    with pytest.raises(TvmpassError, match="nothing to convert"):
        to_database([log], [], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_recipe_whose_steps_are_traced_goes_as_its_trace(tmp_path):
    made = keyed(KERNELS["matmul"][0]())
    shape = {"kernel_key": made.kernel_key, "kind": made.kind}
    line = log_files.record(recipe="inline-neighbours", **shape)
    log = read_log(write(tmp_path / "a.tuned.jsonl", line, device_class=CLASS))
    assert to_database([log], [made], tmp_path / "db")["records"] == 1
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"), allow_missing=False)
    assert len(database) == 1 and len(database.get_all_tuning_records()[0].trace.insts) > 0


def test_a_foreign_database_fits_every_equal_kernel(tmp_path):
    foreign(tmp_path / "db", product(), 4, 8, 16, 8)
    row, problems = from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {"host": "here"})
    assert problems == []
    assert (row["records"], row["kernels"], row["waiting"]) == (3, 1, 3)
    assert row["left_out"] == {"duplicate": 1}
    other = keyed(product("WXYZ"))
    for record in read_file(record_path(tmp_path / "logs", CLASS)).records:
        assert record.kernel_key == other.kernel_key
        assert not isinstance(apply_trace(other.function, record.trace), Refusal)
    again, _ = from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {})
    assert again["records"] == 0 and again["left_out"]["on-record"] == 3


def test_the_next_tune_times_what_came_and_no_build_uses_it_before(tmp_path):
    from tvmpass.tune.budget import Budget, recall
    from tvmpass.tune.tasks import Task

    foreign(tmp_path / "db", product(), 4, 8)
    from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {})
    path = record_path(tmp_path / "logs", CLASS)
    (row,) = kernels([read_log(path)])
    assert row["unused"] == "not-compared" and row["gain"] is None
    made = keyed(product())
    task = Task(
        made.kernel_key, made.kind, made.recipe_version, made.candidate0.text, ["k"], [], 1, 1.0, made
    )
    budget = Budget(10, None)
    recall([task], read_file(path), "model", budget)
    assert budget.recorded == 0 and task.tried == {}
    assert {s.candidate.trace for s in task.screened.values()} == {r.trace for r in read_file(path).records}


def test_records_that_do_not_belong_are_left_out(tmp_path):
    other = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})
    foreign(tmp_path / "other", product(), 4, target=other)
    row, _ = from_database(tmp_path / "other", tmp_path / "logs", TARGET, OPTIONS, {})
    assert (row["records"], row["left_out"]) == (0, {"other-target": 1})
    foreign(tmp_path / "failed", product(), 4, seconds=(1e10,))
    row, _ = from_database(tmp_path / "failed", tmp_path / "logs", TARGET, OPTIONS, {})
    assert (row["records"], row["left_out"]) == (0, {"failed": 1})
    assert not (tmp_path / "logs").exists()


def spoilt(folder, name: str, change) -> None:
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    (folder / name).write_text("\n".join(map(json.dumps, change(lines))) + "\n")


def _module(change):
    def spoil(lines):
        data = base64.b64decode(lines[0][1])
        graph = json.loads(data[8:])
        change(graph)
        lines[0][1] = base64.b64encode(data[:8] + json.dumps(graph).encode()).decode()
        return lines

    return spoil


def _annotated(lines):
    pragma = ["Annotate", ["b0", '"int system();"'], ["pragma_import_c"], []]
    lines[0][1][0][0].append(pragma)
    return lines


@pytest.mark.parametrize(
    "name, change, why",
    [
        (
            RECORDS,
            lambda lines: [*lines, 3, [0], [99, [[], [], {}]], [True, [[], [], {}]]],
            "no tuning record",
        ),
        (RECORDS, lambda lines: [[0, [[[], []], "x", {}]], *lines], None),
        (RECORDS, lambda lines: [[0, [[[], []], [1e-5], {"kind": "no-such"}]], *lines], None),
        (RECORDS, lambda lines: [*_annotated([json.loads(json.dumps(lines[0]))]), *lines], None),
        (WORKLOADS, lambda lines: [["1", "not base64!"]], "base64"),
        (WORKLOADS, lambda lines: [["1", 3]], "no workload"),
        (WORKLOADS, _module(lambda g: g.update(root_index=10**9)), "skipped"),
        (WORKLOADS, _module(lambda g: g["nodes"].append({"type": "ffi.Module", "data": {}})), "ffi.Module"),
        (WORKLOADS, _module(lambda g: g.update(nodes=[])), "skipped"),
    ],
)
def test_a_spoilt_database_costs_its_bad_lines_alone(tmp_path, name, change, why):
    foreign(tmp_path / "db", product(), 4)
    spoilt(tmp_path / "db", name, change)
    row, problems = from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {})
    assert row["records"] == (1 if name == RECORDS else 0)
    if why is None:
        assert problems == [] and sum(row["left_out"].values()) == 1
    else:
        assert problems and all(why in p and "\n" not in p for p in problems)


def test_text_that_is_no_json_is_named(tmp_path):
    foreign(tmp_path / "db", product(), 4)
    with open(tmp_path / "db" / RECORDS, "a") as stream:
        stream.write("[0, [")
    row, problems = from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {})
    assert row["records"] == 1 and "not JSON" in problems[0]
    with pytest.raises(TvmpassError, match="No such file"):
        from_database(tmp_path / "none", tmp_path / "logs", TARGET, OPTIONS, {})


def test_a_database_that_ends_its_reader_is_one_line(tmp_path, monkeypatch):
    foreign(tmp_path / "db", product(), 4)
    monkeypatch.setattr("tvmpass.tune.convert.SECONDS", 0.0)
    row, problems = from_database(tmp_path / "db", tmp_path / "logs", TARGET, OPTIONS, {})
    assert row["records"] == 0 and len(problems) == 1 and "skipped with its 1 records" in problems[0]


def test_traces_are_read_before_they_are_applied():
    function = product()
    assert positional(function, [[["GetSBlock", [], ["nowhere", "main"], ["b0"]]], []]) is None
    assert positional(function, [[["NoSuch", [], [], []]], []]) is None
    assert json.loads(positional(function, json.loads(trace_text(tiled(function, "C", 8)))))[0][0] == [
        "GetSBlock",
        [],
        ["b0", "main"],
        ["b0"],
    ]


def test_the_child_reads_what_tvm_writes():
    function = product()
    text = ms.database.Workload(tvm.IRModule({"main": function})).as_json()[1]
    assert tvm_ffi.structural_equal(read_module(text), function)
    assert convert(text, [], json.dumps({"kind": "llvm"}), vars(OPTIONS), CLASS) == {
        "lines": [],
        "left_out": {},
    }
