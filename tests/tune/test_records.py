"""One writer per record file, whole lines only, and nothing lost by a kill."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import tvm

from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.cost.dataset import MAX_LINE_BYTES
from tvmpass.tune import records
from tvmpass.tune.records import RecordFile, entry_of, record_path
from tvmpass.tune.work import CANDIDATE0, Candidate, Measurement, Workload

CLASS = "x86-64-v3-t1"
FACTS = {"host": "here", "mcpu": "haswell", "cores": 4}


def lines_of(path) -> list[dict]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def begin(folder, *entries) -> os.PathLike:
    with RecordFile.open(folder, CLASS, FACTS) as file:
        for entry in entries:
            file.append(entry)
    return file.path


def test_begins_with_a_header_and_appends_across_sessions(tmp_path):
    path = begin(tmp_path / "made" / "here", {"a": 1})
    assert path == record_path(tmp_path / "made" / "here", CLASS)
    begin(tmp_path / "made" / "here", {"b": 2})
    head, *rest = lines_of(path)
    assert (head["schema"], head["tvm"], head["device_class"]) == (1, tvm.__version__, CLASS)
    assert head["host"] == FACTS
    assert rest == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("cut", ['{"key": "to', '{"key": "é'.encode()[:-1].decode("latin-1"), "x" * 200_000])
def test_a_torn_last_line_goes_and_is_told(tmp_path, cut):
    path = begin(tmp_path, {"a": 1})
    with open(path, "a", encoding="latin-1") as stream:
        stream.write(cut)
    with RecordFile.open(tmp_path, CLASS, FACTS) as file:
        (note,) = file.notes
        assert "cut off" in note and str(len(cut)) in note
        file.append({"b": 2})
    assert lines_of(path)[1:] == [{"a": 1}, {"b": 2}]


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path):
    path = begin(tmp_path, {"a": 1})
    path.write_text(path.read_text()[:-1])
    begin(tmp_path, {"b": 2})
    assert lines_of(path)[1:] == [{"a": 1}, {"b": 2}]


def test_an_empty_file_is_begun(tmp_path):
    record_path(tmp_path, CLASS).touch()
    assert len(lines_of(begin(tmp_path, {"a": 1}))) == 2


@pytest.mark.parametrize(
    "text, why",
    [
        ("hello\n", "no header"),
        ('{"schema": 99, "device_class": "x86-64-v3-t1"}\n', "no header"),
        ('{"schema": 1, "device_class": "aarch64-t1"}\n', "aarch64-t1"),
        ('{"schema": 1', "no header"),
        ("[" * 100_000, "no header"),
    ],
)
def test_what_is_not_ours_is_refused_and_left_alone(tmp_path, text, why):
    path = record_path(tmp_path, CLASS)
    path.write_text(text)
    with pytest.raises(TvmpassError, match=why) as error:
        RecordFile.open(tmp_path, CLASS, FACTS)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert path.read_text() == text
    path.unlink()
    RecordFile.open(tmp_path, CLASS, FACTS, wait=False).close()  # the lock was given back


def test_a_folder_or_pipe_under_the_name_is_refused(tmp_path):
    os.mkfifo(record_path(tmp_path, CLASS))
    with pytest.raises(TvmpassError, match="not a regular file"):
        RecordFile.open(tmp_path, CLASS, FACTS)


@pytest.mark.parametrize("field, value", [("tvm", "0.26.0"), ("feature_version", 0)])
def test_records_of_another_version_are_set_aside(tmp_path, field, value):
    path = begin(tmp_path, {"a": 1})
    head, *rest = path.read_text().splitlines()
    old = json.dumps({**json.loads(head), field: value}) + "\n" + "\n".join(rest) + "\n"
    for number in (1, 2):
        path.write_text(old)
        with RecordFile.open(tmp_path, CLASS, FACTS) as file:
            (note,) = file.notes
        assert str(value) in note
        asides = [p for p in tmp_path.glob("*.jsonl") if p != path]
        assert len(asides) == number and all(p.read_text() == old for p in asides)
        assert len(lines_of(path)) == 1


def test_cuda_devices_with_other_sms_have_files_of_their_own(tmp_path):
    first = RecordFile.open(tmp_path, "cuda-sm_90", {"sms": 132, "name": "H100"})
    other = RecordFile.open(tmp_path, "cuda-sm_90", {"sms": 114, "name": "H100 PCIe"}, wait=False)
    assert first.path != other.path and other.header["host"]["sms"] == 114
    first.close()
    other.close()
    for sms, opened in ((132, first), (114, other)):
        with RecordFile.open(tmp_path, "cuda-sm_90", {"sms": sms}) as again:
            assert again.path == opened.path


def test_a_second_writer_is_told_or_waits(tmp_path):
    told = []
    first = RecordFile.open(tmp_path, CLASS, FACTS)
    with pytest.raises(TvmpassError, match=rf"written by process {os.getpid()}"):
        RecordFile.open(tmp_path, CLASS, FACTS, wait=False)

    def end_first(line):
        told.append(line)
        first.append({"a": 1})
        first.close()

    with RecordFile.open(tmp_path, CLASS, FACTS, waiting=end_first) as second:
        second.append({"b": 2})
    assert len(told) == 1 and "waiting" in told[0]
    assert lines_of(second.path)[1:] == [{"a": 1}, {"b": 2}]


def test_forked_children_do_not_hold_the_lock(tmp_path):
    file = RecordFile.open(tmp_path, CLASS, FACTS)
    event = multiprocessing.get_context("fork").Event()
    child = multiprocessing.get_context("fork").Process(target=event.wait, args=(30,))
    child.start()
    try:
        file.close()
        RecordFile.open(tmp_path, CLASS, FACTS, wait=False).close()
    finally:
        event.set()
        child.join()


WRITER = """
import itertools, sys
from tvmpass.tune.records import RecordFile
with RecordFile.open(sys.argv[1], "x86-64-v3-t1", {}) as file:
    print("open", flush=True)
    for number in itertools.count():
        file.append({"number": number, "by": sys.argv[2], "ballast": "x" * 50_000})
        print(number, flush=True)
