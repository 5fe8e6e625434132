"""Ask for the device once; without one every test here is skipped, and says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tvmpass.compile.cuda_probe import ABSENT, Probe, probe

PREBUILT = Path(__file__).parents[2] / "build" / "cuda"
"""Where `scripts/cuda/prebuild.py` writes, and where a GPU host's bundle is unpacked."""


@pytest.fixture(scope="session")
def device() -> Probe:
    """Return the device that answers.  None there: skip.  A broken driver is a failure, not a skip."""
    found = probe()
    if found.state == ABSENT:
        pytest.skip(f"no CUDA device: {found.reason}")
    if not found.answers:
        pytest.fail(found.reason, pytrace=False)
    return found


@pytest.fixture(scope="session")
def prebuilt() -> dict[str, dict]:
    """Return what was built elsewhere, by name; skip where there is nothing."""
    index = PREBUILT / "index.json"
    if not index.exists():
        pytest.skip("nothing was built before (python -m scripts.cuda.prebuild)")
    return {item["name"]: item for item in json.loads(index.read_text())["items"]}


@pytest.fixture(scope="session")
def compiler(device) -> str:
    """Return the target of this device, if nvcc is here; skip with its one line otherwise."""
    from tvmpass.compile.cuda_toolchain import find_nvcc
    from tvmpass.core.errors import TvmpassError

    try:
        find_nvcc()
    except TvmpassError as error:
        pytest.skip(f"no nvcc: {error}")
    return f"cuda:{device.arch}"
