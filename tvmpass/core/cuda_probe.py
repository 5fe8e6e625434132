"""Ask whether a CUDA device answers, and say exactly why not.

The answer comes from TVM's own runtime, which is what would run the kernels.
The driver is asked only for the reason when TVM sees nothing: a machine without
NVIDIA hardware is no fault, a driver that does not work is one.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import TvmpassError, last_line
from .quiet import quiet

ANSWERS, ABSENT, BROKEN = "answers", "absent", "broken"
_NO_DEVICE = 100
"""The driver's error number for a machine without devices (CUDA_ERROR_NO_DEVICE)."""
_DRIVER = "libcuda.so.1"


@dataclass(frozen=True)
class Probe:
    """Whether a CUDA device answers.

    ``state`` is ``answers``, ``absent`` (no driver or no device: nothing is
    wrong) or ``broken`` (something is there and does not work); ``reason`` says
    it in one line.  ``name`` and ``arch`` (``sm_90``) are those of device 0.
    """

    state: str
    reason: str
    name: str = ""
    arch: str = ""

    @property
    def answers(self) -> bool:
        return self.state == ANSWERS


def probe() -> Probe:
    """Ask TVM's CUDA runtime for device 0, and the driver for the reason where it is not there."""
    import tvm

    fault = load_runtime()
    with quiet():
        device = tvm.cuda(0)
        if device.exist:
            arch = f"sm_{str(device.compute_version).replace('.', '')}"
            name = str(device.device_name)
            return Probe(ANSWERS, f"{name} ({arch})", name, arch)
    driver = _driver_fault()
    if driver is not None:
        return driver
    what = fault or "TVM's CUDA runtime is loaded and reports no device 0"
    return Probe(BROKEN, f"the NVIDIA driver works, but {what}")


def require() -> Probe:
    """Return the probe of a device that answers; `TvmpassError` with the reason where none does."""
    found = probe()
    if not found.answers:
        raise TvmpassError(f"no CUDA device answers on this machine: {found.reason}")
    return found


def load_runtime() -> str | None:
    """Load TVM's CUDA runtime where importing TVM could not; return what is in the way, or None.

    It needs the driver and libcudart; the latter may lie in a Python package
    (extra ``cuda``), where the system's loader does not look.
    """
    import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return None
    for library in _packaged_cudart():
        try:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            break
        except OSError:
            continue  # the next one, or the system's; what is missing is said below
    try:
        ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))
    except OSError as error:
        return f"TVM's CUDA runtime cannot be loaded ({last_line(error)})"
    return None


def _packaged_cudart() -> Iterator[Path]:
    """Yield the CUDA 13 runtimes that Python packages brought."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        yield from sorted(Path(folder).glob("c*/lib/libcudart.so.13"))


def _driver_fault() -> Probe | None:
    """Return why the driver offers no device; None where it offers one."""
    try:
        driver = ctypes.CDLL(_DRIVER)
        code = driver.cuInit(0)
    except (OSError, AttributeError) as error:
        files = sorted(Path("/dev").glob("nvidia[0-9]*"))
        if files:
            return Probe(BROKEN, f"{files[0]} is there, but the NVIDIA driver is not ({last_line(error)})")
        return Probe(ABSENT, f"no NVIDIA driver ({last_line(error)})")
    if code == 0:
        return None
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    said = (text.value or b"no text").decode(errors="replace")
    if code == _NO_DEVICE:
        return Probe(ABSENT, f"the NVIDIA driver finds no device ({said})")
    return Probe(BROKEN, f"the NVIDIA driver does not start (error {code}: {said})")
