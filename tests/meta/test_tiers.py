"""The list of slow tests names files that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SLOW

TESTS = Path(__file__).parents[1]


def test_slow_files_exist():
    assert not [name for name in SLOW if not (TESTS / name).is_file()]


@pytest.mark.slow
def test_a_full_run_has_nvcc():
    """Tests that compile with nvcc may skip without it; extra `test` brings it, so that none does in CI."""
    from tvmpass.compile.cuda_toolchain import check_architectures, find_nvcc
    from tvmpass.compile.host_compiler import host_compiler

    check_architectures(find_nvcc(), ("sm_80", "sm_90"))
    assert host_compiler()
