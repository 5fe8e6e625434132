"""CUDA builds with tuning records: a recipe has to fit every architecture of the build."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvmpass
from tests.compile.record_lines import line, write
from tvmpass.compile import records
from tvmpass.compile.cuda_toolchain import find_nvcc
from tvmpass.compile.target import parse_target
from tvmpass.core.errors import TvmpassError
from tvmpass.core.options import Options
from tvmpass.testing.graphs import graph
from tvmpass.tune.tasks import plan_tasks

pytestmark = pytest.mark.slow  # nvcc

CLASS = "cuda-sm_80"
LARGE = (
    "inline-epilogue tile-warps{m=128,n=128,wm=2,wn=2} stage-shared vectorize-loads "
    "pipeline-loads{stages=6} tensorize-wmma unroll-registers"
)
"""Takes 111 KiB of shared memory: sm_80 has that, sm_86 has not."""


def net():
    weight = relax.const(np.zeros((512, 512), "float16"))
    return graph(lambda x: relax.op.matmul(x, weight), ((512, 512), "float16"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    try:
        find_nvcc()
    except TvmpassError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(records, "shipped_logs", lambda: tmp_path / "none")
    (task,) = plan_tasks(net(), parse_target("cuda:sm_80", 1), Options(threads=1), CLASS)[0]
    entry = line(kernel_key=task.key, kind=task.kind, recipe=LARGE, recipe_version=task.recipe_version)
    write(tmp_path / "a.tuned.jsonl", entry, device_class=CLASS)
    return tmp_path


def kernel(folder, target):
    with tvmpass.PassContext(config={"tvmpass.tuning_logs": str(folder), "tvmpass.threads": 1}):
        report = tvmpass.build(net(), target).report
    (found,) = report.kernels
    return found, report.records


def test_a_record_within_the_limits_is_used(folder):
    found, counts = kernel(folder, "cuda:sm_80")
    assert found.schedule == "tuned" and found.record["recipe"] == LARGE
    assert counts == {"present": 1, "used": 1, "orphaned": 0}
    assert found.cuda["sm_80"]["dynamic_shared_bytes"] > 101_376


def test_a_record_beyond_the_limits_of_one_architecture_is_not_used(folder):
    found, counts = kernel(folder, "cuda:sm_80,sm_86")
    assert found.schedule.startswith("library:") and found.record is None
    assert "tuned: not compiled" in found.note and "sm_86 allows" in found.note
    assert counts == {"present": 1, "used": 0, "orphaned": 0}
    assert set(found.cuda) == {"sm_80", "sm_86"}


def test_a_record_of_another_architecture_is_not_used(folder):
    found, counts = kernel(folder, "cuda:sm_86")
    assert found.schedule.startswith("library:")
    assert counts == {"present": 1, "used": 0, "orphaned": 1}
