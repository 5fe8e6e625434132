"""What the documents name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tvmpass.cli.group import tvmpass as command_group
from tvmpass.core.options import Options
from tvmpass.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "tuning_logs")
DOCUMENTS = sorted([*(path for f in FOLDERS for path in f.glob("*.md")), *(ROOT / "examples").rglob("*.md")])

# The page about rules builds this one and says where it would stand.
IMAGINED = {"relay_passes/recognize/recognize_silu.py"}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_named_in_code_type_exist(path):
    text = path.read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:tvmpass|relay_passes|tir_passes|schedules|scripts|tests|examples|docs)/[\w/.]+)`", text
    )
    missing = [name for name in named if name not in IMAGINED and not (ROOT / name).exists()]
    assert not missing


def test_make_goals_of_the_documents_exist():
    goals = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    for path in DOCUMENTS:
        for goal in re.findall(r"^make (\w+)$|`make (\w+)`", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert (goal[0] or goal[1]) in goals, path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_their_options_exist(path):
    commands = "build|run|passes|explain|tune|train|convert|logs (?:show|check|merge|prune|convert)"
    for line in re.findall(
        rf"tvmpass (?:{commands}\b)[^`\n#]*",
        path.read_text(encoding="utf-8"),
    ):
        words = shlex.split(line, comments=True)
        command = command_group.commands[words[1]]
        if isinstance(command, click.Group):
            command = command.commands[words[2]]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}
        unknown = [
            w.rstrip(".,;:)") for w in words[2:] if w.startswith("-") and w.rstrip(".,;:)") not in known
        ]
        assert not unknown, line


def test_every_command_is_in_the_readme():
    text = text_of("README.md")
    for name in command_group.commands:
        assert f"tvmpass {name}" in text


def test_every_option_and_variable_is_documented_with_its_default():
    text = text_of("docs/options.md")
    for key, spec in Options.keys().items():
        assert f"`{key}`" in text
        row = next(line for line in text.splitlines() if f"`{key}`" in line)
        for choice in spec.metadata["choices"]:
            assert f"`{choice}`" in row, key
    for name in Settings.variables():
        assert f"`{name}`" in text


def test_every_dependency_has_a_reason():
    setup, reasons = text_of("setup.py"), text_of("CONTRIBUTING.md")
    names = set(re.findall(r'"([a-z][a-z0-9-]*)(?:\[[a-z]+\])?[<>=]=?[0-9]', setup))
    names |= set(re.findall(r'f"([a-z-]+)[<>=]', setup))
    assert {"apache-tvm", "numpy", "xgboost-cpu", "pytest"} <= names
    for name in names:
        short = name.removeprefix("nvidia-cuda")
        assert f"`{name}`" in reasons or f"`{short}`" in reasons, name


def test_ci_runs_the_test_command_of_the_readme():
    assert "\nmake test\n" in text_of("README.md")
    assert text_of(".ci/run").rstrip().endswith("make test")


def test_version_is_in_the_changelog():
    from tvmpass.version import VERSION

    assert f"## {VERSION}" in text_of("CHANGELOG.md")
