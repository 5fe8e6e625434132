"""What tvmpass is measured against: ONNX Runtime and TVM's own pipeline.

Each maker returns a `Runner`; every one runs the same model on the same arrays.
Set ``TVM_NUM_THREADS`` and ``OMP_NUM_THREADS`` before the process starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass
class Runner:
    """A built model: ``run`` does the work alone, ``outputs`` gives arrays."""

    run: Callable[[], object]
    outputs: Callable[[], list[np.ndarray]]
    build_seconds: float
    detail: object = None


def onnxruntime_runner(path: str, inputs: Mapping[str, np.ndarray], threads: int = 1) -> Runner:
    """Make an ONNX Runtime session on the CPU with all its optimisations."""
    import onnxruntime

    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    seconds = time.perf_counter() - start
    return Runner(lambda: session.run(None, feeds), lambda: session.run(None, feeds), seconds, session)


def tvmpass_runner(
    path: str, inputs: Mapping[str, np.ndarray], config: Mapping[str, object], shapes: Mapping | None = None
) -> Runner:
    """Build with tvmpass for this CPU."""
    import tvm

    import tvmpass

    start = time.perf_counter()
    with tvmpass.PassContext(config=dict(config)):
        mod = tvmpass.load(path, shapes=shapes or {name: array.shape for name, array in inputs.items()})
        library = tvmpass.build(mod, target="llvm")
    seconds = time.perf_counter() - start
    vm = library.vm()
    arguments = [tvm.runtime.tensor(array) for array in library.check_inputs(inputs)]
    return Runner(lambda: vm["main"](*arguments), lambda: library.run(inputs), seconds, library)


def stock_runner(path: str, inputs: Mapping[str, np.ndarray]) -> Runner:
    """Build with TVM's own importer and `relax.get_default_pipeline` for this CPU.

    The importer takes none of the example models as they are (shape arithmetic
    stays in the graph), so dimensions are fixed and the model is folded with
    onnxslim first, as for tvmpass.
    """
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    start = time.perf_counter()
    model = fixed_model(path, {name: array.shape for name, array in inputs.items()})
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 1}
    )
    mod = from_onnx(model, keep_params_in_input=False)
    executable = tvm.compile(mod, target, relax_pipeline=relax.get_default_pipeline(target))
    seconds = time.perf_counter() - start
    vm = relax.VirtualMachine(executable, tvm.cpu())
    order = [param.name for param in mod["main"].params]
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(inputs[name])) for name in order]
    return Runner(
        lambda: vm["main"](*arguments), lambda: _arrays(vm["main"](*arguments)), seconds, executable
    )


def fixed_model(path: str, shapes: Mapping[str, tuple[int, ...]]):
    """Return the ONNX model with its inputs fixed and constants folded."""
    import onnx
    import onnxslim

    model = onnx.load(path)
    for entry in model.graph.input:
        if entry.name in shapes:
            dims = entry.type.tensor_type.shape
            dims.ClearField("dim")
            for size in shapes[entry.name]:
                dims.dim.add().dim_value = int(size)
    del model.graph.value_info[:]
    for entry in model.graph.output:
        entry.type.tensor_type.ClearField("shape")
    return onnxslim.slim(model)


def _arrays(result) -> list[np.ndarray]:
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for item in result for array in _arrays(item)]
