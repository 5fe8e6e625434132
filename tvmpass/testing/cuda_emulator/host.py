"""The host part of a PrimFunc, interpreted: launches in order, workspaces between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.errors import UsageError

from .errors import EmulationError, Unmodelled
from .launch import Call, DeviceArray, scalar

if TYPE_CHECKING:
    from tvmpass.compile.cuda_source import CudaSource

_INDICES = ("blockIdx", "threadIdx")
_DYNAMIC = "tirx.use_dyn_shared_memory"


def numpy_dtype(name: str) -> np.dtype:
    """Return numpy's type of a TVM type; bfloat16 is kept as its 16 bits."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def bind(source: CudaSource, values: Sequence[Any]) -> tuple[dict[Any, Any], list[DeviceArray]]:
    """Return what the variables of the host code stand for, and the arrays, copied to the device.

    ``values`` are arrays and numbers in the order of the PrimFunc's parameters.
    """
    parameters = list(source.entry.params)
    if len(values) != len(parameters):
        raise UsageError(f"{source.name} takes {len(parameters)} arguments, {len(values)} were given")
    known: dict[Any, Any] = {}
    arrays: list[DeviceArray] = []
    for parameter, value in zip(parameters, values):
        if not tirx.buffer.is_buffer_var(parameter):
            known[parameter] = value
            continue
        value = np.asarray(value)
        wanted = numpy_dtype(str(parameter.ty.dtype))
        if value.dtype.itemsize != wanted.itemsize:
            raise UsageError(f"{parameter.name} of {source.name} has dtype {value.dtype}, it needs {wanted}")
        array = DeviceArray(parameter.name, value.shape, value.dtype)
        array.values[...] = value
        arrays.append(array)
        known[parameter] = array
        if len(value.shape) != len(parameter.ty.shape):
            raise UsageError(f"{parameter.name} of {source.name} has {len(parameter.ty.shape)} dims")
        for extent, actual in zip(parameter.ty.shape, value.shape):
            if isinstance(extent, tvm.ir.Var):
                known.setdefault(extent, actual)
        if isinstance(parameter.ty.elem_offset, tvm.ir.Var):  # arrays begin where their data does
            known.setdefault(parameter.ty.elem_offset, 0)
    return known, arrays


class Host:
    """Walks the host code of a PrimFunc and hands each launch on."""

    def __init__(self, source: CudaSource, known: Mapping[Any, Any], start: Callable[[Call], None]):
        self.kernels = {kernel.name: kernel for kernel in source.kernels}
        self.known = dict(known)
        self.start = start
        self.workspaces: list[DeviceArray] = []
        self.analyzer = tvm.sym.Analyzer()

    def run(self, statement: Any) -> None:
        """Do what a statement says."""
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self.run(part)
        elif isinstance(statement, tirx.Bind):
            self.known[statement.var] = self.value(statement.value)
        elif isinstance(statement, tirx.AllocBuffer):
            self._allocate(statement.buffer)
            self._inner(statement)
        elif isinstance(statement, tirx.DeclBuffer):
            self.known[statement.buffer] = self._declared(statement)
            self._inner(statement)
        elif isinstance(statement, tirx.IfThenElse):
            branch = statement.then_case if self.value(statement.condition) else statement.else_case
            if branch is not None:
                self.run(branch)
        elif isinstance(statement, tirx.AssertStmt):
            if not self.value(statement.condition):
                text = f"an assertion of the host code fails: {statement.condition}"
                raise EmulationError(text, "assertion")
        elif isinstance(statement, tirx.AttrStmt):
            self._inner(statement)
        elif isinstance(statement, tirx.For):
            first = self.value(statement.min)
            for i in range(first, first + self.value(statement.extent)):
                self.known[statement.loop_var] = i
                self.run(statement.body)
        elif isinstance(statement, tirx.Evaluate):
            self._evaluate(statement.value)
        else:
            raise Unmodelled(f"the emulator does not interpret {type(statement).__name__} in host code")

    def value(self, expression: Any) -> Any:
        """Return the number, or the array, that an expression stands for."""
        if isinstance(expression, (int, float)):
            return expression
        if isinstance(expression, tvm.ir.Var):
            return self.known[expression]
        if isinstance(expression, tvm.ir.Call) and expression.op.name == "tirx.buffer_data":
            return self.known[expression.args[0]]

        def replaced(variable: Any) -> Any:
            found = self.known.get(variable)
            return variable if found is None else tirx.const(found, str(variable.ty.dtype))

        known = tvm_ffi.structural_map(expression, [(tvm.ir.Var, replaced)], order="post")
        simple = self.analyzer.simplify(known)
        if not isinstance(simple, (tirx.IntImm, tirx.FloatImm)):
            raise Unmodelled(f"the emulator cannot evaluate {expression} in host code")
        return simple.value

    def _inner(self, statement: Any) -> None:
        body = getattr(statement, "body", None)
        if body is not None:
            self.run(body)

    def _allocate(self, buffer: Any) -> None:
        shape = [self.value(extent) for extent in buffer.shape]
        array = DeviceArray(buffer.name, shape, numpy_dtype(str(buffer.dtype)))
        array.bytes[...] = 0xFF  # NaN: a load before a store shows
        self.workspaces.append(array)
        self.known[buffer] = array

    def _declared(self, statement: Any) -> Any:
        """Return the array that a buffer is another view of."""
        data = statement.data if hasattr(statement, "data") else statement.buffer.data
        return self.value(data)

    def _evaluate(self, call: Any) -> None:
        if isinstance(call, tirx.IntImm):
            return
        if not isinstance(call, tvm.ir.Call) or call.op.name != "tirx.call_ffi_kernel":
            raise Unmodelled(f"the emulator does not interpret {call} in host code")
        kernel = self.kernels[str(call.args[0].value)]
        count = len(kernel.parameters)
        arguments = tuple(
            value if parameter.pointer else scalar(value, parameter.dtype)
            for parameter, value in zip(kernel.parameters, map(self.value, call.args[1 : 1 + count]))
        )
        sizes = [self.value(a) for a in call.args[1 + count :]]
        given = dict(zip((str(p) for p in call.attrs.launch_params), sizes))
        grid, block = (tuple(given.get(f"{index}.{axis}", 1) for axis in "xyz") for index in _INDICES)
        self.start(Call(kernel.name, arguments, grid, block, given.get(_DYNAMIC, 0)))
