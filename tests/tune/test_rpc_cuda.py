"""CUDA candidates are compiled here and run on a server that has TVM's runtime and a driver.

The driver is one without a device: kernels are loaded and launched, and compute
nothing.  What a real device makes of them is for a machine that has one.
"""

import json
from dataclasses import replace

import pytest

from tests.compile.test_cuda_artifact import fake_driver, nvcc  # noqa: F401
from tests.tir_passes.cases import matmul
from tests.tune.rpc_farm import Farm
from tests.tune.workloads import workload
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.tune.rpc_runner import RpcRunner
from tvmpass.tune.work import Candidate, Job

pytestmark = pytest.mark.slow

OPTIONS = Options(threads=1)
TARGET = parse_target("cuda:sm_80", 1)


@pytest.fixture
def farm(fake_driver, tmp_path):  # noqa: F811
    with Farm(tmp_path) as made:
        made.start_tracker()
        made.environment = {"LD_LIBRARY_PATH": str(fake_driver), "FAKE_CUDA_LOG": str(tmp_path / "launches")}
        made.start_server("gpu")
        yield made


def test_candidates_are_loaded_launched_and_checked_there(farm):
    small = workload(matmul(64, 64, 64), OPTIONS, TARGET)
    large = replace(workload(matmul(1300, 1300, 1300), OPTIONS, TARGET), kernel_key="large")
    found = []
    with RpcRunner("127.0.0.1", farm.port, "gpu", TARGET, OPTIONS) as runner:
        assert runner.facts["name"] == "fake" and runner.facts["sms"] == 0
        jobs = [Job(w, Candidate(recipe=w.candidate0.recipe)) for w in (small, large)]
        runner.measure(jobs, lambda job, measurement: found.append(measurement))
    wrong, timed = found
    assert wrong.status == "wrong" and wrong.checked == "reference"
    # Too large for the reference: both sides are compared, and neither wrote anything.
    assert timed.status == "ok" and timed.checked == "candidate0", timed.cause
    assert timed.median_us and timed.candidate0_us
    launches = [json.loads(line) for line in (farm.folder / "launches").read_text().splitlines()]
    assert len(launches) > 10


def test_a_device_of_another_architecture_is_named(farm):
    with pytest.raises(TvmpassError, match=r"cannot be used: its GPU is sm_\d+, not sm_120"):
        RpcRunner("127.0.0.1", farm.port, "gpu", parse_target("cuda:sm_120", 1), OPTIONS)
