"""CUDA text of one scheduled kernel, and how its host code launches it.

No compiler and no driver take part: TVM's passes split the function into host
and device code, and its CUDA printer writes the device part.  What ptxas cannot
know (launch dimensions, dynamic shared memory) is read off the lowered TIR.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.instrument import pass_instrument
from tvm.tirx.build import codegen_build, split_host_device_mods

from tvmpass.core.cuda_arch import capability, target_arches
from tvmpass.core.errors import TvmpassError

from .codegen import kernel_config, may_go_in_place
from .cuda_minmax import spell_out
from .cuda_pack import cuda_modules, module_block
from .exact_floats import guard

ASYNC_COPY = "tirx.use_async_copy"
_ASYNC_STAGES = "software_pipeline_async_stages"
_LAUNCH = "tirx.call_ffi_kernel"
_AXES = ("x", "y", "z")
_DEVICE_LAUNCH = 2
"""TVM's calling convention of functions that host code launches on a device."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a device kernel: a pointer to ``dtype``, or a scalar of it."""

    name: str
    dtype: str
    pointer: bool


@dataclass(frozen=True)
class DeviceKernel:
    """One ``__global__`` function and its launch.

    ``grid`` holds numbers, or expressions over the scalar parameters (their
    TIR variables bear the parameters' names); shared memory is in bytes.
    """

    name: str
    parameters: tuple[Parameter, ...]
    grid: tuple[Any, Any, Any]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    static_shared_bytes: int

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return math.prod(self.block)

    def grid_for(self, scalars: Mapping[str, int]) -> tuple[int, int, int]:
        """Return the grid for values of the scalar parameters, by name."""
        return tuple(evaluate(extent, scalars) for extent in self.grid)  # type: ignore[return-value]


@dataclass(frozen=True)
class CudaSource:
    """What one PrimFunc became.

    ``host`` is the host module as TVM finishes it to machine code: one function
    with the packed calling convention.  ``entry`` is the same host code with the
    PrimFunc's own parameters: a sequence of ``tirx.call_ffi_kernel`` calls, whose
    arguments are those of the kernel, then its launch parameters.  ``table`` is
    how TVM's runtime calls the kernels, in its own form (`cuda_pack`).
    """

    name: str
    source: str
    kernels: tuple[DeviceKernel, ...]
    host: tvm.IRModule = field(repr=False)
    entry: tirx.PrimFunc = field(repr=False)
    table: bytes = field(repr=False, default=b"")


def emit_cuda(func: tirx.PrimFunc, target: tvm.target.Target, name: str) -> CudaSource:
    """Lower a scheduled PrimFunc for a CUDA ``target`` to CUDA text and host code.

    Device kernels are called ``name_kernel``, ``name_kernel_1`` and so on.
    Floats keep their arithmetic as written (`exact_floats.guard`).  Raises
    `TvmpassError` for a function that is not wholly bound to threads; what TVM
    cannot lower raises its own error.
    """
    before_packing = _Before("MakePackedAPI")
    asynchronous = all(capability(arch) >= 80 for arch in target_arches(target))
    func = guard(func if asynchronous else _without_async_copies(func))
    with _context(func, asynchronous, before_packing), target:
        module = tvm.IRModule({name: func.with_attr("global_symbol", name)})
        pipeline, _, finish_device = tirx.get_tir_pipeline("s_tir")
        module = pipeline(tirx.transform.BindTarget(target)(module))
        host, devices = split_host_device_mods(module)
        kernels = [_kernel(v.name_hint, f) for v, f in module.functions_items() if _is_launched(f)]
        source, table = "", b""
        for device_target, device in devices.items():  # one: a function has one target
            with _without_compiling():
                made = codegen_build(_spelled_out(finish_device()(device)), device_target)
            source, table = made.inspect_source(), cuda_modules(module_block(made))[0].table
    kernels.sort(key=lambda kernel: (len(kernel.name), kernel.name))
    entry = before_packing.module[name]
    _check_host(entry)
    host = _skip_empty_launches(host)
    return CudaSource(name, _spelled(source), tuple(kernels), host, entry, table)