"""


def test_kill_9_in_the_middle_of_writing_loses_no_line(tmp_path):
    confirmed = {}
    for run in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "open\n"
            time.sleep(0.05 + 0.03 * run)
            process.send_signal(signal.SIGKILL)
            confirmed[str(run)] = max(
                (int(line) for line in process.stdout.read().split("\n") if line), default=-1
            )
    with RecordFile.open(tmp_path, CLASS, FACTS, wait=False) as file:
        entries = lines_of(file.path)[1:]
    for run, last in confirmed.items():
        numbers = [e["number"] for e in entries if e["by"] == run]
        assert numbers == list(range(len(numbers)))
        assert last + 1 <= len(numbers) <= last + 2
    assert all(len(e["ballast"]) == 50_000 for e in entries)


FULL = """
import resource, sys
from tvmpass.core.errors import TvmpassError
from tvmpass.tune.records import RecordFile
with RecordFile.open(sys.argv[1], "x86-64-v3-t1", {}) as file:
    file.append({"a": 1})
    size = file.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
    try:
        file.append({"b": "x" * 1000})
    except TvmpassError as error:
        print(error)
"""


def test_a_line_that_does_not_fit_the_disk_leaves_no_piece(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("cannot write ") and "kept" in line
    path = record_path(tmp_path, CLASS)
    assert lines_of(path)[1:] == [{"a": 1}]


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    with RecordFile.open(tmp_path, CLASS, FACTS) as file:

        def full(handle, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(records.os, "write", full)
        with pytest.raises(TvmpassError, match="No space left on device; the records before it are kept"):
            file.append({"a": 1})


def test_a_read_only_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write anywhere")
    try:
        with pytest.raises(TvmpassError, match="name a folder that can be written"):
            RecordFile.open(tmp_path, CLASS, FACTS)
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "logs").write_text("")
    with pytest.raises(TvmpassError, match="cannot write .*logs"):
        RecordFile.open(tmp_path / "logs", CLASS, FACTS)


def test_a_file_removed_meanwhile_is_begun_anew(tmp_path):
    with RecordFile.open(tmp_path, CLASS, FACTS) as file:
        file.append({"a": 1})
        file.path.unlink()
        file.append({"b": 2})
    assert lines_of(file.path)[1:] == [{"b": 2}]


def test_a_line_that_readers_would_skip_is_not_written(tmp_path):
    with RecordFile.open(tmp_path, CLASS, FACTS) as file:
        with pytest.raises(TvmpassError, match="at most"):
            file.append({"a": "x" * MAX_LINE_BYTES})
        with pytest.raises(ValueError):
            file.append({"a": float("nan")})
    assert len(lines_of(file.path)) == 1


def workload() -> Workload:
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    return Workload("ab" * 32, "matmul", None, target, Options(), CLASS, 7, Candidate("tile-matmul"))


def test_an_entry_holds_what_was_measured():
    measured = Measurement(
        "ok", 1.234567, [1.2, 1.3], 2.0, 1.0, [0.12345, 2], None, 3.21987, "here", "reference"
    )
    entry = entry_of(workload(), Candidate("tile-matmul{m=6}"), measured)
    json.dumps(entry, allow_nan=False)
    assert entry["key"] != entry["kernel_key"] and len(entry["key"]) == 64
    assert (entry["role"], entry["status"], entry["recipe_version"]) == ("candidate", "ok", 7)
    assert (entry["median_us"], entry["candidate0_us"], entry["wins"]) == (1.2346, 2.0, 1.0)
    assert entry["features"] == [0.123, 2.0] and entry["mcpu"] == "haswell"
    other = entry_of(workload(), Candidate("tile-matmul{m=8}"), measured)
    assert other["key"] != entry["key"]


def test_an_entry_of_a_trace_holds_it_as_a_value_and_names_it_by_its_content():
    measured = Measurement("ok", 1.0, candidate0_us=2.0)
    entry = entry_of(workload(), Candidate(trace="[[], []]"), measured)
    assert entry["trace"] == [[], []] and entry["recipe"] is None
    assert entry["key"] == entry_of(workload(), Candidate(trace=" [ [],[]]"), measured)["key"]


def test_an_entry_of_a_failure_has_no_time_but_a_cause():
    measured = Measurement("wrong", 5.0, [5.0], cause="off by 3.0", features=None)
    entry = entry_of(workload(), Candidate("tile-matmul"), measured)
    assert (entry["median_us"], entry["samples_us"], entry["cause"]) == (None, [], "off by 3.0")
    zero = entry_of(workload(), Candidate("r", role=CANDIDATE0), Measurement("ok", 5.0, wins=0.5))
    assert zero["role"] == "candidate0" and zero["wins"] is None


def test_no_lock_stays_behind_and_a_stale_one_does_not_matter(tmp_path):
    path = begin(tmp_path, {"a": 1})
    lock = path.with_name(path.name + ".lock")
    assert not lock.exists()
    lock.write_text("999999\n")  # its holder was killed
    RecordFile.open(tmp_path, CLASS, FACTS, wait=False).close()
    assert not lock.exists()


def test_many_writers_take_turns(tmp_path):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_write_some, args=(tmp_path, str(n))) for n in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    by = [entry["by"] for entry in lines_of(record_path(tmp_path, CLASS))[1:]]
    assert len(by) == 80 and by == [w for n in range(0, 80, 10) for w in [by[n]] * 10]


def _write_some(folder, name):
    with RecordFile.open(folder, CLASS, FACTS) as file:
        for _ in range(10):
            file.append({"by": name})
