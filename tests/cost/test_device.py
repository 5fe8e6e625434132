"""Device classes and the facts of a machine."""

import pytest
import tvm

from tvmpass.cost.device import Device, device_class, is_device_class, split_class


def _cpu(mcpu, **more):
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu, **more})


@pytest.mark.parametrize(
    "mcpu, expected",
    [
        ("x86-64", "x86-64-t1"),
        ("x86-64-v3", "x86-64-v3-t1"),
        ("haswell", "x86-64-v3-t1"),
        ("skylake-avx512", "x86-64-v4-t1"),
        ("sapphirerapids", "x86-64-v4-vnni-t1"),
        ("znver5", "x86-64-v4-vnni-t1"),
    ],
)
def test_class_is_the_instruction_set(mcpu, expected):
    if not tvm.target.codegen.llvm_is_valid_cpu(mcpu, "x86_64-linux-gnu"):
        pytest.skip(f"this LLVM does not know {mcpu}")
    assert device_class(_cpu(mcpu, mtriple="x86_64-linux-gnu"), 1) == expected


def test_threads_are_part_of_the_class():
    target = _cpu("x86-64-v3", mtriple="x86_64-linux-gnu")
    assert device_class(target, 4) == "x86-64-v3-t4"
    assert split_class("x86-64-v3-t4") == ("x86-64-v3", 4)
    with pytest.raises(ValueError, match="threads"):
        device_class(target, 0)


def test_cuda_class_is_the_arch():
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    assert device_class(target, 8) == "cuda-sm_90"
    assert split_class("cuda-sm_90") == ("cuda-sm_90", 1)
    assert is_device_class("cuda-sm_90") and not is_device_class("cuda-sm_1") and not is_device_class(3)


def test_facts_follow_the_target():
    wide, narrow = Device.of(_cpu("x86-64-v4")), Device.of(_cpu("x86-64-v3"), threads=2)
    assert (wide.vector_bytes, narrow.vector_bytes) == (64, 32)
    assert wide.gflops == 2 * narrow.gflops
    assert narrow.threads == 2
    assert 0 < narrow.l1_bytes < narrow.l2_bytes <= narrow.l3_bytes
