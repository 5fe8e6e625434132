"""The kernels of a CUDA module: fatbins for the devices, launch code for the host.

Each PrimFunc is lowered to CUDA text and host code (`cuda_source`), its launch is
checked against the devices' limits, nvcc compiles the text (`cuda_toolchain`) and
LLVM the host code.  Both results are cached by content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build

from tvmpass.core.cuda_arch import target_arches
from tvmpass.core.errors import TvmpassError, last_line

from .codegen import kernel_context
from .compile_cache import CompileCache
from .cuda_limits import check_launch, check_resources, report
from .cuda_pack import BINARY_FORMAT, CudaModule
from .cuda_source import CudaSource, emit_cuda
from .cuda_toolchain import Unit, UnitError, check_architectures, compile_units, find_nvcc
from .exact_floats import guard

Plainer = Callable[[str, str], tirx.PrimFunc | None]


@dataclass
class CudaKernels:
    """The compiled kernels of a module, by symbol."""

    modules: list[CudaModule] = field(default_factory=list)
    objects: dict[str, Path] = field(default_factory=dict)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    code_bytes: dict[str, int] = field(default_factory=dict)
    cache_hits: int = 0


def compile_cuda(
    functions: Mapping[str, tirx.PrimFunc],
    names: Mapping[str, str],
    target: tvm.target.Target,
    cache: CompileCache,
    folder: Path,
    plainer: Plainer,
    fast_math: bool = False,
    progress: Callable[[str], None] | None = None,
) -> CudaKernels:
    """Compile scheduled functions, by symbol, for a CUDA target.

    ``names[symbol]`` is the kernel's name in messages; functions without one run
    on the host.  ``plainer(symbol, error)`` gives another form of a kernel that
    could not be compiled, or None.  Raises `TvmpassError` naming the kernel, also
    for one that breaks a limit of any of the target's architectures.
    """
    nvcc, arches = find_nvcc(), target_arches(target)
    check_architectures(nvcc, arches)
    sources: dict[str, CudaSource] = {}
    replaced: set[str] = set()

    def emit(symbol: str, function: tirx.PrimFunc) -> None:
        try:
            sources[symbol] = emit_cuda(function, target, symbol)
        except Exception as error:  # TVM raises several classes
            replace(symbol, last_line(error), error)

    def replace(symbol: str, reason: str, cause: Exception) -> None:
        simple = plainer(symbol, reason) if symbol not in replaced else None
        replaced.add(symbol)
        if simple is None:
            raise TvmpassError(f"code generation of kernel {names[symbol]} failed: {reason}") from cause
        emit(symbol, simple.with_attr("global_symbol", symbol))

    for symbol, function in functions.items():
        if symbol in names:
            emit(symbol, function)
    units: dict[str, Unit] | None = None
    while units is None:
        for symbol, source in sources.items():
            check_launch(names[symbol], source.kernels, arches)
        texts = {symbol: source.source for symbol, source in sources.items()}
        try:
            units = compile_units(
                texts, arches, nvcc=nvcc, cache=cache, fast_math=fast_math, progress=progress
            )
        except UnitError as error:
            replace(error.unit, error.reason, error)

    made = CudaKernels()
    for symbol, function in functions.items():
        path = folder / f"{symbol}.o"
        made.objects[symbol] = path
        if symbol not in names:
            _compile_host(guard(function), symbol, target, path)
            continue
        source, unit = sources[symbol], units[symbol]
        check_resources(names[symbol], source.kernels, unit.resources)
        made.modules.append(CudaModule(BINARY_FORMAT, source.table, unit.fatbin))
        made.reports[symbol] = report(source.kernels, unit.resources, arches)
        made.code_bytes[symbol] = len(unit.fatbin)
        if symbol not in replaced and cache.fetch(symbol, path):
            made.cache_hits += 1
            continue
        _compile_launcher(source, target, path)
        if symbol not in replaced:
            cache.store(symbol, path)
    return made


def _compile_launcher(source: CudaSource, target: tvm.target.Target, path: Path) -> None:
    """Compile the host code that checks a kernel's arguments and launches it."""
    host = tvm.target.Target(target.host)
    with kernel_context():
        _, finish_host, _ = tirx.get_tir_pipeline("s_tir")
        codegen_build(finish_host()(source.host), host).write_to_file(str(path))


def _compile_host(function: tirx.PrimFunc, symbol: str, target: tvm.target.Target, path: Path) -> None:
    """Compile a function that runs on the host: it computes shapes."""
    with kernel_context():
        tirx.build(tvm.IRModule({symbol: function}), target).write_to_file(str(path))
