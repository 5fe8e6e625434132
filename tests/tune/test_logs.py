"""`tvmpass.tune.logs`: nothing is lost or mixed when record files are put together or thinned out."""

from __future__ import annotations

import gzip
import json
import os
import random

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tune.log_files import (
    CLASS,
    alternative,
    candidate0,
    entries,
    failed,
    kernel,
    record,
    train_line,
    write,
)
from tvmpass.compile.record_files import read_file
from tvmpass.core.errors import TvmpassError
from tvmpass.cost import dataset
from tvmpass.tune.log_lines import Line, find_logs, read_log, read_logs
from tvmpass.tune.logs import distinct, founded, kernels, merge, prune, summarize
from tvmpass.tune.records import RecordFile

NAME = CLASS + ".tuned.jsonl"
SESSION = {"session": {"trials": 3}}


def test_reads_every_kind_of_line(tmp_path):
    lines = [record(), candidate0(), failed(), train_line("t"), alternative("g", "off"), SESSION]
    log = read_log(write(tmp_path / NAME, *lines))
    assert log.problems == []
    assert [line.sort for line in log.lines] == ["record"] * 3 + ["train", "alternative", "session"]
    assert [line.entry for line in log.lines] == lines


@pytest.mark.parametrize(
    "line, why",
    [
        ('{"key": "cut o', "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 10_000, "nested deeper"),
        (record(key="0" * 64), "key: not that of its kernel"),
        (record(status="fine"), "status"),
        (record(median_us=float("nan")), "NaN"),
        (record(kernel_key="../../etc"), "kernel_key"),
        ({**train_line("t"), "features": [1.0]}, "features"),
        (alternative("g", "maybe"), "alternative"),
        ({"session": 3}, "session"),
        ({"hello": 1}, "status"),
    ],
)
def test_a_bad_line_is_named_and_left_out(tmp_path, line, why):
    log = read_log(write(tmp_path / NAME, record(1), line, record(2)))
    (problem,) = log.problems
    assert problem.startswith(f"{tmp_path / NAME}:3: skipped: ") and why in problem
    assert [r.kernel_key for r in log.records] == [kernel(1), kernel(2)]


@pytest.mark.parametrize(
    "head, why",
    [
        ({"schema": 7}, "no header"),
        ({"device_class": None}, "no header"),
        ({"device_class": "../../../tmp/x-t1"}, "device_class"),
        ({"device_class": "x" * 200 + "-t1"}, "device_class"),
        ({"feature_version": "1"}, "feature_version"),
    ],
)
def test_what_is_no_record_file_is_an_error_where_named_and_a_problem_in_a_folder(tmp_path, head, why):
    path = write(tmp_path / NAME, record(), **head)
    with pytest.raises(TvmpassError, match=why) as error:
        read_logs([path])
    assert str(error.value).startswith(f"{path}:1: ") and "\n" not in str(error.value)
    write(tmp_path / "good.jsonl", train_line("t"))
    logs, problems = read_logs([tmp_path])
    assert [log.path.name for log in logs] == ["good.jsonl"]
    assert len(problems) == 1 and why in problems[0]


def test_files_are_found_once_and_in_order(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "model.json", "a.jsonl.lock"):
        (tmp_path / name).touch()
    (tmp_path / "link.jsonl").symlink_to("b.jsonl")
    found = find_logs([tmp_path, tmp_path / "b.jsonl"])
    assert [path.name for path, _ in found] == ["a.jsonl.gz", "b.jsonl"]
    with pytest.raises(TvmpassError, match="No such file"):
        find_logs([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TvmpassError, match="no record files"):
        find_logs([tmp_path / "empty"])


def test_merging_into_a_folder_makes_a_file_per_origin(tmp_path):
    inputs = [
        write(tmp_path / "a" / NAME, record(1), SESSION),
        write(tmp_path / "b" / NAME, record(2)),
        write(tmp_path / "c" / "other.tuned.jsonl", record(3), device_class="x86-64-v3-t2"),
        write(tmp_path / "c" / "old.tuned.jsonl", record(4), tvm="0.26.0"),
        write(tmp_path / "c" / "train.jsonl", train_line("t")),
        write(tmp_path / "d.tuned.jsonl", record(5), device_class="cuda-sm_90", host={"sms": 132}),
        write(tmp_path / "e.tuned.jsonl", record(6), device_class="cuda-sm_90", host={"sms": 114}),
    ]
    rows, problems = merge(inputs, tmp_path / "out")
    assert problems == []
    held = {path.name: [e.get("kernel_key") for e in entries(path)] for path in (tmp_path / "out").iterdir()}
    assert held == {
        NAME: [kernel(1), None, kernel(2)],
        "x86-64-v3-t2.tuned.jsonl": [kernel(3)],
        f"{CLASS}.tvm-0.26.0.tuned.jsonl": [kernel(4)],
        f"{CLASS}.jsonl": ["t"],
        "cuda-sm_90.tuned.jsonl": [kernel(5)],
        "cuda-sm_90-114sms.tuned.jsonl": [kernel(6)],
    }
    assert sum(row["candidates"] for row in rows) == 6
    assert read_file(tmp_path / "out" / NAME).problems == []


def test_one_file_never_mixes_origins(tmp_path):
    mine = write(tmp_path / "a.jsonl", record(1))
    other = write(tmp_path / "b.jsonl", record(2), device_class="x86-64-v4-t1")
    with pytest.raises(TvmpassError, match=r"x86-64-v4-t1 .*name a folder"):
        merge([mine, other], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    merge([mine], tmp_path / "out.jsonl")
    before = (tmp_path / "out.jsonl").read_bytes()
    with pytest.raises(TvmpassError, match="do not go into one file"):
        merge([other], tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_what_the_output_holds_stays(tmp_path):
    out = write(tmp_path / "out" / NAME, record(1), SESSION)
    merge([write(tmp_path / "a.tuned.jsonl", record(2))], tmp_path / "out")
    merge([out, tmp_path / "a.tuned.jsonl"], tmp_path / "out")
    merge([out], out)
    assert [e.get("kernel_key") for e in entries(out)] == [kernel(1), None, kernel(2)]


def test_merging_waits_for_no_tune_but_says_so(tmp_path):
    source = write(tmp_path / "a.tuned.jsonl", record(1))
    with RecordFile.open(tmp_path / "out", CLASS, {}) as file:
        with pytest.raises(TvmpassError, match="being written by process"):
            merge([source], tmp_path / "out")
        with pytest.raises(TvmpassError, match="being written by process"):
            prune([file.path])
        file.append(record(2))
    merge([source], tmp_path / "out")
    assert len(entries(tmp_path / "out" / NAME)) == 2
    assert [p.name for p in (tmp_path / "out").iterdir()] == [NAME]


@pytest.mark.parametrize(
    "better, worse",
    [
        (failed(recipe="tile-matmul{m=6}", status="wrong"), record()),
        (record(), failed(recipe="tile-matmul{m=6}")),
        (record(), record(candidate0_us=None)),
        (record(samples_us=[5.0] * 15), record(samples_us=[5.0] * 5)),
    ],
)
def test_of_two_records_with_one_key_the_better_founded_stays(tmp_path, better, worse):
    assert better["key"] == worse["key"]
    for number, pair in enumerate(((better, worse), (worse, better))):
        rows, _ = merge([write(tmp_path / f"{number}.jsonl", *pair)], tmp_path / f"out{number}.jsonl")
        assert entries(tmp_path / f"out{number}.jsonl") == [better]
        assert rows[0]["duplicates"] == 1


def test_of_equals_the_first_stays_and_roles_are_apart(tmp_path):
    first, second = record(median_us=5.0), record(median_us=4.0)
    own = record(recipe=first["recipe"], role="candidate0", wins=None)
    merge([write(tmp_path / "a.jsonl", first, second, own)], tmp_path / "out.jsonl")
    assert entries(tmp_path / "out.jsonl") == [first, own]


def test_fusion_alternatives_of_one_graph_stay_together(tmp_path):
    one = [alternative("g", "off", 1.0), alternative("g", "on", 2.0)]
    two = [alternative("g", "off", 10.0), alternative("g", "partial:1", 20.0), alternative("g", "on", 30.0)]
    other = [alternative("h", "off", 5.0)]
    paths = [write(tmp_path / f"{n}.jsonl", *lines) for n, lines in enumerate(([*one, *other], two, one))]
    merge(paths, tmp_path / "out.jsonl")
    assert sorted(entries(tmp_path / "out.jsonl"), key=json.dumps) == sorted([*two, *other], key=json.dumps)


def test_a_kernel_measured_twice_for_training_stays_twice(tmp_path):
    one, two = train_line("t"), {**train_line("t"), "median_us": 3.0}
    paths = [write(tmp_path / f"{n}.jsonl", *lines) for n, lines in enumerate(([one, two], [one]))]
    merge(paths, tmp_path / "out.jsonl")
    assert entries(tmp_path / "out.jsonl") == [one, two]


def test_merging_does_not_depend_on_how_often_or_in_which_parts():
    rng = random.Random(0)
    lines = []
    for number in range(200):
        entry = record(rng.randrange(20), rng.choice(["a", "b", "c"]), samples_us=[1.0] * rng.randrange(9))
        lines.append(Line("record", {**entry, "serial": number}))
    whole = distinct(lines)
    assert distinct(whole) == whole
    for cut in (50, 100, 150):
        assert distinct([*distinct(lines[:cut]), *distinct(lines[cut:])]) == whole
    best = {line.identity: founded(line.entry) for line in whole}
    assert all(founded(line.entry) <= best[line.identity] for line in lines)


def test_compact_files_are_the_same_bytes_each_time_and_still_serve(tmp_path):
    source = write(tmp_path / "a.tuned.jsonl", record(1), candidate0(1), SESSION, train_line("t"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        merge([source], tmp_path / name, compact=True)
    first, second = (tmp_path / name / (NAME + ".gz") for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    head = gzip.decompress(first.read_bytes())
    assert b"somewhere" not in head
    (kept, *_), log = entries(first), read_file(first)
    assert log.problems == [] and len(log.records) == 2
    assert kept["samples_us"] == [] and "cause" not in kept
    assert kept["features"] == record(1)["features"]
    assert len(dataset.read([first], CLASS).kernels) == 3


def test_pruning_keeps_the_best_of_each_kernel(tmp_path):
    many = [record(1, f"tile-matmul{{m={m}}}", median_us=float(m)) for m in (4, 2, 9, 3, 8)]
    slow = record(1, "tile-matmul{m=1}", median_us=1.0, candidate0_us=1.0)  # fast, but no gain
    lines = [candidate0(1), *many, slow, failed(1, "tile-matmul{m=7}"), SESSION, train_line("t"), record(2)]
    path = write(tmp_path / NAME, *lines)
    rows, _ = prune([path], keep=2, dry=True)
    assert entries(path) == lines
    assert prune([path], keep=2)[0] == rows
    assert entries(path) == [candidate0(1), many[1], many[3], SESSION, train_line("t"), record(2)]
    assert rows[0]["why"] == {"failed": 1, "not-among-the-best": 4}
    assert prune([path], keep=2)[0][0]["dropped"] == 0


def test_pruning_drops_what_no_build_can_use(tmp_path):
    old = record(1, "tile-matmul{m=2}", recipe_version=10_000)
    trace = record(1, None, trace=[[["GetLoops", [], [], []]], []], recipe_version=10_000)
    current = record(1, None, trace=trace["trace"])
    path = write(tmp_path / NAME, old, trace, current, record(1))
    prune([path])
    assert entries(path) == [current, record(1)]
    stale = write(tmp_path / "stale.tuned.jsonl", record(1), SESSION, tvm="0.26.0")
    (row,), _ = prune([stale])
    assert row["removed"] and not stale.exists()
    mixed = write(tmp_path / "mixed.tuned.jsonl", record(1), train_line("t"), tvm="0.26.0")
    prune([mixed])
    assert entries(mixed) == [train_line("t")]


def test_pruning_elsewhere_leaves_the_source_alone(tmp_path):
    path = write(tmp_path / NAME, record(1), failed(1))
    prune([path], tmp_path / "out", failures=True)
    prune([path], tmp_path / "small", compact=True)
    assert len(entries(path)) == len(entries(tmp_path / "out" / NAME)) == 2
    assert len(entries(tmp_path / "small" / (NAME + ".gz"))) == 1
    with pytest.raises(TvmpassError, match="name an output"):
        prune([path], compact=True)
    write(tmp_path / "b.jsonl", train_line("t"))
    with pytest.raises(TvmpassError, match="merge them, or name a folder"):
        prune([path, tmp_path / "b.jsonl"], tmp_path / "one.jsonl")


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = write(tmp_path / NAME, record(1), failed(1))
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TvmpassError, match="No space left"):
        prune([path])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


def test_says_what_is_used_and_why_not(tmp_path):
    lines = [
        *(candidate0(n) for n in range(1, 6)),
        record(1),
        record(2, median_us=9.9),
        record(3, recipe_version=10_000),
        failed(4),
        record(6, candidate0_us=None),
    ]
    log = read_log(write(tmp_path / NAME, *lines))
    why = {int(row["kernel_key"], 16): row["unused"] for row in kernels([log])}
    assert why == {
        1: None,
        2: "not-faster",
        3: "old-recipe",
        4: "crash",
        5: "no-candidate",
        6: "not-compared",
    }
    (row,) = summarize([log])
    assert (row["candidates"], row["candidate0"], row["failed"], row["usable"]) == (5, 5, 1, 1)
    assert next(r for r in kernels([log]) if r["kernel_key"] == kernel(1))["gain"] == 2.0
    old = read_log(write(tmp_path / "old.tuned.jsonl", record(1), tvm="0.26"))
    assert kernels([old])[0]["unused"] == "other-tvm" and old.origin.tvm != tvm.__version__


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["ok", "candidate", "train", "off", kernel(1)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
WHOLE = [record(), candidate0(), failed(), train_line("t"), alternative("g", "off"), SESSION]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_line_holds_it_is_used_or_named(tmp_path, data):
    lines = []
    for line in WHOLE:
        changed = dict(line)
        for name in data.draw(
            st.lists(st.sampled_from([*line, "alternative", "session", "role"]), max_size=2)
        ):
            changed[name] = data.draw(JSON)
        lines.append(changed)
    head = {
        name: data.draw(JSON) for name in data.draw(st.lists(st.sampled_from(["tvm", "host"]), max_size=1))
    }
    path = write(tmp_path / "a.tuned.jsonl", *lines, **head)
    log = read_log(path)
    assert len(log.lines) + len(log.problems) == len(WHOLE)
    assert all("\n" not in problem for problem in log.problems)
    kernels([log]), summarize([log])
    out = tmp_path / "out.jsonl"
    out.unlink(missing_ok=True)
    merge([path], out)
    assert len(entries(out)) == len(distinct(log.lines))
    prune([path], out)
    read_file(path), dataset.read([path], CLASS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.binary(max_size=200), where=st.integers(0, 400))
def test_whatever_bytes_a_file_holds_it_is_read_or_refused(tmp_path, text, where):
    whole = write(tmp_path / "b.tuned.jsonl", record()).read_bytes()
    for name in ("c.tuned.jsonl", "c.tuned.jsonl.gz"):
        data = gzip.compress(whole, mtime=0) if name.endswith(".gz") else whole
        (tmp_path / name).write_bytes(data[:where] + text + data[where + len(text) :])
        try:
            log = read_log(tmp_path / name)
        except TvmpassError as error:
            assert "\n" not in str(error)
        else:
            assert len(log.lines) + len(log.problems) <= 200


def test_a_line_nested_too_deeply_is_left_out(tmp_path):
    deep = json.dumps({"session": {"a": 0}}).replace("0", "[" * 500 + "]" * 500)
    bracketed = {**record(), "cause": "[" * 100 + '\\"{'}
    log = read_log(write(tmp_path / NAME, deep, bracketed))
    assert len(log.lines) == 1 and "nested deeper" in log.problems[0]
