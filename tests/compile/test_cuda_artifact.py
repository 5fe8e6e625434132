"""CUDA artifacts without a GPU: built with nvcc, read, launched on a fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import tvmpass
import tvmpass.compile.cuda_toolchain as toolchain
from tvmpass.compile.artifact import Artifact
from tvmpass.compile.cuda_library import read_library, resolvable
from tvmpass.compile.cuda_toolchain import find_nvcc
from tvmpass.compile.host_compiler import host_compiler
from tvmpass.core.errors import TvmpassError
from tvmpass.testing.graphs import graph

R = relax.op
TARGET = "cuda:sm_80,sm_90"
HERE = Path(__file__).parent

RUN = """\
import json, sys
import numpy as np
import tvmpass

lib = tvmpass.load_artifact(sys.argv[1])
kinds = []

def walk(module):
    kinds.append(module.kind)
    for found in module.imports:
        walk(found)

walk(lib.executable)
shapes = [out.shape for n in (5, 0) for out in lib.run(x=np.ones((n, 64), "float32"))]
print(json.dumps({"kinds": kinds, "shapes": shapes}))
"""


@pytest.fixture(scope="module")
def nvcc():
    """The real nvcc: of the extra ``cuda``, or installed on this machine."""
    try:
        return find_nvcc()
    except TvmpassError as error:
        pytest.skip(str(error))


def module():
    weight = np.linspace(-1, 1, 64 * 32, dtype="float32").reshape(64, 32)

    def body(x):
        return R.add(R.nn.softmax(R.matmul(x, relax.const(weight)), -1), relax.const(np.float32(1)))

    return graph(body, (("n", 64),))


@pytest.fixture(scope="module")
def built(nvcc) -> Artifact:
    return tvmpass.build(module(), TARGET)


@pytest.fixture(scope="module")
def exported(built, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "model.so"
    built.export(path)
    return path


def test_the_report_says_what_kernels_take_of_each_device(built):
    for kernel in built.report.kernels:
        assert set(kernel.cuda) == {"sm_80", "sm_90"} and kernel.code_bytes > 0
        for found in kernel.cuda.values():
            assert 0 < found["registers"] <= 255 and 0 < found["occupancy"] <= 1
            assert found["spill_bytes"] == 0
            assert found["static_shared_bytes"] + found["dynamic_shared_bytes"] <= 163 << 10


def test_every_kernel_is_there_for_every_architecture(built, exported):
    library = read_library(exported)
    assert len(library.launched) >= len(built.report.kernels)
    assert set(library.code) == library.launched
    assert set(library.code.values()) == {frozenset({80, 90})}
    assert resolvable(tvmpass.load_artifact(exported)) == resolvable(built) == ()


def test_a_kernel_that_is_not_there_is_found(exported, tmp_path):
    data = exported.read_bytes()
    name = min(read_library(exported).launched).encode()
    # A table's entry holds the name twice, each after its length.
    entry = (len(name).to_bytes(8, "little") + name) * 2
    assert data.count(entry) == 1
    changed = tmp_path / "changed.so"
    changed.write_bytes(data.replace(entry, entry.replace(b"tvmpass_", b"another_")))
    assert read_library(changed).missing(("sm_80",)) == (name.decode(),)
    with pytest.raises(TvmpassError, match=f"the library lacks kernel {name.decode()}: build it again"):
        tvmpass.load_artifact(changed)


def test_an_architecture_that_is_not_there_is_found(exported):
    library = read_library(exported)
    assert set(library.missing(("sm_80", "sm_86"))) == library.launched


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.9, 0.9999])
def test_a_library_cut_short(exported, tmp_path, share):
    data = exported.read_bytes()
    cut = tmp_path / "cut.so"
    cut.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(TvmpassError) as caught:
        tvmpass.load_artifact(cut)
    assert str(cut) in str(caught.value) and "\n" not in str(caught.value)


def test_loading_needs_no_driver_and_running_says_so(exported):
    lib = tvmpass.load_artifact(exported)
    assert lib.arches == ("sm_80", "sm_90") and len(lib.report.kernels) >= 2
    from tvmpass.compile.cuda_runtime import has_cuda_runtime

    if has_cuda_runtime():
        pytest.skip("this machine has a CUDA driver")
    for use in (lambda: lib.run(x=np.ones((5, 64), "float32")), lambda: lib.executable):
        with pytest.raises(TvmpassError, match=r"was built for CUDA: running it needs NVIDIA's driver"):
            use()


def test_the_host_code_is_the_baselines(built, exported):
    assert built.metadata.features == ()
    text = subprocess.run(["objdump", "-d", exported], capture_output=True, text=True, check=True).stdout
    assert "%xmm" in text and "%ymm" not in text and "%zmm" not in text


def test_equal_builds_give_equal_libraries(built, exported, tmp_path):
    tvmpass.build(module(), TARGET).export(tmp_path / "again.so")
    ours, again = (read_library(p) for p in (exported, tmp_path / "again.so"))
    assert ours == again
    assert (tmp_path / "again.so").stat().st_size == exported.stat().st_size


@pytest.fixture(scope="module")
def fake_driver(nvcc, tmp_path_factory) -> Path:
    """A folder with a CUDA driver and runtime that write launches to a file."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "versions").write_text("libcudart.so.13 { global: *; };\n")
    if not nvcc.version.startswith("13."):
        pytest.skip(f"TVM's CUDA runtime is for CUDA 13, nvcc is {nvcc.version}")
    common = ["-x", "c", "-w", "-shared", "-fPIC", f"-I{nvcc.root / 'include'}", str(HERE / "fake_cuda.c")]
    for name, options in (
        ("libcuda.so.1", ["-DFAKE_DRIVER"]),
        ("libcudart.so.13", [f"-Wl,--version-script={folder / 'versions'}"]),
    ):
        command = [host_compiler(), *common, *options, f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def test_tvms_own_loader_and_launches(built, exported, fake_driver, tmp_path):
    """TVM's CUDA runtime loads the library; its host code launches what it should."""
    log = tmp_path / "launches"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_driver),
        "FAKE_CUDA_LOG": str(log),
        "PYTHONPATH": str(HERE.parent.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(exported)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kinds"][:2] == ["relax.VMExecutable", "library"] and set(told["kinds"][2:]) == {"cuda"}
    assert told["shapes"] == [[5, 32], [0, 32]]
    launches = [json.loads(line) for line in log.read_text().splitlines()]
    assert {launch["kernel"] for launch in launches} == read_library(exported).launched
    dynamic = {k.symbol: k.cuda["sm_80"]["dynamic_shared_bytes"] for k in built.report.kernels}
    for launch in launches:
        assert all(extent >= 1 for extent in (*launch["grid"], *launch["block"]))
        assert launch["shared"] == dynamic[launch["kernel"].partition("_kernel")[0]]


def test_a_model_runs_as_on_a_device(fake_driver):
    """The exported library runs on TVM's CUDA runtime, its launches in the emulator."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_driver),
        "PYTHONPATH": str(HERE.parent.parent),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "fake_device.py")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["faults"] == [] and len(told["launches"]) >= 5
    assert told["difference"] < 1e-6  # some hundred additions in float32, another order on the CPU


def test_no_nvcc_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: [])
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TvmpassError, match=r"needs nvcc.*pip install 'tvmpass\[cuda\]'") as caught:
        tvmpass.build(module(), TARGET)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []
