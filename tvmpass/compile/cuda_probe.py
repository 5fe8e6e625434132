"""Ask whether a CUDA device answers, and say exactly why not.

The answer comes from TVM's own runtime, which is what would run the kernels.
The driver is asked only for the reason when TVM sees nothing: a machine without
NVIDIA hardware is no fault, a driver that does not work is one.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import tvm

from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.quiet import quiet

from .cuda_runtime import ensure_cuda_runtime

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
    fault = None
    with quiet():
        try:
            ensure_cuda_runtime()
        except TvmpassError as error:
            fault = str(error)
        device = tvm.cuda(0)
        if device.exist:
            arch = f"sm_{str(device.compute_version).replace('.', '')}"
            name = str(device.device_name)
            return Probe(ANSWERS, f"{name} ({arch})", name, arch)
    driver = _driver_fault()
    if driver is not None:
        return driver
    return Probe(BROKEN, fault or "the NVIDIA driver works, but TVM's CUDA runtime finds no device")


def require() -> Probe:
    """Return the probe of a device that answers; `TvmpassError` with the reason where none does."""
    found = probe()
    if not found.answers:
        raise TvmpassError(f"no CUDA device answers on this machine: {found.reason}")
    return found


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
