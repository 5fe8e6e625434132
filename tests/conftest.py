"""Settings that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Two test processes on few cores: one thread each, set before TVM starts its pool.
os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# These compile many kernels, or start many processes: `make check` leaves them out.
SLOW = {
    "cli/test_build_run.py",
    "cli/test_relay.py",
    "cli/test_train.py",
    "cli/test_tune.py",
    "compile/test_artifact.py",
    "compile/test_build.py",
    "compile/test_codegen.py",
    "compile/test_cuda_artifact.py",
    "compile/test_cuda_build.py",
    "cost/test_learned.py",
    "meta/test_laws.py",
    "relay_passes/test_grown_graphs.py",
    "schedules/test_pack.py",
    "testing/test_cuda_emulator.py",
    "testing/test_cuda_emulator_faults.py",
    "testing/test_cuda_emulator_tvm.py",
    "tir_passes/test_recipes_numeric.py",
}


def pytest_collection_modifyitems(items):
    """Mark the tests of the slow files."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep compiled kernels of the tests out of the user's cache, shared by the workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVMPASS_CACHE_DIR", str(shared / "tvmpass-cache"))
        yield
