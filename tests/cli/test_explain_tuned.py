"""What ``tvmpass explain`` and ``build`` say of kernels that a tuning record scheduled."""

from __future__ import annotations

import copy

import pytest

from tvmpass.cli.build import _tuning
from tvmpass.cli.explaining.compare import compare
from tvmpass.cli.explaining.page import _kernel
from tvmpass.cli.explaining.reading import _check
from tvmpass.cli.explaining.words import report_text
from tvmpass.core.errors import TvmpassError
from tvmpass.core.report import Report

RECORD = {
    "key": "0123456789abcdef" * 4,
    "recipe": "tile-conv{w=4,c=16}",
    "trace": False,
    "median_us": 8.0,
    "candidate0_us": 10.0,
}


@pytest.fixture
def tuned(report):
    measured = {"source": "measured", "low": 8.0, "mean": 8.0, "high": 8.0}
    report["kernels"][0].update(schedule="tuned", record=RECORD, predicted_us=measured)
    return report


def test_a_tuned_kernel_is_explained(tuned):
    text = report_text(tuned)
    assert "conv_add_relu: conv, 2 calls, measured 8 us a call" in text
    assert "by record 0123456789ab: tile-conv{w=4,c=16}; 8 us where the library's choice took 10" in text
    assert "1 tuned on this kind of device" in text
    assert "Tuning records: 4 present, 1 used, 0 orphaned." in text


def test_a_trace_is_named_as_one(tuned):
    tuned["kernels"][0]["record"] = {**RECORD, "recipe": None, "trace": True, "median_us": None}
    assert "by record 0123456789ab: a MetaSchedule trace\n" in report_text(tuned)


def test_the_page_shows_the_record(tuned):
    shown = _kernel(tuned["kernels"][0])
    assert shown["schedule"] == "tuned" and shown["note"].startswith("by record 0123456789ab")


def test_reports_of_before_have_no_record(report):
    assert all("record" not in kernel for kernel in report["kernels"])
    assert "by record" not in report_text(report)


@pytest.mark.parametrize("record", [[], "x", 3])
def test_a_record_of_another_form_is_no_report(tuned, record):
    tuned["kernels"][0]["record"] = record
    with pytest.raises(TvmpassError, match="'record'"):
        _check("r.json", tuned)


def test_a_comparison_tells_records_apart(tuned):
    new = copy.deepcopy(tuned)
    new["kernels"][0]["record"] = {**RECORD, "recipe": None, "trace": True}
    (change,) = compare(tuned, new)["kernels"]["rescheduled"]
    assert (change["old"], change["new"]) == ("tuned:tile-conv{w=4,c=16}", "tuned:trace 0123456789ab")


def test_a_build_says_how_many_records_it_used():
    made = Report("llvm:x", "m", "1", "1", records={"present": 5, "used": 2, "orphaned": 1})
    assert _tuning(made) == "; 2 of 5 tuning records used, 1 for other devices, thread counts or versions"
    made.records = {"present": 0, "used": 0, "orphaned": 0}
    assert _tuning(made) == ""
