"""TVM's CUDA runtime: loaded when a CUDA artifact is run, or one clear reason why not.

TVM loads it at import where NVIDIA's driver and CUDA runtime are on the loader's
path.  The runtime of the extra ``cuda`` lies beside the Python packages instead,
where the loader does not look: it is loaded from there first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import tvm

from tvmpass.core.cuda_arch import capability
from tvmpass.core.errors import TvmpassError

from .cuda_toolchain import wheel_folders

_LOADER = "ffi.Module.load_from_bytes.cuda"
_DRIVER, _RUNTIME = "libcuda.so.1", "libcudart.so.13"


def has_cuda_runtime() -> bool:
    """Return whether this process can load CUDA modules (a device may still be missing)."""
    return tvm.get_global_func(_LOADER, allow_missing=True) is not None


def ensure_cuda_runtime() -> None:
    """Load TVM's CUDA runtime; `TvmpassError` says what this machine lacks for it."""
    if has_cuda_runtime():
        return
    if _open(_DRIVER) is not None:
        raise TvmpassError(f"running it needs NVIDIA's driver: {_DRIVER} is not on this machine")
    candidates = [_RUNTIME, *(str(folder / "lib" / _RUNTIME) for folder in wheel_folders())]
    if all(_open(name) is not None for name in candidates):
        raise TvmpassError(
            f"running it needs NVIDIA's CUDA runtime ({_RUNTIME}): pip install 'tvmpass[cuda]'"
        )
    library = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    reason = _open(str(library))
    if reason is not None or not has_cuda_runtime():
        raise TvmpassError(f"TVM's CUDA runtime cannot be loaded: {reason or 'it registers no loader'}")


def check_device(arches: Sequence[str], index: int = 0) -> None:
    """Raise `TvmpassError` where device ``index`` is absent or cannot run code for ``arches``."""
    device = tvm.cuda(index)
    if not device.exist:
        raise TvmpassError("running it needs an NVIDIA GPU; none answers on this machine")
    version = str(device.compute_version)
    if not runs_on(arches, version):
        raise TvmpassError(
            f"it was built for {', '.join(arches)}; this machine's GPU is "
            f"sm_{version.replace('.', '')}: build it for that"
        )


def runs_on(arches: Sequence[str], version: str) -> bool:
    """Return whether a device of compute capability ``version`` (``"8.6"``) runs the code.

    Machine code runs within its major version, from its minor version on; PTX,
    which is there for the highest of ``arches``, on everything newer.  Code for
    an architecture with a letter (``sm_90a``) runs on that one only.
    """
    major, _, minor = version.partition(".")
    device = int(major) * 10 + int(minor or 0)
    plain = [capability(arch) for arch in arches if arch[-1].isdigit()]
    if any(capability(arch) == device for arch in arches):
        return True
    same_major = any(code // 10 == device // 10 and code <= device for code in plain)
    return same_major or (bool(plain) and max(plain) <= device)


def _open(name: str) -> str | None:
    """Load a shared library for those loaded later; return why that failed, or None."""
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None
