"""Candidates for CUDA on a device that is not there: TVM's runtime is real, the driver is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.test_cuda_artifact import fake_driver, nvcc  # noqa: F401
from tests.tir_passes import cases
from tests.tune.workloads import workload
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.tune.runners import LocalRunner, make_runner
from tvmpass.tune.work import Candidate, Job

pytestmark = pytest.mark.slow
TARGET = parse_target("cuda:sm_80", 1)


@pytest.fixture
def device(fake_driver, monkeypatch):  # noqa: F811
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver))


def measure(runner, *jobs):
    found = {}
    runner.measure(jobs, lambda job, measurement: found.update({id(job): measurement}))
    return [found[id(job)] for job in jobs]


def work():
    return workload(cases.matmul(16, 16, 8), target=TARGET)


def test_kernels_run_and_are_right(device, monkeypatch, tmp_path):
    """Launches go to the emulator: the numbers that come back are the kernel's."""
    here = Path(__file__).parent
    (tmp_path / "sitecustomize.py").write_text((here / "fake_gpu.py").read_text())
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("FAKE_GPU_FOLDER", str(tmp_path / "kernels"))
    monkeypatch.syspath_prepend(str(tmp_path))
    made = work()
    with make_runner(TARGET, cases.OPTIONS) as runner:
        assert runner.facts["name"] == "fake" and "sms" in runner.facts
        (found,) = measure(runner, Job(made, made.candidate0))
    assert (found.status, found.cause, found.checked) == ("ok", None, "reference")
    assert found.median_us and len(found.samples_us) >= 7 and found.features


def test_kernels_that_do_nothing_are_found_wrong(device, monkeypatch, tmp_path):
    log = tmp_path / "launches"
    monkeypatch.setenv("FAKE_CUDA_LOG", str(log))
    made = work()
    with LocalRunner(TARGET, cases.OPTIONS) as runner:
        (found,) = measure(runner, Job(made, made.candidate0))
    assert found.status == "wrong" and "non-finite values differ" in (found.cause or "")
    assert "tvmpass_candidate_kernel" in log.read_text()


def test_what_cuda_cannot_compile_costs_only_itself(device):
    """Without a recipe the product would lie in the device's memory between two launches."""
    made = work()
    with LocalRunner(TARGET, cases.OPTIONS) as runner:
        (found,) = measure(runner, Job(made, Candidate()))
    assert found.status == "crash" and "code generation of kernel candidate failed" in (found.cause or "")


def test_a_device_of_another_kind(device):
    with pytest.raises(
        TvmpassError, match=r"cuda:sm_90 cannot be measured here: this machine's device is fake"
    ):
        make_runner(parse_target("cuda:sm_90", 1), cases.OPTIONS)
