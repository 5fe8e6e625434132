"""What running a CUDA artifact needs of a machine, said in one line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tvmpass.compile.cuda_runtime as runtime
from tvmpass.compile.cuda_runtime import check_device, ensure_cuda_runtime, runs_on
from tvmpass.core.errors import TvmpassError


@pytest.mark.parametrize(
    ("arches", "device", "runs"),
    [
        (("sm_80", "sm_90"), "8.0", True),
        (("sm_80", "sm_90"), "8.6", True),  # machine code of its major version
        (("sm_80", "sm_90"), "10.0", True),  # PTX of the highest
        (("sm_80", "sm_90"), "7.5", False),
        (("sm_86",), "8.0", False),
        (("sm_86", "sm_90"), "8.0", False),
        (("sm_80", "sm_100"), "9.0", False),  # neither machine code nor PTX that is old enough
        (("sm_90a",), "9.0", True),
        (("sm_90a",), "10.0", False),
        (("sm_120",), "12.1", True),
    ],
)
def test_which_devices_run_the_code(arches, device, runs):
    assert runs_on(arches, device) is runs


@pytest.fixture
def libraries(monkeypatch):
    """The shared libraries that this machine has, by name; TVM's runtime is not loaded."""
    there: set[str] = set()
    opened: list[str] = []

    def open_library(name):
        opened.append(name)
        return None if any(name.endswith(known) for known in there) else f"{name}: not found"

    monkeypatch.setattr(runtime, "_open", open_library)
    monkeypatch.setattr(
        runtime, "has_cuda_runtime", lambda: any("tvm_runtime_cuda" in n for n in opened) and "tvm" in there
    )
    monkeypatch.setattr(runtime, "wheel_folders", lambda: [runtime.Path("/wheels/cu13")])
    return SimpleNamespace(there=there, opened=opened)


def test_no_driver(libraries):
    with pytest.raises(TvmpassError, match=r"needs NVIDIA's driver: libcuda\.so\.1 is not on this machine"):
        ensure_cuda_runtime()


def test_no_cuda_runtime(libraries):
    libraries.there.add("libcuda.so.1")
    with pytest.raises(TvmpassError, match=r"\(libcudart\.so\.13\): pip install 'tvmpass\[cuda\]'"):
        ensure_cuda_runtime()


def test_the_runtime_of_the_wheels_is_found(libraries):
    libraries.there.update(
        {"libcuda.so.1", "/wheels/cu13/lib/libcudart.so.13", "libtvm_runtime_cuda.so", "tvm"}
    )
    ensure_cuda_runtime()
    assert [name.rpartition("/")[2] for name in libraries.opened] == [
        "libcuda.so.1",
        "libcudart.so.13",
        "libcudart.so.13",
        "libtvm_runtime_cuda.so",
    ]


def test_tvms_runtime_that_cannot_be_loaded(libraries):
    libraries.there.update({"libcuda.so.1", "libcudart.so.13"})
    with pytest.raises(TvmpassError, match="TVM's CUDA runtime cannot be loaded: .*not found"):
        ensure_cuda_runtime()


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (SimpleNamespace(exist=False), "needs an NVIDIA GPU; none answers on this machine"),
        (SimpleNamespace(exist=True, compute_version="7.5"), "built for sm_80; this machine's GPU is sm_75"),
    ],
)
def test_a_device_that_does_not_do(monkeypatch, device, message):
    monkeypatch.setattr(runtime.tvm, "cuda", lambda index: device)
    with pytest.raises(TvmpassError, match=message):
        check_device(("sm_80",))


def test_a_device_that_does(monkeypatch):
    device = SimpleNamespace(exist=True, compute_version="8.9")
    monkeypatch.setattr(runtime.tvm, "cuda", lambda index: device)
    check_device(("sm_80",))
