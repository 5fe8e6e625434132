"""Machine code for scheduled kernels: one object per kernel, cached, then linked.

Kernels are compiled one by one in a few threads (LLVM runs outside Python's
lock) and kept under what they are: the scheduled TIR, the target and TVM's
version.  An equal kernel is compiled once per machine, whatever model it is in.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import vm_build

from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.site import op_name
from tvmpass.version import VERSION

from .branches import outline_branches
from .compile_cache import CompileCache
from .exact_floats import GUARD_VERSION, guard

if TYPE_CHECKING:
    from .cuda_build import CudaKernels

NO_STORAGE_REWRITE = "tirx.disable_storage_rewrite"
"""TVM's StorageRewrite lets a stage write over the buffer it reads, element by element.
Our tiles overlap at odd extents and compute some elements twice: the second time they
would read what the first wrote."""

LAUNCH_VERSION = 1
"""Counted up with each change of how `cuda_source` makes host code: it is kept by it."""

MAX_FORMS = 2
"""Other forms of a kernel that are tried where one does not compile: the library's choice of a
tuned one, then the fallback."""

THREADS = 2
"""Compilations at a time; more gain little and each holds an LLVM context."""


@dataclass
class Compiled:
    """A model's VM code and the objects its kernels were compiled to."""

    build_vm: Any
    objects: list[Path]
    symbols: dict[str, str]
    code_bytes: dict[str, int]
    cache_hits: int
    folder: Any = field(repr=False, default=None)
    cuda: CudaKernels | None = field(repr=False, default=None)


def compile_model(
    mod,
    target: tvm.target.Target,
    cache: CompileCache,
    fallback: Callable[[str, str], tirx.PrimFunc | None] = lambda kernel, error: None,
    *,
    fast_math: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Compiled:
    """Lower the scheduled module for the VM and compile its kernels.

    ``fallback(kernel, error)`` gives a plainer form of a kernel that could not
    be compiled, or None.  Raises `TvmpassError` naming a kernel without one.
    ``fast_math`` and ``progress`` are for nvcc, where the target is CUDA.
    """
    symbols = {
        gv.name_hint: kernel_symbol(f, target)
        for gv, f in mod.functions_items()
        if isinstance(f, tirx.PrimFunc)
    }
    renamed = _rename(mod, symbols)
    with target:
        lowered = relax.pipeline.default_build_pipeline()(outline_branches(renamed))
    builder = relax.ExecBuilder()
    constants = dict(dict(lowered.attrs or {}).get("const_name_to_constant", {}))
    kernels = vm_build._filter_tir(vm_build._vmcodegen(builder, lowered, "bytecode"))
    functions = {gv.name_hint: f for gv, f in kernels.functions_items()} if kernels is not None else {}
    folder = tempfile.TemporaryDirectory(prefix="tvmpass-")
    kernel_of = {symbol: name for name, symbol in symbols.items()}

    def plainer(symbol: str, error: str) -> tirx.PrimFunc | None:
        return fallback(kernel_of[symbol], error) if symbol in kernel_of else None

    cuda: CudaKernels | None = None
    if target.kind.name == "cuda":
        from .cuda_build import compile_cuda

        cuda = compile_cuda(
            functions, kernel_of, target, cache, Path(folder.name), plainer, fast_math, progress
        )
        objects, hits = cuda.objects, cuda.cache_hits
        sizes = {name: cuda.code_bytes[symbol] for name, symbol in symbols.items() if symbol in objects}
    else:
        objects, hits = _compile_all(functions, target, cache, Path(folder.name), plainer)
        sizes = {
            name: objects[symbol].stat().st_size for name, symbol in symbols.items() if symbol in objects
        }

    def build_vm():
        return vm_build._vmlink(builder, target, None, "default", [], constants)

    return Compiled(build_vm, list(objects.values()), symbols, sizes, hits, folder, cuda)


def kernel_symbol(function: tirx.PrimFunc, target: tvm.target.Target) -> str:
    """Name a scheduled kernel after its content, for sharing between models."""
    for attr in dict(function.attrs or {}):
        if attr not in ("s_tir", "tirx.noalias", "tirx.is_scheduled", "tirx.is_host_func"):
            function = function.without_attr(attr)
    versions = [tvm.__version__, VERSION, f"guard {GUARD_VERSION}"]
    if target.kind.name == "cuda":
        versions.append(f"launch {LAUNCH_VERSION}")
    text = "\n".join((function.script(), str(target), *versions, _codegen_config()))
    return "tvmpass_" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _codegen_config() -> str:
    """Return TVM's own config keys in force: they change generated code."""
    return json.dumps({k: str(v) for k, v in kernel_config().items()}, sort_keys=True)


def kernel_config(in_place: bool = False) -> dict[str, Any]:
    """Return the TVM config to compile a kernel under: the caller's, and ours.

    ``in_place`` says that `may_go_in_place` found nothing to fear.
    """
    config = dict(tvm.transform.PassContext.current().config)
    own = {k: v for k, v in config.items() if not k.startswith("tvmpass.")}
    return own if in_place else {**own, NO_STORAGE_REWRITE: True}


def kernel_context():
    """Return a TVM PassContext to compile any kernel under, without the caller's instruments."""
    return tvm.transform.PassContext(opt_level=3, config=kernel_config())


def may_go_in_place(function: tirx.PrimFunc) -> bool:
    """Return True where a stage could be laid over the intermediate that it reads.

    That takes two intermediate buffers of one scope; with fewer StorageRewrite
    is harmless, and its types for vector accesses make kernels faster.
    """
    scopes: list[str] = []

    def note(block) -> None:
        scopes.extend(str(buffer.scope()) for buffer in block.alloc_buffers)

    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, note)])
    return len(scopes) != len(set(scopes))


