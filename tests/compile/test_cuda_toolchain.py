"""Finding nvcc and running it; the compiler itself is a script that plays it."""

from __future__ import annotations

import os
import stat

import pytest

import tvmpass.compile.cuda_toolchain as toolchain
from tvmpass.compile.compile_cache import CompileCache
from tvmpass.compile.cuda_toolchain import (
    Resources,
    UnitError,
    check_architectures,
    compile_units,
    find_nvcc,
    parse_resources,
)
from tvmpass.core.errors import TvmpassError

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_kernel_1' for 'sm_80'
ptxas info    : Function properties for k_kernel_1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'k_kernel' for 'sm_80'
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for k_kernel
    48 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem, 384 bytes cmem[0]
ptxas info    : Compile time = 23.279 ms
ptxas info    : Compiling entry function 'k_kernel' for 'sm_90'
ptxas info    : Function properties for k_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 4096 bytes smem
"""

HEADER = b"\x50\xed\x55\xba" + bytes([1, 0, 16, 0]) + bytes(8)
"""A fatbin without entries."""

SCRIPT = """\
#!/bin/sh
echo "$*" >> {calls}
case "$*" in
  --version) echo "Cuda compilation tools, release 13.0, V13.0.88";;
  --list-gpu-code) printf 'sm_75\\nsm_80\\nsm_90\\n';;
  --dryrun*) echo '#$ TOP={root}/bin/..' >&2;;
  *) while [ "$1" != -o ]; do shift; done
     grep -q refused "$3" && {{ echo "$3(7): error: refused is undefined" >&2; exit 1; }}
     grep -q killed "$3" && exit 137
     grep -q full "$3" && {{ echo "nvcc error   : 'cicc' died due to signal 9 (Kill signal)" >&2; exit 9; }}
     grep -q halved "$3" && {{ echo half > "$2"; exit 0; }}
     printf '{header}' > "$2"; cat "$3" >> "$2"; cat {log} >&2;;
esac
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without nvcc: none in the environment, in wheels or on PATH."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: [])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    if any(os.access(f"{folder}/nvcc", os.X_OK) for folder in ("/usr/bin", "/bin")):
        pytest.skip("this machine's nvcc lies in /usr/bin")
    return tmp_path


@pytest.fixture
def fake(bare):
    """A machine whose nvcc copies its input; returns the file of its calls."""
    (bare / "log").write_text(LOG)
    calls = bare / "calls"
    header = "".join(f"\\{byte:03o}" for byte in HEADER)
    text = SCRIPT.format(calls=calls, log=bare / "log", root=bare / "toolkit", header=header)
    script(bare / "bin" / "nvcc", text)
    return calls


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "cache", 1 << 20)


def compilations(calls):
    return [line for line in calls.read_text().splitlines() if "-o " in line]


def test_no_nvcc(bare):
    with pytest.raises(
        TvmpassError, match=r"needs nvcc, which is not in .* on PATH: pip install 'tvmpass\[cuda\]'"
    ):
        find_nvcc()


def test_a_named_folder_without_nvcc_is_named(bare, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(bare / "nowhere"))
    with pytest.raises(TvmpassError, match=r"nowhere \(CUDA_HOME\)"):
        find_nvcc()


def test_found_on_path_and_its_root_is_where_it_works(fake, tmp_path):
    nvcc = find_nvcc()
    assert nvcc.path == tmp_path / "bin" / "nvcc" and nvcc.version == "13.0.88"
    assert nvcc.root == tmp_path / "toolkit"


def test_cuda_home_comes_first_then_the_wheels(fake, tmp_path, monkeypatch):
    text = (tmp_path / "bin" / "nvcc").read_text()
    for folder in ("home", "wheel"):
        script(tmp_path / folder / "bin" / "nvcc", text)
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: [tmp_path / "wheel"])
    assert find_nvcc().path == tmp_path / "wheel" / "bin" / "nvcc"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc().path == tmp_path / "home" / "bin" / "nvcc"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho 'no such thing' >&2\nexit 3\n", "nvcc --version fails: no such thing"),
        ("#!/bin/sh\necho clang\n", "is not NVIDIA's nvcc: --version says 'clang'"),
        ("#!/nowhere/sh\n", "does not run: No such file or directory"),
    ],
)
def test_a_broken_nvcc(bare, text, message):
    script(bare / "bin" / "nvcc", text)
    with pytest.raises(TvmpassError, match=message) as caught:
        find_nvcc()
    assert "\n" not in str(caught.value)


