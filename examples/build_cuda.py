"""Build an ONNX model for NVIDIA GPUs, here, and look at what its kernels take.

python examples/build_cuda.py

Needs nvcc (pip install 'tvmpass[cuda]') and a C++ compiler, but no GPU.  Where
one answers, the library is run and compared with a build for this CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tvmpass
from tvmpass.compile.cuda_probe import probe

MODEL = Path(__file__).parent / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
SHAPE = (1, 3, 48, 192)


def main() -> None:
    mod = tvmpass.load(MODEL, shapes={"x": SHAPE})
    library = tvmpass.build(mod, target="cuda:sm_80,sm_90")
    library.export("cls_cuda.so")
    for kernel in library.report.kernels[:5]:
        print(f"{kernel.name}: {kernel.schedule}")
        for arch, taken in kernel.cuda.items():
            shared = taken["static_shared_bytes"] + taken["dynamic_shared_bytes"]
            print(f"    {arch}: {taken['registers']} registers, {shared} bytes shared memory,", end=" ")
            print(f"{taken['spill_bytes']} bytes spilled, occupancy {taken['occupancy']:.0%}")

    device = probe()
    if not device.answers:
        print(f"not run: {device.reason}")
        return
    images = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    (on_gpu,) = tvmpass.load_artifact("cls_cuda.so").run(x=images)
    (on_cpu,) = tvmpass.build(mod, target="llvm").run(x=images)
    print(f"on {device.name}, largest difference from the CPU: {np.abs(on_gpu - on_cpu).max():.2g}")


if __name__ == "__main__":
    main()
