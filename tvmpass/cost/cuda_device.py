"""Facts of one representative device per CUDA architecture, for pricing without a GPU.

SM counts, boost clocks, memory bandwidth, L2 size and peak rates are those that
NVIDIA publishes: the architecture whitepapers (Turing, Ampere GA100 and GA102,
Ada, Hopper, Blackwell) and the data sheets of the boards named in `BOARDS`.
Tensor peaks are dense, 16-bit inputs with float32 accumulation.  Published too
are A100's L2 rate (5120 bytes per clock); of the others it is not, and the
figures here are round ones between those that public micro-benchmarks report.
The latencies and launch times are round figures of such measurements as well.
They rank kernels; measured records correct them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvmpass.core.cuda_arch import ARCHES, CudaArch, capability

MIB = 1 << 20


@dataclass(frozen=True)
class CudaDevice:
    """Rates of one device; all numbers, so that a model file can hold them.

    ``fp32_lanes`` are float32 multiply-adds per SM and clock, ``special_lanes``
    hardware evaluations of exp2, log2, sine, reciprocal and root; ``l1_bytes`` is
    what an SM's cache and shared memory take together.
    """

    capability: int
    sms: int
    ghz: float
    dram_gbps: float
    l2_bytes: int
    l2_gbps: float
    fp32_tflops: float
    tensor_tflops: float
    fp32_lanes: int = 128
    special_lanes: int = 16
    integer_lanes: int = 64
    double_lanes: int = 2
    l1_bytes: int = 128 << 10
    dram_latency_ns: float = 550.0
    l2_latency_ns: float = 200.0
    start_us: float = 2.0
    """One device launch on a busy stream: from the end of one kernel to the next one's first block."""
    launch_us: float = 0.5
    """One kernel call from the virtual machine, beyond its device launches."""

    @property
    def arch(self) -> CudaArch:
        """Return the limits of the device's architecture."""
        return ARCHES[f"sm_{self.capability}"]

    @classmethod
    def of(cls, target: Any) -> CudaDevice:
        """Return the facts of ``target``'s architecture: of several, the lowest.

        A module for several architectures is scheduled once, for the limits that
        all of them keep, and so it is priced once, for the lowest.
        """
        return representative(str(target.attrs["arch"]))


BOARDS: dict[str, tuple[str, CudaDevice]] = {
    "sm_75": (
        "Tesla T4",
        CudaDevice(75, 40, 1.59, 320, 4 * MIB, 1270, 8.1, 65, fp32_lanes=64, l1_bytes=64 << 10),
    ),
    "sm_80": (
        "A100 SXM4 40 GB",
        CudaDevice(
            80, 108, 1.41, 1555, 40 * MIB, 7200, 19.5, 312, fp32_lanes=64, l1_bytes=192 << 10, double_lanes=32
        ),
    ),
    "sm_86": ("A40", CudaDevice(86, 84, 1.74, 696, 6 * MIB, 2500, 37.4, 149.7)),
    "sm_87": ("Jetson AGX Orin 64 GB", CudaDevice(87, 16, 1.3, 204.8, 4 * MIB, 600, 5.3, 42.5)),
    "sm_88": ("as sm_87", CudaDevice(88, 16, 1.3, 204.8, 4 * MIB, 600, 5.3, 42.5)),
    "sm_89": ("L40S", CudaDevice(89, 142, 2.52, 864, 96 * MIB, 4500, 91.6, 366)),
    "sm_90": (
        "H100 SXM5",
        CudaDevice(90, 132, 1.98, 3350, 50 * MIB, 6500, 66.9, 989, l1_bytes=256 << 10, double_lanes=64),
    ),
    "sm_100": (
        "B200",
        CudaDevice(100, 148, 1.965, 8000, 126 * MIB, 12000, 74.5, 2250, l1_bytes=256 << 10, double_lanes=64),
    ),
    "sm_103": (
        "B300, rates as B200",
        CudaDevice(103, 148, 1.965, 8000, 126 * MIB, 12000, 74.5, 2250, l1_bytes=256 << 10),
    ),
    "sm_110": (
        "Jetson AGX Thor",
        CudaDevice(110, 20, 1.57, 273, 32 * MIB, 1500, 8.1, 258, l1_bytes=256 << 10),
    ),
    "sm_120": ("GeForce RTX 5090", CudaDevice(120, 170, 2.41, 1792, 96 * MIB, 6000, 104.8, 209.5)),
    "sm_121": ("DGX Spark GB10", CudaDevice(121, 48, 2.5, 273, 24 * MIB, 2000, 31, 125)),
}
"""The representative board of each architecture and its facts."""


def representative(arch: str) -> CudaDevice:
    """Return the facts that stand for ``arch``; the suffix of ``sm_90a`` changes none."""
    return BOARDS[f"sm_{capability(arch)}"][1]


def cuda_class(arch: str) -> str:
    """Name the class of devices that share records: ``cuda-sm_90`` (and for sm_90a)."""
    return f"cuda-sm_{capability(arch)}"


def class_device(device_class: str) -> CudaDevice:
    """Return the representative of a device class; `KeyError` for one that is not known."""
    return BOARDS[device_class.removeprefix("cuda-")][1]
