"""What `explain` says of kernels that were compiled for NVIDIA devices."""

from __future__ import annotations

import json

import pytest

from tvmpass.cli.explaining.page import page
from tvmpass.cli.explaining.reading import read_report
from tvmpass.cli.explaining.words import report_text
from tvmpass.core.errors import TvmpassError

UNCALIBRATED = "analytic (uncalibrated for this device)"


def taken(registers, static, dynamic, spills, occupancy) -> dict:
    return {
        "registers": registers,
        "static_shared_bytes": static,
        "dynamic_shared_bytes": dynamic,
        "spill_bytes": spills,
        "occupancy": occupancy,
    }


@pytest.fixture
def cuda_report(report) -> dict:
    """The report of the fixture as a build for two architectures would have it."""
    first, second = report["kernels"]
    report |= {"target": "cuda:sm_80,sm_90", "cost_model": UNCALIBRATED}
    first["cuda"] = {"sm_80": taken(100, 1024, 65536, 0, 0.25), "sm_90": taken(104, 1024, 65536, 8, 0.375)}
    first["predicted_us"] = {"source": UNCALIBRATED, "low": 3.0, "mean": 3.0, "high": 3.0}
    second["cuda"] = {"sm_80": taken(32, 64, 0, 0, 1.0), "sm_90": taken(30, 64, 0, 0, 1.0)}
    second["note"] = "dlight Fallback"
    report["decisions"][3]["estimate"]["source"] = UNCALIBRATED
    return report


def test_resources_are_said_for_each_architecture(cuda_report):
    text = report_text(cuda_report)
    assert (
        "    sm_80: 100 registers, 66560 bytes shared (65536 of them dynamic), no spills, occupancy 25%"
        in text
    )
    assert "    sm_90: 104 registers, 66560 bytes shared (65536 of them dynamic), spills 8 bytes" in text
    assert "    sm_80: 32 registers, 64 bytes shared, no spills, occupancy 100%" in text
    assert "On sm_80: no kernel spills registers; at most 100 registers, least occupancy 25%." in text
    assert "On sm_90: conv_add_relu spill registers; at most 104 registers" in text


def test_fallback_is_named_with_its_rule(cuda_report):
    text = report_text(cuda_report)
    assert "1 scheduled by the fallback" in text and "    note: dlight Fallback" in text
    assert "left as lowered" not in text


def test_an_uncalibrated_model_is_said(cuda_report):
    text = report_text(cuda_report)
    assert f"({UNCALIBRATED} cost model" in text
    assert f"1 {UNCALIBRATED}" in text  # where the estimates came from


def test_page_has_a_column_for_resources_only_where_there_are_some(cuda_report):
    made = page(cuda_report)
    assert "on the devices" in made and "sm_90: 104 registers" in made and UNCALIBRATED in made
    for kernel in cuda_report["kernels"]:
        kernel["cuda"] = None
    assert "on the devices" not in page(cuda_report)


@pytest.mark.parametrize(
    "broken",
    [{"sm_80": {}}, {"sm_80": None}, ["sm_80"], {"sm_80": {**taken(1, 1, 1, 1, 1), "registers": "x"}}],
)
def test_damaged_resources_are_one_error(cuda_report, tmp_path, broken):
    cuda_report["kernels"][0]["cuda"] = broken
    path = tmp_path / "report.json"
    path.write_text(json.dumps(cuda_report))
    with pytest.raises(TvmpassError, match=r"kernels\[0\]: 'cuda' does not give registers"):
        read_report(str(path))
