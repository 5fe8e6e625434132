"""The catalogue: which rules there are, and which of them run."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

import pytest

from tvmpass import catalogue
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.options import Options
from tvmpass.core.rule import SimplifyRule

FILE = '''
from dataclasses import dataclass
from tvmpass import SimplifyRule


@dataclass(frozen=True)
class FromFile(SimplifyRule):
    """Do nothing."""

    def match(self, view):
        return ()


RULES = (FromFile,)
'''


@dataclass(frozen=True)
class Extra(SimplifyRule):
    """Do nothing."""


def test_order_is_the_tuples():
    names = [rule.name for rule in catalogue.rules()]
    assert names.index("fold-constants") < names.index("recognize-softmax") < names.index("grow-epilogue")
    assert len(names) == len(set(names))


def test_either_spelling_names_a_rule():
    table = catalogue.names()
    assert table["GrowEpilogue"] == table["grow-epilogue"] == "grow-epilogue"


def test_select_splits_by_level_and_lists():
    def off(**options):
        return set(catalogue.select(catalogue.rules(), Options(**options))[1])

    assert off(level=3) == set()
    assert "grow-epilogue" in off(level=1)
    assert "dead-code" in off(level=3, disabled=("DeadCode",))
    assert "grow-epilogue" not in off(level=1, required=("GrowEpilogue",))
    assert "grow-epilogue" in off(level=1, required=("GrowEpilogue",), disabled=("grow-epilogue",))


def test_rules_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    (rule,) = catalogue.rules_from_file(path)
    assert rule.name == "from-file"


@pytest.mark.parametrize(
    "text, kind, match",
    [
        (None, UsageError, "no such file"),
        ("x = 1", UsageError, "defines no RULES"),
        ("RULES = (3,)", UsageError, "3 is not a rule"),
        ("1 / 0", TvmpassError, "ZeroDivisionError: division by zero"),
        ("def", TvmpassError, "SyntaxError"),
    ],
)
def test_files_that_are_no_rules(tmp_path, text, kind, match):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(kind, match=match):
        catalogue.rules_from_file(path)


class Entry:
    """Stands for an installed entry point."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def load(self):
        return self.value


@pytest.fixture
def installed(monkeypatch):
    """Let a test install entry points."""

    def install(*entries):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
        catalogue.installed_rules.cache_clear()

    yield install
    monkeypatch.undo()
    catalogue.installed_rules.cache_clear()


def test_entry_points_add_rules_after_the_built_in_ones(installed):
    installed(Entry("extra", Extra))
    assert catalogue.rules()[-1] == Extra()
    assert catalogue.rules()[:-1] == catalogue.builtin_rules()


def test_a_name_that_exists_is_an_error(installed):
    installed(Entry("one", Extra), Entry("two", (Extra(),)))
    with pytest.raises(UsageError, match="two rules are called 'extra'"):
        catalogue.rules()


def test_an_entry_point_that_is_no_rule(installed):
    installed(Entry("bad", "text"))
    with pytest.raises(UsageError, match="entry point 'bad': 'text' is not a rule"):
        catalogue.rules()


def test_an_entry_point_that_cannot_be_imported_is_named(installed):
    class Broken(Entry):
        def load(self):
            raise ModuleNotFoundError("No module named 'gone'")

    installed(Broken("bad", None))
    with pytest.raises(TvmpassError, match="entry point 'bad'.*No module named 'gone'"):
        catalogue.rules()


def test_kinds():
    every = catalogue.rules()
    kinds = [catalogue.of_kind(every, kind) for kind in ("simplify", "proposal", "schedule")]
    assert sum(map(len, kinds)) == len(every)
    assert all(kinds)
