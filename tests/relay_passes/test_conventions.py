"""Every rule keeps the conventions that documentation and command line rely on."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from relay_passes import fusion, layout, recognize, simplify
from tvmpass.core.rule import ProposalRule, SimplifyRule, kebab

RULES = (*simplify.RULES, *recognize.RULES, *layout.RULES, *fusion.RULES)
TESTS = Path(__file__).parent


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_file_class_name_and_summary_agree(rule):
    path = Path(inspect.getsourcefile(rule))
    assert path.stem.replace("_", "-") == kebab(rule.__name__) == rule.rule_name()
    assert issubclass(rule, SimplifyRule)
    assert 0 < len(rule.summary()) <= 80 and rule.summary().endswith(".")
    assert (TESTS / path.parent.name / f"test_{path.stem}.py").is_file()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_every_declared_code_is_tested(rule):
    path = Path(inspect.getsourcefile(rule))
    text = (TESTS / path.parent.name / f"test_{path.stem}.py").read_text(encoding="utf-8")
    codes = [kind.code for kind in rule.refusals]
    assert len(set(codes)) == len(codes)
    assert [code for code in codes if f'"{code}"' not in text] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_verbs_come_in_order(rule):
    order = ["pattern", "match", "check", "weigh", "plan", "rewrite", "propose", "verify"]
    own = [name for name in vars(rule) if name in order]
    assert own == sorted(own, key=order.index)
    assert ("rewrite" in own) != issubclass(rule, ProposalRule)


def test_options_print_and_parse():
    rule = fusion.GrowEpilogue(max_length=8)
    assert str(rule) == "grow-epilogue{max_length=8}"
    assert fusion.GrowEpilogue.parse_options("max_length=8") == rule
