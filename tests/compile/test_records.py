"""Record files: what is read, what is skipped with a message, what a build may use."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compile.record_lines import CLASS, KEY, RECIPE, line, record, write
from tests.compile.test_tuned import SwapOuter
from tvmpass.catalogue import recipe_version
from tvmpass.compile import records as module
from tvmpass.compile.records import GATE, BadLine, Records, beats, find_files, read_file
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.cost.dataset import MAX_LINE_BYTES, MAX_PROBLEMS

TARGET = parse_target("llvm:x86-64-v3", 1)


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """Leave the records that ship and the working directory's out of it."""
    monkeypatch.setattr(module, "shipped_logs", lambda: tmp_path / "shipped")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def found(folder, device_class=CLASS, target=TARGET, **more) -> Records:
    return Records.of(Options(threads=1, tuning_logs=str(folder)), target, device_class, **more)


def test_a_file_is_read(tmp_path):
    path = write(
        tmp_path / "a.tuned.jsonl",
        line(),
        line(role="candidate0", recipe=None, median_us=10.0, candidate0_us=None, wins=None),
        line(role="train"),
        {"group_key": "g", "alternative": "off", "kernel_keys": [KEY], "median_us": 1.0},
        {"session": {"seconds": 3}},
        line(status="crash", median_us=None, cause="signal 11"),
        line(recipe=None, trace=[[["EnterPostproc", [], [], []]], []]),
    )
    log = read_file(path)
    assert log.problems == [] and log.sessions == [{"seconds": 3}] and log.device_class == CLASS
    assert [(r.role, r.status, r.line) for r in log.records] == [
        ("candidate", "ok", 2),
        ("candidate0", "ok", 3),
        ("candidate", "crash", 7),
        ("candidate", "ok", 8),
    ]
    first, plain, crashed, traced = log.records
    assert (first.recipe, first.median_us, first.samples_us) == (RECIPE, 8.0, (7.5, 8.0, 8.5))
    assert first.text == RECIPE and plain.text == "fallback" and crashed.cause == "signal 11"
    assert traced.text == traced.trace == '[[["EnterPostproc",[],[],[]]],[]]'


def test_a_compressed_file_is_read(tmp_path):
    plain = write(tmp_path / "plain.jsonl", line(), line(role="candidate0"))
    packed = tmp_path / "a.tuned.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert len(read_file(packed).records) == 2
    packed.write_bytes(packed.read_bytes()[:-20])
    assert "no gzip data" in read_file(packed).problems[-1]


BAD_LINES = {
    "{": "not JSON",
    "[1]": "not a JSON object",
    "[" * 200_000: "not JSON",
    "x" * (MAX_LINE_BYTES + 10): "longer than",
    '{"role": NaN}': "not JSON",
    json.dumps(line(median_us=None)): "median_us",
    json.dumps(line(median_us=-1.0)): "median_us",
    json.dumps(line(median_us=0)): "median_us",
    json.dumps(line(median_us=1e30)): "median_us",
    json.dumps(line(median_us=True)): "median_us",
    json.dumps(line(median_us="8")): "median_us",
    json.dumps(line()).replace("8.0", "1" + "0" * 400): "median_us",
    json.dumps(line()).replace("8.0", "9" * 5000): "not JSON",
    json.dumps(line(candidate0_us=[])): "candidate0_us",
    json.dumps(line(wins=1.5)): "wins",
    json.dumps(line(status="fine")): "status",
    json.dumps(line(status=["ok"])): "status",
    json.dumps(line(role="best")): "role",
    json.dumps(line(kind="gemm")): "kind",
    json.dumps(line(kernel_key="ab")): "kernel_key",
    json.dumps(line(kernel_key=7)): "kernel_key",
    json.dumps(line(recipe=["a"], key="k")): "recipe",
    json.dumps(line(recipe="x" * 5000)): "recipe",
    json.dumps(line(trace=[[], []])): "recipe and trace",
    json.dumps(line(recipe_version="1", key="k")): "recipe_version",
    json.dumps(line(samples_us="many")): "samples_us",
    json.dumps(line(features=[1e9])): "features",
    json.dumps({"session": 3}): "session",
}