def test_an_architecture_that_nvcc_does_not_know(fake):
    nvcc = find_nvcc()
    check_architectures(nvcc, ("sm_80", "sm_90a"))
    with pytest.raises(
        TvmpassError, match=r"nvcc 13\.0\.88 .* does not compile for sm_999, only for sm_75, "
    ):
        check_architectures(nvcc, ("sm_80", "sm_999"))


def test_machine_code_for_each_and_ptx_of_the_highest(fake, cache):
    units = compile_units({"a": "text"}, ("sm_90", "sm_80"), nvcc=find_nvcc(), cache=cache)
    (call,) = compilations(fake)
    assert "arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]" in call
    assert "fast_math" not in call and units["a"].fatbin == HEADER + b"text"
    assert units["a"].resources["k_kernel"]["sm_90"].registers == 168


def test_equal_sources_are_compiled_once_and_kept(fake, cache):
    seen = []
    sources = {"a": "one", "b": "one", "c": "two"}
    first = compile_units(sources, ("sm_80",), nvcc=find_nvcc(), cache=cache, progress=seen.append)
    assert len(compilations(fake)) == 2 and seen == ["nvcc: 1 of 2 units", "nvcc: 2 of 2 units"]
    assert compile_units(sources, ("sm_80",), nvcc=find_nvcc(), cache=cache) == first
    assert len(compilations(fake)) == 2


@pytest.mark.parametrize("change", [{"fast_math": True}, {"arches": ("sm_90",)}])
def test_what_changes_the_code_is_compiled_again(fake, cache, change):
    given = {"arches": ("sm_80",), "nvcc": find_nvcc(), "cache": cache}
    compile_units({"a": "one"}, **given)
    compile_units({"a": "one"}, **{**given, **change})
    assert len(compilations(fake)) == 2


def test_a_unit_that_fails_is_named_with_the_first_error(fake, cache):
    with pytest.raises(UnitError, match=r"kernel bad: unit\.cu\(7\): error: refused") as caught:
        compile_units({"good": "one", "bad": "refused"}, ("sm_80",), nvcc=find_nvcc(), cache=cache)
    assert caught.value.unit == "bad"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("killed", "nvcc failed: it says nothing .exit status 137"),
        ("full", "nvcc failed: nvcc error .*signal 9"),
        ("halved", "wrote no usable fatbin: the file is cut short"),
    ],
)
def test_a_fault_of_the_machine_is_no_units_and_not_kept(fake, cache, source, message):
    for _ in range(2):
        with pytest.raises(TvmpassError, match=message) as caught:
            compile_units({"a": source}, ("sm_80",), nvcc=find_nvcc(), cache=cache)
        assert not isinstance(caught.value, UnitError)


def test_flags_of_the_environment_are_part_of_the_key(fake, cache, monkeypatch):
    compile_units({"a": "one"}, ("sm_80",), nvcc=find_nvcc(), cache=cache)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")
    compile_units({"a": "one"}, ("sm_80",), nvcc=find_nvcc(), cache=cache)
    assert len(compilations(fake)) == 2


def test_no_host_compiler(fake, cache, monkeypatch, tmp_path):
    nvcc = find_nvcc()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(TvmpassError, match=r"need a C\+\+ compiler: install g\+\+"):
        compile_units({"a": "one"}, ("sm_80",), nvcc=nvcc, cache=cache)


def test_resources_are_those_of_the_entry():
    found = parse_resources(LOG)
    assert set(found) == {"k_kernel", "k_kernel_1"} and set(found["k_kernel"]) == {"sm_80", "sm_90"}
    assert found["k_kernel"]["sm_80"] == Resources(255, 4096, 48, 44)
    assert found["k_kernel_1"]["sm_80"] == Resources(12, 0, 0, 0)
