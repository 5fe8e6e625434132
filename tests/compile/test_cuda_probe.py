"""What is said of a machine without a device, and of one whose driver does not work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tvmpass.compile import cuda_probe
from tvmpass.compile.cuda_probe import ABSENT, ANSWERS, BROKEN, Probe, require
from tvmpass.core.errors import TvmpassError

ROOT = Path(__file__).parents[2]
DRIVER = """
extern "C" int cuInit(unsigned) { return CODE; }
extern "C" int cuGetErrorString(int, const char **text) { *text = "said by the driver"; return 0; }
"""
ASK = "from tvmpass.compile.cuda_probe import probe; p = probe(); print(p.state); print(p.reason)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (100, ABSENT, "the NVIDIA driver finds no device (said by the driver)"),
        (803, BROKEN, "the NVIDIA driver does not start (error 803: said by the driver)"),
        (0, BROKEN, ""),  # it starts, and is no driver that TVM's runtime could use
    ],
)
def test_driver_that_offers_nothing_is_asked_why(tmp_path, code, state, reason):
    source, driver = tmp_path / "driver.cc", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER.replace("CODE", str(code)))
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(driver)], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found, _, said = done.stdout.strip().partition("\n")
    assert found == state and said and "\n" not in said
    assert not reason or said == reason


def test_no_device_is_one_error_with_the_reason(monkeypatch):
    monkeypatch.setattr(cuda_probe, "probe", lambda: Probe(ABSENT, "no NVIDIA driver (not found)"))
    with pytest.raises(
        TvmpassError, match=r"^no CUDA device answers on this machine: no NVIDIA driver \(not found\)$"
    ):
        require()


def test_device_that_answers_is_returned(monkeypatch):
    answer = Probe(ANSWERS, "NVIDIA H100 (sm_90)", "NVIDIA H100", "sm_90")
    monkeypatch.setattr(cuda_probe, "probe", lambda: answer)
    assert require() is answer and answer.answers
