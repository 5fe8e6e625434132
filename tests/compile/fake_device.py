"""Build a model for CUDA and for the CPU; run both, the CUDA kernels in the emulator.

Run as a script where the libraries of ``fake_cuda.c`` are on the loader's path:
``fake_device.py [MODEL.onnx NAME:DIMS]``; a small network where no model is named.

TVM's own CUDA runtime loads the exported library, its virtual machine and host
code run as on a GPU, and each launch goes to the emulator, which gets the
kernel's parameters as the driver would.  Prints the largest difference of the
outputs as a share of their scale, and the launches, as JSON.  For a named model
the emulator checks bounds and alignment only, which is faster.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from tvm import relax

import tvmpass
import tvmpass.compile.cuda_build as cuda_build
from tvmpass.testing.cuda_emulator.launch import Call, DeviceArray, Order, launch
from tvmpass.testing.cuda_emulator.native import load
from tvmpass.testing.graphs import graph

R = relax.op
DRIVER, RUNTIME = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
HANDLER = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
)
SCALARS = {"int64": ctypes.c_int64, "int32": ctypes.c_int32, "float32": ctypes.c_float}
SECONDS = 300.0


class Allocation(DeviceArray):
    """Memory that the fake runtime gave out."""

    def __init__(self, address: int, size: int):
        self.name = "device memory"
        self.bytes = np.frombuffer((ctypes.c_uint8 * size).from_address(address), "uint8")
        self.values = self.bytes.view("float32" if size % 4 == 0 else "uint8")
        self.written = np.zeros(self.values.size, "uint8")


def allocations() -> list[Allocation]:
    most = 1 << 16
    addresses, sizes = (ctypes.c_void_p * most)(), (ctypes.c_size_t * most)()
    count = RUNTIME.fake_allocations(addresses, sizes, most)
    return [Allocation(addresses[i], sizes[i]) for i in range(count)]


def emulated(kernels, launches: list[str], faults: list[str], order: Order):
    """Return the function that runs each launch in the emulator."""

    def run(name, grid, block, shared, values) -> int:
        source, kernel = kernels[name.decode()]
        launches.append(kernel.name)
        arguments = []
        for parameter, address in zip(kernel.parameters, values):
            kind = ctypes.c_void_p if parameter.pointer else SCALARS[parameter.dtype]
            arguments.append(kind.from_address(address))
        call = Call(kernel.name, tuple(arguments), tuple(grid[:3]), tuple(block[:3]), shared)
        try:
            blocks = range(int(np.prod(call.grid)))
            memory = allocations()
            launch(load(source.source), call, blocks=blocks, order=order, memory=memory, seconds=SECONDS)
        except Exception as error:  # a callback cannot raise: the driver reports a failed launch
            faults.append(str(error))
            return 1
        return 0

    return HANDLER(run)


def network():
    """A small convolutional network with a symbolic batch."""
    generator = np.random.default_rng(0)

    def weight(*shape):
        return relax.const(generator.normal(0, 0.3, shape).astype("float32"))

    def body(x):
        x = R.nn.relu(R.add(R.nn.conv2d(x, weight(8, 3, 3, 3), padding=1), weight(1, 8, 1, 1)))
        x = R.nn.conv2d(x, weight(8, 1, 3, 3), padding=1, groups=8, strides=2)
        x = R.nn.max_pool2d(R.sigmoid(x), (2, 2), (2, 2))
        x = R.mean(R.nn.conv2d(x, weight(16, 8, 1, 1)), [2, 3])
        return R.nn.softmax(R.add(R.matmul(x, weight(16, 10)), weight(10)), -1)

    return graph(body, (("n", 3, 16, 16),))


def main(model: str | None = None, shape: str = "x:2,3,16,16") -> None:
    name, _, dims = shape.partition(":")
    x = np.random.default_rng(1).normal(size=[int(d) for d in dims.split(",")]).astype("float32")
    module = network() if model is None else tvmpass.load(model, shapes={name: x.shape})
    kernels: dict[str, tuple] = {}
    emit = cuda_build.emit_cuda

    def noted(*arguments):
        source = emit(*arguments)
        kernels.update({kernel.name: (source, kernel) for kernel in source.kernels})
        return source

    cuda_build.emit_cuda = noted
    launches: list[str] = []
    faults: list[str] = []
    handler = emulated(kernels, launches, faults, Order(check=model is None))
    DRIVER.fake_on_launch(handler)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        tvmpass.build(module, "cuda:sm_80,sm_90").export(path)
        try:
            found = tvmpass.load_artifact(path).run({name: x})
        except tvmpass.TvmpassError as error:
            print(json.dumps({"error": str(error), "faults": faults}))
            return
    expected = tvmpass.build(module).run({name: x})
    difference = max(float(np.abs(f - e).max() / np.abs(e).max()) for f, e in zip(found, expected))
    print(json.dumps({"difference": difference, "launches": launches, "faults": faults}))


if __name__ == "__main__":
    main(*sys.argv[1:])
