"""`tvmpass explain`: words, selection, comparison, page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from tvmpass.cli.explain import explain
from tvmpass.cli.explaining.compare import compare, compare_text
from tvmpass.cli.explaining.page import page
from tvmpass.cli.explaining.reading import count, read_report, select
from tvmpass.cli.explaining.words import report_text, why
from tvmpass.core.errors import TvmpassError, UsageError


def test_summary_says_what_became_of_every_site(report):
    text = report_text(report)
    assert "6 sites matched a rule: 2 applied, 1 not legal, 1 not worth it" in text
    assert "1 lost to a better candidate, 1 rolled back." in text
    assert "lv3 is also read by relax.add [value-escapes]" in text
    assert "an overlapping candidate of grow-epilogue was chosen, at Conv_0, Add_4, Relu_5 and 1 more" in text
    assert "by the least gain asked for (predicted 5 us, analytic)" in text
    assert "wrong values (error 0.5) [wrong-values]" in text
    assert "1 analytic, 1 learned:cpu-1" in text
    assert "2 kernels, called 3 times in one run, predicted 24.5 us in all" in text
    assert "conv_add_relu: conv, 2 calls, predicted 12.25 [10.5, 14] us a call" in text
    assert "instead of tile-conv{w=4,c=16} (12.25 [10.5, 14] us)" in text
    assert "Disabled rules: fuse-softmax." in text
    assert "Note: built with the defaults" in text


def test_full_lists_each_decision_once(report):
    text = report_text(report, full=True)
    lines = [line for line in text.splitlines() if re.match(r"(grow|fold|fuse)-\S+ at ", line)]
    assert len(lines) == len(report["decisions"])


def test_fixture_obeys_the_sum_law(report):
    assert count(report["decisions"]) == report["rules"]


@pytest.mark.parametrize(
    ("where", "rules"),
    [
        ("Conv_2", ["fold-batch-norm-into-conv", "grow-epilogue"]),
        ("main:cc", ["grow-epilogue"]),
        ("BatchNorm_*", ["fold-batch-norm-into-conv", "fold-batch-norm-into-conv"]),
    ],
)
def test_at_selects_by_node_site_and_pattern(report, where, rules):
    chosen = select(report, where=where)
    assert [d["rule"] for d in chosen["decisions"]] == rules
    assert chosen["rules"] == count(chosen["decisions"])


def test_at_names_the_winner_even_when_it_is_not_selected(report):
    text = report_text(select(report, rule="FuseElementwiseChain"), full=True)
    assert "fuse-elementwise-chain at Add_4, <b>&Relu_5: lost to a better candidate" in text
    assert "of grow-epilogue was chosen" in text


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"rule": "grow-epilog"}, "did you mean 'grow-epilogue'?"),
        ({"rule": "fuse-softmax"}, "was disabled in this build"),
        ({"where": "Conv_22"}, "did you mean 'Conv_2'?"),
    ],
)
def test_unknown_names_are_errors_that_name_the_nearest(report, arguments, hint):
    with pytest.raises(UsageError, match=re.escape(hint)):
        select(report, **arguments)


def test_json_of_a_selection_keeps_the_schema(report_file, report):
    result = CliRunner().invoke(explain, [str(report_file), "--rule", "grow-epilogue", "--json", "-"])
    document = json.loads(result.stdout)
    assert set(document) == set(report)
    assert len(document["decisions"]) == 3


def test_compare_pairs_decisions_by_site(report):
    new = json.loads(json.dumps(report))
    new["decisions"][3]["outcome"] = "applied"
    new["kernels"][1]["schedule"] = "library:norm-rows"
    gone = new["decisions"].pop(5)
    change = compare(report, new)
    assert [d["at"] for d in change["decisions"]["changed"]] == ["Conv_2, Add_7"]
    assert change["decisions"]["gone"][0]["site"] == gone["site"]
    assert change["kernels"]["rescheduled"] == [
        {"name": "softmax", "old": "fallback", "new": "library:norm-rows"}
    ]
    text = compare_text(change)
    assert "not worth it before, applied now" in text
    assert "softmax: fallback before, library:norm-rows now" in text


def test_compare_of_equal_reports_says_so(report):
    assert "No decision and no kernel differs." in compare_text(compare(report, report))


class _Rows(HTMLParser):
    """Count the body rows per table and collect whatever could load something."""

    def __init__(self):
        super().__init__()
        self.table, self.body, self.rows, self.loads = None, False, {}, []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.table = attrs["id"]
        if tag == "tbody":
            self.body = True
        if tag == "tr" and self.body:
            self.rows[self.table] = self.rows.get(self.table, 0) + 1
        self.loads += [attrs[key] for key in ("src", "href", "action") if key in attrs]

    def handle_endtag(self, tag):
        if tag == "tbody":
            self.body = False


def test_page_has_a_row_per_decision_and_loads_nothing(report):
    html = page(report)
    rows = _Rows()
    rows.feed(html)
    assert rows.rows == {"rules": 3, "decisions": 6, "kernels": 2}
    assert rows.loads == ["data:,"]
    assert "http://" not in html and "https://" not in html
    assert "&lt;b&gt;&amp;Relu_5" in html and "<b>&Relu_5" not in html


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a report (not JSON"),
        ("[1, 2]", "it has no 'schema'"),
        ('{"schema": 99}', "report schema 99; this tvmpass reads schema 1"),
        ('{"schema": 1, "target": "llvm"}', "'model' is missing"),
        ("[" * 100_000, "not a report"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(TvmpassError) as caught:
        read_report(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_decision_with_an_unknown_outcome_is_refused(tmp_path, report):
    report["decisions"][0]["outcome"] = "maybe"
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report))
    with pytest.raises(TvmpassError, match="unknown outcome 'maybe'"):
        read_report(str(path))


@pytest.mark.parametrize("row", [{}, None, {"matched": "many"}])
def test_a_rule_without_its_numbers_is_refused(tmp_path, report, row):
    report["rules"]["x"] = row
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report))
    with pytest.raises(TvmpassError, match=r"rules\['x'\] has no number 'matched'"):
        read_report(str(path))


def test_one_of_a_kind_is_singular(report):
    report["decisions"], report["kernels"] = report["decisions"][:1], report["kernels"][1:]
    text = report_text(report)
    assert "1 site matched a rule" in text
    assert "1 kernel, called 1 time in one run" in text


@pytest.mark.parametrize(
    "content, message", [(b"\x7fELF\xff\xfe", "not a tvmpass artifact"), (b"\xff\xfe\x00", "not text")]
)
def test_binary_file_is_refused(tmp_path, content, message):
    path = tmp_path / "model.so"
    path.write_bytes(content)
    with pytest.raises(TvmpassError, match=message):
        read_report(str(path))


@pytest.mark.parametrize(
    "evidence, words",
    [
        ({"reason": "never"}, "tvmpass.fusion=never"),
        ({"reason": "never", "layout": "keep"}, "tvmpass.layout=keep"),
        ({"reason": "never", "layout": "auto"}, "only for CPU targets"),
    ],
)
def test_what_was_not_asked_for_is_told_by_its_option(report, evidence, words):
    decision = {**report["decisions"][0], "outcome": "unprofitable", "evidence": evidence, "estimate": None}
    assert words in why(decision, report)