@pytest.mark.parametrize("text", BAD_LINES, ids=range(len(BAD_LINES)))
def test_bad_lines_are_skipped_with_a_message(tmp_path, text):
    path = write(tmp_path / "a.tuned.jsonl", line(), text, line(role="candidate0"))
    log = read_file(path)
    assert len(log.records) == 2
    (problem,) = log.problems
    assert problem.startswith(f"{path}:3: skipped: ") and BAD_LINES[text] in problem
    assert len(problem) < len(str(path)) + 200 and "\n" not in problem


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(line())), VALUES)
def test_any_value_gives_a_record_or_one_reason(name, value):
    entry = line()
    entry[name] = value
    try:
        found = module.tuning_record(module.parse_line(json.dumps(entry).encode()))
    except BadLine as problem:
        assert str(problem) and "\n" not in str(problem)
    else:
        assert beats(found) in (True, False) and found.text and found.ratio >= 0


def test_a_torn_last_line_is_skipped(tmp_path):
    path = write(tmp_path / "a.tuned.jsonl", line(), line(role="candidate0"))
    path.write_bytes(path.read_bytes()[:-1])
    log = read_file(path)
    assert len(log.records) == 1 and "its writer was stopped" in log.problems[0]


def test_only_some_problems_are_listed(tmp_path):
    log = read_file(write(tmp_path / "a.tuned.jsonl", *["{"] * (MAX_PROBLEMS + 5)))
    assert len(log.problems) == MAX_PROBLEMS + 1 and "5 more lines" in log.problems[-1]


def test_a_file_without_end_is_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("tvmpass.compile.record_files.MAX_RECORDS", 3)
    log = read_file(write(tmp_path / "a.tuned.jsonl", *[line()] * 5))
    assert len(log.records) == 3 and "the rest is not read" in log.problems[-1]


@pytest.mark.parametrize("head", ["", "{}", "[]", '{"schema": 99, "device_class": "x"}', "\x00\x01"])
def test_files_without_our_header(tmp_path, head):
    path = tmp_path / "a.tuned.jsonl"
    path.write_text(head + "\n" * bool(head) + json.dumps(line()) + "\n" * bool(head))
    log = read_file(path)
    assert log.records == [] and log.header == {} and len(log.problems) == 1


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(TvmpassError, match="No such file"):
        read_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TvmpassError, match="not a regular file"):
        read_file(tmp_path / "pipe")


def test_the_gate():
    assert beats(record(median_us=10.0 * GATE))
    assert not beats(record(median_us=10.0 * GATE + 0.01))
    assert beats(record(wins=0.8)) and beats(record(wins=None)) and not beats(record(wins=0.79))
    assert not beats(record(candidate0_us=None))
    assert not beats(record(role="candidate0"))
    assert not beats(record(status="wrong"))


def test_the_largest_gain_of_its_own_session_is_used(tmp_path):
    write(tmp_path / "a.tuned.jsonl", line(median_us=5.0, candidate0_us=10.0))
    write(
        tmp_path / "b.tuned.jsonl",
        line(recipe="vectorize-inner", median_us=20.0, candidate0_us=100.0),
        line(recipe="unroll-inner", median_us=1.0, candidate0_us=1.0),
    )
    made = found(tmp_path)
    assert made.best(KEY).recipe == "vectorize-inner"  # 0.2 of its own; 5 us is less, but no ratio
    assert made.best("00" * 32) is None and made
    assert (made.present, made.orphaned, made.problems) == (3, 0, [])


def test_equal_gains_are_told_apart_by_key(tmp_path):
    lines = [line(recipe=text) for text in ("vectorize-inner", "unroll-inner", RECIPE)]
    write(tmp_path / "a.tuned.jsonl", *lines)
    first = found(tmp_path).best(KEY)
    write(tmp_path / "a.tuned.jsonl", *reversed(lines))
    assert found(tmp_path).best(KEY).key == first.key == min(entry["key"] for entry in lines)


