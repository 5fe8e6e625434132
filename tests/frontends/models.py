"""Small ONNX models for the tests, and a way to run what was imported."""

from __future__ import annotations

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from tvmpass.compile.canonical import canonicalize
from tvmpass.compile.legalize import legalize_map
from tvmpass.core.options import Options

_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64,
          "int32": TensorProto.INT32, "bool": TensorProto.BOOL}  # fmt: skip


def value(name: str, shape, dtype: str = "float32") -> onnx.ValueInfoProto:
    """Return an input or output; ``shape`` None leaves the rank open."""
    return helper.make_tensor_value_info(name, _TYPES[dtype], shape)


def model(nodes, inputs, outputs, constants=None, opset: int = 18, functions=()) -> onnx.ModelProto:
    """Return a model; ``constants`` maps names to arrays, outputs are names or values."""
    outputs = [value(o, None) if isinstance(o, str) else o for o in outputs]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "test", list(inputs), outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], functions=functions)
    made.ir_version = 9
    return made


def node(operator: str, inputs, outputs, name: str = "", **attributes) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, outputs, name=name, **attributes)


def build(mod, canonical: bool = True, options: Options | None = None):
    """Compile a module without fusion or schedules."""
    target = tvm.target.Target("llvm")
    if canonical:
        mod = canonicalize(mod)
    mod = relax.transform.LegalizeOps(legalize_map(options or Options(), target))(mod)
    return tvm.compile(mod, target, relax_pipeline=relax.pipeline.default_build_pipeline())


def run(mod, *arrays, **keywords) -> list[np.ndarray]:
    """Build and run ``main``; return the outputs as a flat list."""
    machine = relax.VirtualMachine(build(mod, **keywords), tvm.cpu())
    return _flat(machine["main"](*[tvm.runtime.tensor(np.asarray(a)) for a in arrays]))


def _flat(result) -> list[np.ndarray]:
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for item in result for array in _flat(item)]
