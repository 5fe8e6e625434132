"""The whole model tuned against untuned, in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

import tvmpass
from tests.tune.stubs import CONFIG, model
from tvmpass.compile.context import read_options
from tvmpass.compile.target import parse_target
from tvmpass.tune import model_check
from tvmpass.tune.result import ModelCheck

TARGET = parse_target("llvm", 1)


@pytest.fixture
def options(monkeypatch):
    monkeypatch.setattr(model_check, "SECONDS", 0.2)
    with tvmpass.PassContext(config=CONFIG):
        yield read_options()[0]


@pytest.mark.slow
def test_compares_two_builds(options, tmp_path):
    told = []
    found = model_check.check_model(model(), TARGET, options, tmp_path, progress=told.append)
    assert found.reason is None and found.rounds >= model_check.LEAST_ROUNDS
    assert found.tuned_ms > 0 and found.untuned_ms > 0 and found.difference == 0.0
    assert told[-1] == "timing the model, tuned against untuned"


@pytest.mark.slow
def test_a_crash_while_timing_is_a_reason_not_an_exception(options, tmp_path, monkeypatch):
    command = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(model_check.sys, "executable", str(_python(tmp_path, command)))
    found = model_check.check_model(model(), TARGET, options, tmp_path)
    assert found.ratio is None and "ended with" in found.reason


@pytest.mark.slow
def test_an_endless_run_is_ended(options, tmp_path, monkeypatch):
    monkeypatch.setattr(model_check, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(model_check.sys, "executable", str(_python(tmp_path, "import time; time.sleep(60)")))
    found = model_check.check_model(model(), TARGET, options, tmp_path)
    assert found == ModelCheck(reason="no end within 0 s")


def _python(folder, command: str):
    """Write a program that runs ``command`` whatever it is asked to run."""
    import sys

    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{command}\n")
    path.chmod(0o755)
    return path


def test_a_target_that_is_not_this_machine_is_not_run(options, tmp_path, monkeypatch):
    monkeypatch.setattr(model_check, "missing_features", lambda _: ["amx-tile"])
    found = model_check.check_model(model(), TARGET, options, tmp_path)
    assert found == ModelCheck(reason="this CPU lacks amx-tile")


def test_outputs_are_compared_relative_to_their_scale():
    one = np.array([1e-4, 2e-4, np.nan])
    assert model_check._difference(one, one) == 0.0
    assert model_check._difference(one * 1.01, one) == pytest.approx(0.01, rel=1e-6)
    assert model_check._difference(np.nan_to_num(one), one) == float("inf")
    assert model_check._difference(one[:2], one) == float("inf")
