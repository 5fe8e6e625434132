"""Settings that all tests share."""

from __future__ import annotations

import os

import pytest

# Two test processes on few cores: one thread each, set before TVM starts its pool.
os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep compiled kernels of the tests out of the user's cache, shared by the workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVMPASS_CACHE_DIR", str(shared / "tvmpass-cache"))
        yield