def test_orphans(tmp_path):
    write(tmp_path / "a.tuned.jsonl", line(), line(role="candidate0"), device_class="x86-64-v4-t1")
    write(tmp_path / "b.tuned.jsonl", line(), tvm="0.1")
    write(
        tmp_path / "c.tuned.jsonl",
        line(recipe_version=99),
        line(recipe="tile-matmull"),
        line(recipe="swap-outer"),
        line(status="timeout", median_us=None),
        line(recipe=None, trace=[[["EnterPostproc", [], [], []]], []], recipe_version=99),
    )
    made = found(tmp_path)
    assert not made and made.best(KEY) is None
    assert (made.present, made.orphaned) == (8, 7)
    assert found(tmp_path, steps=(SwapOuter(),)).best(KEY).recipe == "swap-outer"


def test_records_of_another_thread_count_are_not_used(tmp_path):
    write(tmp_path / "a.tuned.jsonl", line(), device_class="x86-64-v3-t2")
    assert not found(tmp_path)
    assert found(tmp_path, "x86-64-v3-t2").best(KEY) is not None


def test_where_records_are_looked_for(tmp_path, monkeypatch):
    shipped = write(tmp_path / "shipped" / "s.tuned.jsonl", line(median_us=9.0))
    local = write(tmp_path / "work" / "tuning_logs" / "l.tuned.jsonl.gz")
    local.write_bytes(gzip.compress(write(tmp_path / "l", line(median_us=8.0)).read_bytes()))
    named = write(tmp_path / "named" / "n.tuned.jsonl", line(median_us=7.0))
    write(tmp_path / "named" / "train.jsonl", line(median_us=1.0))

    def looked(logs):
        return [path.resolve() for path in find_files(Options(threads=1, tuning_logs=logs))]

    assert looked("lookup") == [local, shipped]
    assert looked(str(tmp_path / "named")) == [named, shipped]
    assert looked("off") == []
    assert found(tmp_path / "named").best(KEY).median_us == 7.0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuning_logs").symlink_to(tmp_path / "shipped")
    assert looked("lookup") == [shipped]


def test_strangers_in_the_working_directory_are_passed_over(tmp_path):
    folder = tmp_path / "work" / "tuning_logs"
    folder.mkdir()
    (folder / "theirs.tuned.jsonl").write_text("0.1 0.2\n")
    (folder / "folder.tuned.jsonl").mkdir()
    made = Records.of(Options(threads=1), TARGET, CLASS)
    assert made.problems == ["tuning_logs/folder.tuned.jsonl: not a regular file"]
    assert len(found(folder).problems) == 2


def test_a_file_is_read_again_when_it_changed(tmp_path):
    path = write(tmp_path / "a.tuned.jsonl", line())
    assert found(tmp_path).present == 1
    with path.open("a") as stream:
        stream.write(json.dumps(line(role="candidate0")) + "\n")
    assert found(tmp_path).present == 2


def test_the_nearest_device_of_a_cuda_class(tmp_path):
    target = parse_target("cuda:sm_80", 1)
    version = recipe_version("matmul", "cuda")
    write(
        tmp_path / "far.tuned.jsonl",
        line(median_us=1.0, recipe="unroll-registers", recipe_version=version),
        device_class="cuda-sm_80",
        host={"sms": 8},
    )
    write(
        tmp_path / "near.tuned.jsonl",
        line(recipe="vectorize-lanes", recipe_version=version),
        device_class="cuda-sm_80",
        host={"sms": 108},
    )
    assert found(tmp_path, "cuda-sm_80", target).best(KEY).recipe == "vectorize-lanes"


def test_train_lines_are_passed_over_unparsed(tmp_path, monkeypatch):
    parsed: list[int] = []
    monkeypatch.setattr("tvmpass.compile.record_files.json.loads", counting(parsed, json.loads))
    write(tmp_path / "a.tuned.jsonl", *[line(role="train", features=[0.5] * 80)] * 500, line())
    assert found(tmp_path).present == 1
    assert len(parsed) == 2  # the header and one candidate


def counting(calls, function):
    def called(*arguments, **options):
        calls.append(1)
        return function(*arguments, **options)

    return called
