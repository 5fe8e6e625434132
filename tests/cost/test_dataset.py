"""Record files are read line by line, and a bad line is named and skipped."""

import contextlib
import json

import pytest

from tests.cost.records import CLASS, kernel_line, synthetic, vector, write
from tvmpass.core.errors import TvmpassError
from tvmpass.cost import dataset
from tvmpass.cost.dataset import read
from tvmpass.cost.samples import fused_pairs, graph_groups

X = vector(1000.0, 0.0)


def test_reads_kernels_and_alternatives_in_order(tmp_path):
    data = read([write(tmp_path / "a.jsonl", synthetic(3))], CLASS)
    assert data.problems == []
    assert [k.kernel_key for k in data.kernels][:3] == ["g0-a", "g0-b", "g0-f"]
    assert [a.name for a in data.alternatives] == ["off", "on"] * 3
    assert data.kernels[0].median_us > 0


def test_reads_gzip(tmp_path):
    import gzip

    plain = write(tmp_path / "a.jsonl", [kernel_line("k", X)])
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert len(read([packed], CLASS).kernels) == 1
    whole = packed.read_bytes()
    packed.write_bytes(whole[:40])
    assert any("gzip" in p or "JSON" in p for p in read([packed], CLASS).problems)
    packed.write_bytes(b"no gzip")
    assert any("gzip" in p for p in read([packed], CLASS).problems)


