"""What the cost model knows about the machine a target stands for."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import tvm

from .cuda_device import BOARDS, cuda_class

_X86_LEVELS = (
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    ("x86-64-v3", ("avx2", "bmi2", "f16c", "fma", "movbe", "lzcnt")),
    ("x86-64-v2", ("sse4.2", "popcnt", "ssse3")),
)
"""The psABI levels, by the features that tell them apart, highest first."""

_EXTRAS = {
    "x86-64": (("vnni", ("avx512vnni", "avxvnni")),),
    "aarch64": (("sve", ("sve",)), ("dotprod", ("dotprod",)), ("fp16", ("fullfp16",))),
}
"""Extensions that change which kernel is fastest, not only how it is encoded."""

_VECTOR_BYTES = {"x86-64-v4": 64, "x86-64-v3": 32}
_CLASS = re.compile(r"^(?P<isa>[a-z0-9._-]+)-t(?P<threads>[1-9][0-9]*)$")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Device:
    """Facts and nominal rates of one machine; all rates are per core.

    Cache sizes and cores are read from the running machine where the target is
    its CPU, else they and all the rates are round figures of a current server
    core: they rank kernels, and the learned model corrects them.
    """

    threads: int = 1
    vector_bytes: int = 32
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    ghz: float = 3.5
    fma_units: float = 2.0
    l2_gbps: float = 150.0
    l3_gbps: float = 80.0
    dram_gbps: float = 25.0
    libm_ns: float = 2.5
    """One call of a scalar exp, tanh, erf or the like."""
    launch_us: float = 0.25
    """One kernel call from the virtual machine, beyond the kernel itself (chains of tiny kernels)."""

    @property
    def gflops(self) -> float:
        """Return the nominal float32 peak of one core."""
        return self.ghz * self.fma_units * 2 * self.vector_bytes / 4

    @classmethod
    def of(cls, target: tvm.target.Target, threads: int = 1) -> Device:
        """Return the facts of ``target``, used with ``threads`` threads."""
        isa = instruction_set(target)
        device = cls(threads=threads, vector_bytes=_VECTOR_BYTES.get(isa_level(isa), 16))
        if target.kind.name != "llvm" or _machine(target) != _machine(None):
            return device
        sizes = _host_caches()
        return replace(
            device,
            l1_bytes=sizes.get(1, device.l1_bytes),
            l2_bytes=sizes.get(2, device.l2_bytes),
            l3_bytes=sizes.get(3, device.l3_bytes),
        )


def device_class(target: tvm.target.Target, threads: int = 1) -> str:
    """Name the class of machines that share records: instruction set and threads.

    A CPU's class is its psABI level (or architecture) with the few extensions
    that decide between kernels, then the thread count: ``x86-64-v4-vnni-t1``.
    Host name, mcpu and cache sizes are no part of it.  CUDA: the architecture,
    of several the lowest, for which the kernels are scheduled: ``cuda-sm_90``.
    """
    if target.kind.name == "cuda":
        return cuda_class(str(target.attrs["arch"]))
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return f"{instruction_set(target)}-t{threads}"


def split_class(name: str) -> tuple[str, int]:
    """Split a device class into instruction set and threads (CUDA: 1)."""
    found = _CLASS.match(name)
    return (found["isa"], int(found["threads"])) if found else (name, 1)


def is_device_class(name: object) -> bool:
    """Return True for a text that `device_class` could have made."""
    return isinstance(name, str) and bool(_CLASS.match(name) or is_cuda_class(name))


def is_cuda_class(name: str) -> bool:
    """Return True for the class of a CUDA device."""
    return name.startswith("cuda-") and name.removeprefix("cuda-") in BOARDS


def isa_level(isa: str) -> str:
    """Return the psABI level in an instruction-set name, else the name itself."""
    return next((level for level, _ in _X86_LEVELS if isa.startswith(level)), isa)


def instruction_set(target: tvm.target.Target) -> str:
    """Name the instruction set of a CPU target (``x86-64-v3``, ``aarch64-dotprod``)."""
    if target.kind.name != "llvm":
        return target.kind.name
    machine = _machine(target)
    features = frozenset(str(f) for f in tvm.target.codegen.llvm_get_cpu_features(target))
    family = "aarch64" if machine.startswith(("aarch64", "arm64")) else machine
    if machine == "x86_64":
        family = "x86-64"
    base = family
    if family == "x86-64":
        base = next((level for level, needs in _X86_LEVELS if features.issuperset(needs)), family)
    extras = [name for name, any_of in _EXTRAS.get(family, ()) if features.intersection(any_of)]
    return "-".join([base, *extras])


def _machine(target: tvm.target.Target | None) -> str:
    triple = target.attrs.get("mtriple") if target is not None else None
    if not triple:
        triple = tvm.target.codegen.llvm_get_system_triple()
    return str(triple).split("-")[0]


@functools.cache
def _host_caches() -> dict[int, int]:
    """Return the data-cache sizes of this machine by level, as /sys gives them."""
    sizes: dict[int, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            text = (folder / "size").read_text().strip()
            sizes[level] = int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)
        except (OSError, ValueError):
            continue  # containers may hide a file; the default stands
    return sizes


def host_facts() -> dict[str, int]:
    """Return what a record file notes about the machine it was measured on."""
    return {
        "cores": os.cpu_count() or 1,
        **{f"l{level}_bytes": size for level, size in _host_caches().items()},
    }