def _rename(mod, symbols: Mapping[str, str]):
    """Give every kernel its symbol as a name; equal kernels become one."""
    fresh: dict[str, Any] = {}
    result = tvm.IRModule(attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if variable.name_hint in symbols:
            symbol = symbols[variable.name_hint]
            if symbol not in fresh:
                fresh[symbol] = tvm.ir.GlobalVar(symbol)
                relax.expr._update_type(fresh[symbol], variable.ty)
                result[fresh[symbol]] = function.with_attr("global_symbol", symbol)
        elif not isinstance(function, relax.Function):
            result[variable] = function

    def renamed(value):
        if op_name(value) in ("relax.call_tir", "relax.call_tir_inplace"):
            symbol = symbols[value.args[0].name_hint]
            args = [fresh[symbol], *list(value.args)[1:]]
            return relax.Call(value.op, args, value.attrs, list(value.ty_args), value.span, value.ty)
        return value

    from tvmpass.core.rebuild import map_values

    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            result[variable] = map_values(function, renamed)
    return result


def _compile_all(functions: Mapping[str, Any], target, cache: CompileCache, folder: Path, plainer):
    objects: dict[str, Path] = {}
    todo: list[str] = []
    hits = 0
    for name in functions:
        path = folder / f"{name}.o"
        if name.startswith("tvmpass_") and cache.fetch(name, path):
            hits += 1
            objects[name] = path
        else:
            todo.append(name)
    configs = kernel_config(), kernel_config(in_place=True)

    def compile_one(name: str, function) -> Path:
        return compile_object(name, function, target, folder / f"{name}.o", configs)

    def work(name: str) -> Path:
        path = compile_one(name, functions[name])
        if name.startswith("tvmpass_"):
            cache.store(name, path)
        return path

    with ThreadPoolExecutor(max(1, min(THREADS, os.cpu_count() or 1))) as pool:
        for name, done in [(n, pool.submit(work, n)) for n in todo]:
            try:
                objects[name] = done.result()
            except Exception as error:  # TVM raises several classes
                objects[name] = _compile_plainer(name, error, plainer, compile_one)
    return {name: objects[name] for name in functions}, hits


def compile_object(
    name: str, function, target, path: Path, configs: tuple[dict[str, Any], dict[str, Any]] | None = None
) -> Path:
    """Compile one scheduled kernel for the CPU to the object file ``path``, as a build does.

    ``configs`` are TVM's config for kernels that must not go in place and for the
    others, where they are not this thread's (`kernel_config`).
    """
    careful, plain = configs or (kernel_config(), kernel_config(in_place=True))
    with tvm.transform.PassContext(opt_level=3, config=careful if may_go_in_place(function) else plain):
        module = tvm.tirx.build(tvm.IRModule({name: guard(function)}), target)
    module.write_to_file(str(path))
    return path


def _compile_plainer(name: str, error: Exception, plainer, compile_one) -> Path:
    """Compile the next form of a kernel that did not compile, until one does or there is none."""
    cause: Exception = error
    for _ in range(MAX_FORMS):
        simple = plainer(name, last_line(cause))
        if simple is None:
            break
        try:
            return compile_one(name, simple.with_attr("global_symbol", name))
        except Exception as again:  # as above
            cause = again
    raise TvmpassError(f"code generation of kernel {name} failed: {last_line(cause)}") from cause


class Linker:
    """What TVM's ``export_library`` calls to link: the C++ compiler, quietly."""

    object_format = "o"

    def __init__(self, compiler: str):
        self.compiler = compiler

    def __call__(self, output: str, objects: Sequence[str], **_: Any) -> None:
        from tvm.support import cc

        cc.create_shared(output, list(objects), cc=self.compiler)

    def get_target_triple(self) -> str:
        return str(tvm.target.codegen.llvm_get_system_triple())


def link(compiled: Compiled, output: Path, compiler: str, extra: Sequence[Path] = ()) -> None:
    """Link VM code, constants, kernels and ``extra`` objects into one library."""
    executable = compiled.build_vm()
    addons = [str(p) for p in (*compiled.objects, *extra)]
    if compiled.cuda is None:
        executable.export_library(str(output), fcompile=Linker(compiler), addons=addons)
        return
    from .cuda_pack import BLOCK_SYMBOL, add_cuda_modules, embed, module_block

    with tempfile.TemporaryDirectory() as folder:
        block = add_cuda_modules(module_block(executable.mod), compiled.cuda.modules)
        source = embed(block, BLOCK_SYMBOL, Path(folder))
        Linker(compiler)(str(output), [*addons, str(source)])