def test_a_gzip_file_cut_off_gives_what_stands_before(tmp_path):
    import gzip

    lines = [kernel_line(f"k{n}", vector(1000.0 + n, n % 7)) for n in range(2000)]
    packed = tmp_path / "a.jsonl.gz"
    whole = gzip.compress(write(tmp_path / "a.jsonl", lines).read_bytes())
    packed.write_bytes(whole[: len(whole) // 2])
    data = read([packed], CLASS)
    assert 0 < len(data.kernels) < 2000
    assert any("gzip" in p for p in data.problems)


@pytest.mark.parametrize(
    "line, why",
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        (kernel_line("k", X, features=[1.0, 2.0]), "features: expected"),
        (json.dumps(kernel_line("k", X, features=[float("nan")] * len(X))), "finite"),
        (kernel_line("k", X, features=[True] + ["a"] * (len(X) - 1)), "features"),
        (kernel_line("k", X, median_us=-1.0), "median_us"),
        (kernel_line("k", X, status="fine"), "status"),
        (kernel_line("k", X, role="judge"), "role"),
        (kernel_line("", X), "kernel_key"),
        ({"group_key": "g", "alternative": "maybe", "kernel_keys": ["k"], "median_us": 1.0}, "alternative"),
        ({"group_key": "g", "alternative": "on", "kernel_keys": [], "median_us": 1.0}, "kernel_keys"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_used(tmp_path, line, why):
    path = write(tmp_path / "a.jsonl", [kernel_line("first", X), line, kernel_line("last", X)])
    data = read([path], CLASS)
    assert [k.kernel_key for k in data.kernels] == ["first", "last"]
    assert len(data.problems) == 1
    assert data.problems[0].startswith(f"{path}:3: skipped: ")
    assert why in data.problems[0]


def test_a_line_without_end_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "MAX_LINE_BYTES", 4000)
    path = write(tmp_path / "a.jsonl", ["x" * 10_000, kernel_line("k", X)])
    data = read([path], CLASS)
    assert len(data.kernels) == 1
    assert "longer than 4000 bytes" in data.problems[0]


def test_failed_kernels_are_left_out(tmp_path):
    lines = [kernel_line("k", X, status="crash", median_us=None, features=None), kernel_line("ok", X)]
    data = read([write(tmp_path / "a.jsonl", lines)], CLASS)
    assert [k.kernel_key for k in data.kernels] == ["ok"] and data.problems == []


def test_lines_of_tuning_sessions_are_passed_over(tmp_path):
    lines = [{"session": {"trials": 3}}, kernel_line("k", X), {"session": {}}]
    data = read([write(tmp_path / "a.tuned.jsonl", lines)], CLASS)
    assert [k.kernel_key for k in data.kernels] == ["k"] and data.problems == []


def test_the_librarys_own_choice_is_known_by_its_role(tmp_path):
    lines = [
        kernel_line("tuned", X, role="candidate", recipe="better"),
        kernel_line("tuned", X, role="candidate0", recipe="own"),
        kernel_line("tuned", X, role="candidate0", recipe="again"),
        kernel_line("collected", X, recipe="own"),
        kernel_line("collected", X, recipe="other"),
        kernel_line("unknown", X, role="candidate"),
        kernel_line("both", X, role="candidate0", recipe="tuned"),
        kernel_line("both", X, recipe="collected"),
    ]
    data = read([write(tmp_path / "a.tuned.jsonl", lines)], CLASS)
    assert len(data.kernels) == 8 and data.problems == []
    chosen = {key: r.recipe for key, r in data.first().items()}
    assert chosen == {"tuned": "own", "collected": "own", "both": "collected"}


def test_files_of_other_machines_and_versions_are_not_mixed(tmp_path):
    mine = write(tmp_path / "mine.jsonl", [kernel_line("k", X)])
    other = write(tmp_path / "other.jsonl", [kernel_line("k", X)], "aarch64-t1")
    old = tmp_path / "old.jsonl"
    old.write_text(mine.read_text().replace('"feature_version": ', '"feature_version": 9'))
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("")
    data = read([mine, other, old, nothing], CLASS)
    assert len(data.kernels) == 1
    text = "\n".join(data.problems)
    assert "aarch64-t1" in text and "feature version 91" in text and "nothing.jsonl:1: not JSON" in text


def test_records_of_another_thread_count_stand_in(tmp_path):
    path = write(tmp_path / "a.jsonl", [kernel_line("k", X)])
    data = read([path], "x86-64-v3-t8")
    assert (data.device_class, len(data.kernels)) == (CLASS, 1)
    both = [path, write(tmp_path / "b.jsonl", [kernel_line("k8", X)], "x86-64-v3-t8")]
    assert [k.kernel_key for k in read(both, "x86-64-v3-t8").kernels] == ["k8"]


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(TvmpassError, match=r"none\.jsonl: No such file"):
        read([tmp_path / "none.jsonl"], CLASS)


def test_pairs_come_from_what_an_alternative_replaces(tmp_path):
    lines = synthetic(1)
    partial = {
        "group_key": "g0",
        "alternative": "partial:0",
        "kernel_keys": ["g0-f", "g0-b"],
        "median_us": 1.0,
    }
    data = read([write(tmp_path / "a.jsonl", [*lines, partial])], CLASS)
    pairs = fused_pairs(data, graph_groups(data))
    assert [(p.fused.kernel_key, [q.kernel_key for q in p.parts]) for p in pairs] == [
        ("g0-f", ["g0-a", "g0-b"]),
        ("g0-f", ["g0-a"]),
    ]


def test_kernels_that_meet_belong_to_one_graph(tmp_path):
    data = read([write(tmp_path / "a.jsonl", [*synthetic(2), kernel_line("alone", X)])], CLASS)
    groups = graph_groups(data)
    assert groups["g0-a"] == groups["g0-b"] == groups["g0-f"]
    assert len({groups["g0-a"], groups["g1-a"], groups["alone"]}) == 3


def test_a_line_without_end_is_read_no_further_than_a_file_may_be(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    with open(path, "r+b") as stream:
        stream.truncate(4 << 20)  # a hole, read as zeros
    monkeypatch.setattr(dataset, "MAX_FILE_BYTES", 1 << 20)
    with open(path, "rb") as stream:
        monkeypatch.setattr(dataset, "open", lambda *_: contextlib.nullcontext(stream), raising=False)
        assert [number for number, _ in dataset.numbered_lines(path)] == [1, 2]
        assert stream.tell() < 2 << 20
