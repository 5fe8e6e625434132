"""The command line as a whole: help, exit codes, error lines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMANDS = ["build", "run", "passes", "explain", "tune", "train", "convert"]


def test_help_does_not_import_tvm():
    code = (
        "import sys\n"
        "from tvmpass.cli.failures import run\n"
        "assert run(['--help']) == 0\n"
        "for name in sys.argv[1:]: assert run([name, '--help']) == 0\n"
        "assert 'tvm' not in sys.modules, 'TVM was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f"tvmpass {name}" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_shows_an_example(tvmpass, command):
    done = tvmpass(command, "--help")
    assert done.returncode == 0
    assert "Example:" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explan"], "No such command 'explan'. Did you mean 'explain'?"),
        (["build"], "Missing argument 'MODEL'."),
        (["build", "m.onnx"], "Missing option '-o' / '--output'."),
        (["build", "m.onnx", "-o", "m.so", "--shape", "x=1"], "'x=1' is no shape"),
        (["build", "m.onnx", "-o", "m.so", "--shape", "x:1,-3"], "'-3' in 'x:1,-3' is neither a size"),
        (["build", "m.onnx", "-o", "m.so", "--shape", "x:\u00b2"], "is neither a size"),
        (["build", "m.onnx", "-o", "m.so", "--shape", "x:" + "9" * 5000], "in the shape of 'x' is too large"),
        (["build", "m.onnx", "-o", "m.so", "--config", "fusion"], "write KEY=VALUE"),
        (
            ["build", "m.onnx", "-o", "m.so", "--shape", "x:1", "--shape", "x:2"],
            "--shape is given twice for input 'x'",
        ),
        (["build", "m.onnx", "-o", "m.so", "--opt-level", "9"], "9 is not in the range 0<=x<=3"),
        (["build", "m.onnx", "-o", "m.onnx"], "would overwrite m.onnx"),
        (["build", "m.onnx", "-o", "m.so", "--report", "./m.so"], "would overwrite m.so"),
        (["run", "m.so", "--inputs", "a.npz", "--shape", "x:1"], "--shape describes random inputs"),
        (["explain", "r.json", "--nope"], "--nope"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tvmpass, tmp_path, arguments, message):
    done = tvmpass(*arguments, cwd=tmp_path, env={**os.environ, "PYTHONPATH": _root()})
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("tvmpass: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_failed_work_is_one_line_and_exit_code_1(tvmpass):
    done = tvmpass("explain", os.devnull)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tvmpass: {os.devnull}: not a report (not JSON")
    assert done.stderr.count("\n") == 1


def test_a_file_that_does_not_exist_is_wrong_usage(tvmpass):
    done = tvmpass("explain", "no-such-report.json")
    assert done.returncode == 2
    assert done.stderr == "tvmpass: no-such-report.json: no such file\n"


def test_unreadable_setting_is_one_line_and_exit_code_2(tvmpass, report_file):
    env = {**os.environ, "TVMPASS_CACHE_SIZE": "much"}
    done = subprocess.run(
        [sys.executable, "-c", "from tvmpass.settings import Settings; Settings.read()"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert "TVMPASS_CACHE_SIZE='much': expected a size such as 512M or 2G" in done.stderr


def test_misspelt_variable_is_named(tvmpass, report_file):
    done = tvmpass("explain", report_file, env={**os.environ, "TVMPASS_CACHEDIR": "x"})
    assert done.returncode == 0
    assert "TVMPASS_CACHEDIR is unknown and was ignored; did you mean TVMPASS_CACHE_DIR?" in done.stderr


def test_json_on_stdout_is_only_json(tvmpass, report_file):
    import json

    done = tvmpass("explain", report_file, "--json", "-")
    assert json.loads(done.stdout)["schema"] == 1
    assert done.stderr == ""


def test_closed_pipe_is_no_error(report_file):
    command = f"{sys.executable} -m tvmpass explain {report_file} -v | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and "tvmpass:" not in done.stderr


def test_debug_shows_the_traceback(tvmpass):
    done = tvmpass("explain", os.devnull, env={**os.environ, "TVMPASS_DEBUG": "1"})
    assert done.stderr.startswith(f"tvmpass: {os.devnull}: not a report")
    assert "Traceback" in done.stderr


def _root() -> str:
    import pathlib

    return str(pathlib.Path(__file__).parents[2])


@pytest.mark.parametrize("module", ["tvmpass.cli.failures", "tvmpass.cli.group", "tvmpass.cli.train"])
def test_an_interrupt_during_the_imports_is_one_line(module):
    code = (
        "import sys\n"
        "from tvmpass.cli import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == sys.argv[1]: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "main(['--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tvmpass: interrupted\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure_and_leave_their_numbers_taken(closed, tmp_path):
    code = (
        "import os, sys\n"
        "from tvmpass.cli.failures import run\n"
        "code = run(['--help'])\n"
        "first = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "sys.exit(code if first > 2 else 99)\n"
    )
    words = f'exec "$0" -c "$1" "$2" {closed}'
    done = subprocess.run(["sh", "-c", words, sys.executable, code, str(tmp_path / "f")], timeout=60)
    assert done.returncode == 0
