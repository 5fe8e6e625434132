"""Run a whole model for CUDA without a device: TVM's VM on the host, kernels emulated.

For small models: every block of every kernel runs on the CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from tvmpass.compile.artifact import flatten
from tvmpass.compile.build import compile_vm
from tvmpass.compile.cuda_source import emit_cuda
from tvmpass.compile.target import parse_target
from tvmpass.core.rebuild import map_values
from tvmpass.core.site import op_name

from .cuda_emulator import EmulationError, emulate

_NUMBERS = itertools.count()


def emulate_model(mod, target: Any, inputs: Mapping[str, np.ndarray], *, orders: int = 1) -> list[np.ndarray]:
    """Return the outputs of an optimised module, its kernels run by the emulator.

    ``mod`` is what `tvmpass.optimize` returns for the CUDA ``target``; ``inputs``
    are the arguments of ``main`` by parameter name.  Raises `EmulationError`
    for a kernel that misbehaves.
    """
    resolved = parse_target(target, 1)
    faults: list[EmulationError] = []
    names = {
        variable.name_hint: _register(variable.name_hint, function, resolved, orders, faults)
        for variable, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    try:
        executable = compile_vm(_without_kernels(mod, names), parse_target("llvm", 1))
        arguments = [tvm.runtime.tensor(np.asarray(inputs[p.name])) for p in mod["main"].params]
        return flatten(relax.VirtualMachine(executable, tvm.cpu())["main"](*arguments))
    except RuntimeError as error:
        # On its way through TVM an exception of a callback loses its class.
        raise faults[0] if faults else error from None
    finally:
        for name in names.values():
            tvm_ffi.registry.remove_global_func(name)


def _register(
    kernel: str, function: tirx.PrimFunc, target: tvm.target.Target, orders: int, faults: list[EmulationError]
) -> str:
    """Make a packed function that emulates a kernel; return its global name.

    What the kernel does wrong goes to ``faults``.
    """
    source = emit_cuda(function, target, kernel)
    order = [tirx.buffer.is_buffer_var(p) for p in function.params]
    name = f"tvmpass.emulated.{next(_NUMBERS)}.{kernel}"

    def run(*arguments: Any) -> None:
        given = [a for a in arguments if isinstance(a, tvm.runtime.Tensor)]
        scalars = [int(a) for a in arguments if not isinstance(a, tvm.runtime.Tensor)]
        if len(given) != sum(order):
            raise ValueError(f"{kernel} takes {sum(order)} tensors, {len(given)} were given")
        # Numbers and tensors each come in the kernel's order, but not one among the other.
        arrays, numbers = iter([t.numpy() for t in given]), iter(scalars)
        in_order = [next(arrays if is_tensor else numbers) for is_tensor in order]
        try:
            result = emulate(source, in_order, orders=orders)
        except EmulationError as error:
            faults.append(error)
            raise
        for tensor, array in zip(given, result.arrays):
            tensor.copyfrom(array)

    tvm.register_global_func(name, run, override=True)
    return name


def _without_kernels(mod, names: Mapping[str, str]):
    """Return the module with calls of packed functions in place of its kernels."""

    def renamed(value):
        if op_name(value) != "relax.call_tir":
            return value
        args = list(value.args[1].fields)
        if len(value.args) > 2:
            args += [relax.prim_value(number) for number in value.args[2].values]
        made = value.ty_args[0]
        outputs = list(made.fields) if isinstance(made, relax.TupleType) else made
        return relax.call_dps_packed(names[value.args[0].name_hint], args, outputs)

    result = tvm.IRModule(attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            result[variable] = map_values(function, renamed)
    return relax.transform.Normalize()(result)
