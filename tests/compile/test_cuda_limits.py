"""Limits of devices, before and after compiling, and the fields of the report."""

from __future__ import annotations

import pytest

from tvmpass.compile.cuda_limits import check_launch, check_resources, report
from tvmpass.compile.cuda_source import DeviceKernel
from tvmpass.compile.cuda_toolchain import Resources
from tvmpass.core.errors import TvmpassError

BOTH = ("sm_80", "sm_90")


def kernel(grid=(8, 1, 1), block=(128, 1, 1), dynamic=0, static=0, name="k_kernel"):
    return DeviceKernel(name, (), grid, block, dynamic, static)


def test_within_the_limits():
    check_launch("k", [kernel(), kernel(block=(1024, 1, 1), dynamic=163 << 10)], BOTH)
    check_launch("k", [kernel(grid=("a symbol", 1, 1))], BOTH)
    check_launch("k", [kernel(static=40 << 10, dynamic=100 << 10)], BOTH)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (kernel(block=(64, 32, 1)), "needs 2048 threads per block; sm_80 allows 1024"),
        (kernel(block=(1, 1, 65)), "needs 65 threads along z; sm_80 allows 64"),
        (kernel(grid=(1, 65536, 1)), "needs 65536 blocks along y; sm_80 allows 65535"),
        (kernel(static=49153), "needs 49153 bytes of static shared memory per block; sm_80 allows 49152"),
        (kernel(static=40 << 10, dynamic=20 << 10), "needs 61440 bytes of static and dynamic shared memory"),
        (kernel(dynamic=300 << 10), "needs 307200 bytes of shared memory per block; sm_80 allows 166912"),
    ],
)
def test_a_launch_over_a_limit(made, message):
    with pytest.raises(TvmpassError, match=f"^kernel fused_add {message}") as caught:
        check_launch("fused_add", [kernel(), made], BOTH)
    assert "\n" not in str(caught.value)


def test_the_smallest_architecture_decides():
    check_launch("k", [kernel(dynamic=200 << 10)], ("sm_90",))
    with pytest.raises(TvmpassError, match="sm_80"):
        check_launch("k", [kernel(dynamic=200 << 10)], BOTH)


def test_registers_that_no_block_fits():
    wide = kernel(block=(1024, 1, 1))
    compiled = {"k_kernel": {"sm_80": Resources(64, 0, 0, 0), "sm_90": Resources(80, 0, 0, 0)}}
    with pytest.raises(TvmpassError, match="k does not fit sm_90: 1024 threads of 80 registers .* registers"):
        check_resources("k", [wide], compiled)


def test_the_report_shows_the_worst_of_several_kernels():
    kernels = [kernel(name="a", block=(256, 1, 1)), kernel(name="b", dynamic=4096)]
    compiled = {
        "a": {"sm_80": Resources(128, 16, 0, 0), "sm_90": Resources(32, 16, 0, 0)},
        "b": {"sm_80": Resources(24, 64, 0, 12), "sm_90": Resources(24, 64, 0, 0)},
    }
    shown = report(kernels, compiled, BOTH)
    assert shown["sm_80"] == {
        "registers": 128,
        "static_shared_bytes": 64,
        "dynamic_shared_bytes": 4096,
        "spill_bytes": 12,
        "occupancy": 0.25,
    }
    assert shown["sm_90"]["spill_bytes"] == 0 and shown["sm_90"]["registers"] == 32
