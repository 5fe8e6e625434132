"""`tvmpass train` on records whose truth is known."""

from __future__ import annotations

import json

import pytest

from tests.cost.records import synthetic, write

TARGET = ("--target", "llvm:x86-64-v3", "--threads", "1")  # the class of the made-up records


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    write(folder / "made-up.jsonl", synthetic())
    return folder


def test_writes_a_model_and_its_figures(tvmpass, logs, tmp_path):
    done = tvmpass("train", "--logs", logs, *TARGET, "-o", tmp_path / "model.json", "--json", "-")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    wanted = {"schema", "device_class", "records", "spearman", "median_relative_error", "decision_accuracy"}
    assert wanted | {"regret_geomean", "regret_worst"} <= set(metrics)
    assert metrics["device_class"].startswith("x86-64-v3")
    assert (tmp_path / "model.json").stat().st_size > 1000


def test_names_the_class_that_it_fits(tvmpass, logs):
    done = tvmpass("train", "--logs", logs, "--target", "llvm:x86-64-v3", "--threads", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    fitted = json.loads(done.stdout)["device_class"]
    assert fitted == "x86-64-v3-t1"
    assert f"fitting the model of {fitted} (there are no records of x86-64-v3-t2)" in done.stderr


def test_corrupt_lines_are_named_and_skipped(tvmpass, logs, tmp_path):
    text = (logs / "made-up.jsonl").read_text()
    (tmp_path / "cut.jsonl").write_text(text + '{"key": "cut')
    done = tvmpass("train", "--logs", tmp_path, *TARGET)
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert warning.startswith("tvmpass: warning: ") and "cut.jsonl" in warning
    assert "median relative error:" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("held out by graph"))
    assert len(row.split()) == 4 + 8


def test_too_few_records_is_one_line(tvmpass, tmp_path):
    write(tmp_path / "few.jsonl", synthetic(graphs=2))
    done = tvmpass("train", "--logs", tmp_path, *TARGET, "-o", tmp_path / "model.json")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert done.returncode == 1 and len(lines) == 1
    assert "at least 50 are needed" in lines[0]
    assert not (tmp_path / "model.json").exists()


@pytest.mark.parametrize("make", [False, True])
def test_folder_without_records_is_named(tvmpass, tmp_path, make):
    if make:
        (tmp_path / "logs").mkdir()
    done = tvmpass("train", "--logs", tmp_path / "logs")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert done.returncode == (1 if make else 2) and len(lines) == 1
    assert "logs" in lines[0]