def _spelled_out(module: tvm.IRModule) -> tvm.IRModule:
    functions = {v: spell_out(f) for v, f in module.functions_items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def _spelled(source: str) -> str:
    """Spell infinity and NaN, which TVM prints in bfloat16 constants as ``inff`` and ``nanf``."""
    source = re.sub(r"\binff\b", "__int_as_float(0x7f800000)", source)
    return re.sub(r"\bnanf\b(?!\s*\()", "__int_as_float(0x7fffffff)", source)


def evaluate(expression: Any, scalars: Mapping[str, int]) -> int:
    """Return the value of a launch dimension, its variables given by name."""
    if isinstance(expression, int):
        return expression

    def value(variable):
        if not isinstance(variable.ty, tvm.ir.PrimType):
            return variable
        return tirx.const(scalars[variable.name], str(variable.ty.dtype))

    known = tvm_ffi.structural_map(expression, [(tvm.ir.Var, value)], order="post")
    return int(tvm.sym.Analyzer().simplify(known))


def _context(func: tirx.PrimFunc, asynchronous: bool, instrument: Any):
    config = kernel_config(in_place=not may_go_in_place(func))
    if asynchronous:
        config[ASYNC_COPY] = True
    return tvm.transform.PassContext(opt_level=3, config=config, instruments=[instrument])


def _without_async_copies(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return ``func`` with pipelines that copy as devices before sm_80 can: and wait.

    TVM would emit commit and wait instructions that those do not have.
    """

    def plain(loop):
        if _ASYNC_STAGES not in loop.annotations:
            return loop
        kept = {key: value for key, value in loop.annotations.items() if key != _ASYNC_STAGES}
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, kept, loop.step
        )

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.For, plain)], order="post"))


def _check_host(entry: tirx.PrimFunc) -> None:
    """Raise `TvmpassError` where host code would touch the device's memory: TVM lets it."""

    touched: list[Any] = []
    visitors = [(kind, touched.append) for kind in (tvm.ir.TensorLoad, tirx.BufferStore)]
    tvm_ffi.structural_walk(entry.body, visitors)
    if touched:
        raise TvmpassError("a loop of the kernel is not bound to the device's blocks and threads")


def _skip_empty_launches(host: tvm.IRModule) -> tvm.IRModule:
    """Return host code that launches nothing where a grid has no blocks.

    A dimension of 0 is known only at run time.  TVM's runtime would launch one
    block then, which reads what is not there.
    """

    def guarded(statement):
        call = statement.value
        if not (isinstance(call, tvm.ir.Call) and str(getattr(call.op, "name", "")) == _LAUNCH):
            return statement
        tags = list(call.attrs.launch_params)
        extents = dict(zip(tags, list(call.args)[-len(tags) :]))
        open_ended = [e for tag, e in extents.items() if tag.startswith("blockIdx") and not _is_int(e)]
        condition = None
        for extent in open_ended:
            positive = extent > tirx.const(0, str(extent.ty.dtype))
            condition = positive if condition is None else tirx.And(condition, positive)
        return statement if condition is None else tirx.IfThenElse(condition, statement, None)

    result = tvm.IRModule(dict(host.functions_items()), attrs=host.attrs)
    for variable, function in host.functions_items():
        body = tvm_ffi.structural_map(function.body, [(tirx.Evaluate, guarded)], order="post")
        result.update_func(variable, function.with_body(body))
    return result


_COMPILE_HOOK = "tvm_callback_cuda_compile"
_hook = threading.RLock()


@contextlib.contextmanager
def _without_compiling() -> Iterator[None]:
    """Keep TVM from compiling CUDA text, which it does wherever a driver is installed."""
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:
        yield
        return
    with _hook:
        usual = tvm.get_global_func(_COMPILE_HOOK)
        tvm_ffi.register_global_func(_COMPILE_HOOK, lambda _source: b"", override=True)
        try:
            yield
        finally:
            tvm_ffi.register_global_func(_COMPILE_HOOK, usual, override=True)


@pass_instrument
class _Before:
    """Keep the module that a pass is about to change."""

    def __init__(self, name: str):
        self.last = name
        self.module: Any = None

    def run_before_pass(self, module, info) -> None:
        if str(info.name).rpartition(".")[2] == self.last:
            self.module = module


def _is_launched(function) -> bool:
    attrs = dict(function.attrs or {})
    return int(attrs.get("calling_conv", 0)) == _DEVICE_LAUNCH


def _kernel(name: str, function: tirx.PrimFunc) -> DeviceKernel:
    extents: dict[str, Any] = {}
    shared = {"shared": 0, "shared.dyn": 0}

    def note_extent(statement) -> None:
        if statement.attr_key == "thread_extent":
            extents[str(statement.node.thread_tag)] = _as_int(statement.value)

    def note_buffer(statement) -> None:
        scope = str(statement.buffer.scope())
        if scope in shared:
            shared[scope] += _bytes(statement.buffer)

    visitors = [(tirx.AttrStmt, note_extent), (tirx.AllocBuffer, note_buffer)]
    tvm_ffi.structural_walk(function.body, visitors)
    grid = tuple(extents.get(f"blockIdx.{axis}", 1) for axis in _AXES)
    block = tuple(extents.get(f"threadIdx.{axis}", 1) for axis in _AXES)
    parameters = tuple(_parameter(p) for p in function.params)
    return DeviceKernel(name, parameters, grid, block, shared["shared.dyn"], shared["shared"])


def _parameter(variable) -> Parameter:
    if isinstance(variable.ty, tvm.ir.PointerType):
        return Parameter(variable.name, str(variable.ty.element_type.dtype), True)
    return Parameter(variable.name, str(variable.ty.dtype), False)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, tirx.IntImm))


def _as_int(value: Any) -> Any:
    return int(value) if _is_int(value) else value


def _bytes(buffer) -> int:
    kind = tvm_ffi.dtype(str(buffer.dtype))
    return math.prod(int(extent) for extent in buffer.shape) * ((kind.bits * kind.lanes + 7) // 8)
