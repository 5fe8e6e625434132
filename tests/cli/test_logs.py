"""`tvmpass logs`: tables, JSON, exit codes, one line per error."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from tests.tune.log_files import CLASS, candidate0, entries, failed, kernel, record, write
from tvmpass.cli.group import tvmpass as command_group

NAME = CLASS + ".tuned.jsonl"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "logs" / NAME, candidate0(1), record(1), failed(1), record(2, median_us=9.9))
    return tmp_path / "logs"


def errors_of(done) -> list[str]:
    return [line for line in done.stderr.splitlines() if line]


def test_show_lists_kernels(tvmpass, folder):
    done = tvmpass("logs", "show", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 candidates, 1 candidate 0 line" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith(kernel(1)[:12]))
    assert row.split()[1:] == ["matmul", "2", "1", "5", "10", "2.00", "yes", "tile-matmul{m=6}"]
    found = json.loads(tvmpass("logs", "show", folder, "--json", "-", "--kernel", kernel(2)).stdout)
    assert [(k["kernel_key"], k["unused"]) for k in found["kernels"]] == [(kernel(2), "not-faster")]


def test_show_without_paths_looks_where_builds_look(tvmpass, folder):
    (folder.parent / "tuning_logs").symlink_to(folder)
    done = tvmpass("logs", "show", cwd=folder.parent)
    assert done.returncode == 0 and f"tuning_logs/{NAME}: " in done.stdout


def test_check_names_bad_lines_and_fails(tvmpass, folder):
    done = tvmpass("logs", "check", folder)
    assert (done.returncode, done.stderr) == (0, "")
    with open(folder / NAME, "a") as stream:
        stream.write('{"key": "\x1b[31mto')
    done = tvmpass("logs", "check", folder, "--json", folder / "check.json")
    (line,) = errors_of(done)
    assert done.returncode == 1 and f"{NAME}:6: skipped: not JSON" in line
    assert "\x1b" not in done.stdout + done.stderr
    found = json.loads((folder / "check.json").read_text())
    assert len(found["problems"]) == 1 and found["files"][0]["candidates"] == 3


def test_merge_and_prune_say_what_they_did(tvmpass, folder, tmp_path):
    other = write(tmp_path / "other.tuned.jsonl", record(1), record(3))
    done = tvmpass("logs", "merge", folder, other, "-o", folder, "--json", tmp_path / "rows.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 candidates" in done.stdout and "1 duplicate left out" in done.stdout
    (row,) = json.loads((tmp_path / "rows.json").read_text())["files"]
    assert row["candidates"] == 4 and len(row["inputs"]) == 2
    done = tvmpass("logs", "prune", folder, "--keep", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 left out (1 failed)" in done.stdout
    assert len(entries(folder / NAME)) == 4


@pytest.mark.parametrize(
    "arguments, code, why",
    [
        (("check", "{tmp}/none"), 1, "none: No such file or directory"),
        (("check", "{tmp}/text.jsonl"), 1, "text.jsonl:1: not JSON"),
        (("check", "{tmp}/empty"), 1, "no record files"),
        (("check", "/dev/null"), 1, "/dev/null: not a regular file"),
        (("merge", "{tmp}/a.jsonl", "{tmp}/b.jsonl", "-o", "{tmp}/c.jsonl"), 1, "name a folder"),
        (("merge", "{tmp}/a.jsonl", "-o", "{tmp}/text.jsonl/x"), 1, "cannot write"),
        (("merge", "{tmp}/a.jsonl"), 2, "--output"),
        (("merge",), 2, "PATHS"),
        (("prune", "{tmp}/a.jsonl", "--keep", "0"), 2, "--keep"),
        (("prune", "{tmp}/a.jsonl", "--compact"), 1, "name an output"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_errors_are_one_line(tvmpass, tmp_path, arguments, code, why):
    write(tmp_path / "a.jsonl", record(1))
    write(tmp_path / "b.jsonl", record(1), device_class="x86-64-v3-t2")
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "empty").mkdir()
    done = tvmpass("logs", *(a.format(tmp=tmp_path) for a in arguments))
    (line,) = errors_of(done)
    assert done.returncode == code and line.startswith("tvmpass: ") and why in line


def test_convert_goes_there_and_back(tvmpass, tmp_path):
    from tests.tune.test_convert import foreign, product

    foreign(tmp_path / "db", product(), 4, 8)
    arguments = ("--threads", 1, "-o", tmp_path / "logs", "--json", "-")
    done = tvmpass("logs", "convert", tmp_path / "db", *arguments)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["records"], row["waiting"], row["problems"]) == (2, 2, [])
    foreign(tmp_path / "failed", product(), 4, seconds=(1e10,))
    done = tvmpass("logs", "convert", tmp_path / "failed", *arguments[:-2])
    assert done.returncode == 1 and "left out: 1 failed" in done.stdout
    again = tvmpass("logs", "convert", tmp_path / "logs", "-o", tmp_path / "db2")
    assert again.returncode == 2 and "--model is needed" in again.stderr
    double = tvmpass("logs", "convert", tmp_path / "db", "-o", tmp_path / "db2", "--model", "m.onnx")
    assert double.returncode == 2 and len(errors_of(double)) < 4


@pytest.mark.parametrize("name", sorted(command_group.commands["logs"].commands))
def test_help_shows_an_example_whose_options_exist(name):
    command = command_group.commands["logs"].commands[name]
    text = CliRunner().invoke(command_group, ["logs", name, "--help"]).output
    examples = re.findall(r"^ +(tvmpass logs .*)$", text, re.MULTILINE)
    assert examples
    known = {option for parameter in command.params for option in parameter.opts}
    for example in examples:
        words = shlex.split(example)
        assert words[2] == name
        assert {w for w in words[3:] if w.startswith("-") and w != "-"} <= known
