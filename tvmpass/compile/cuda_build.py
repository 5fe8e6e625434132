"""The kernels of a CUDA module: fatbins for the devices, launch code for the host.

Each PrimFunc is lowered to CUDA text and host code (`cuda_source`), its launch is
checked against the devices' limits, nvcc compiles the text (`cuda_toolchain`) and
LLVM the host code.  Both results are cached by content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build

from tvmpass.core.cuda_arch import target_arches
from tvmpass.core.errors import TvmpassError, last_line

from .codegen import MAX_FORMS, kernel_context
from .compile_cache import CompileCache
from .cuda_binary import fatbin_code_bytes
from .cuda_limits import check_launch, check_resources, report
from .cuda_pack import BINARY_FORMAT, CudaModule, join_tables
from .cuda_source import CudaSource, emit_cuda
from .cuda_toolchain import (
    Nvcc,
    Unit,
    UnitError,
    check_architectures,
    compile_units,
    find_nvcc,
)
from .cuda_units import Group, compile_joined
from .exact_floats import guard
from .host_compiler import host_compiler

Plainer = Callable[[str, str], tirx.PrimFunc | None]


@dataclass
class CudaKernels:
    """The compiled kernels of a module, by symbol.

    ``objects`` holds host code, ``reports`` the field ``cuda`` of the report, and
    ``code_bytes`` the machine code of all architectures together.
    """

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
    could not be compiled or breaks a limit of any of the target's architectures,
    or None.  Raises `TvmpassError` naming a kernel without one.
    """
    nvcc, arches = find_tools(target), target_arches(target)

    def compile_all(units: Mapping[str, str]) -> dict[str, Unit]:
        return compile_units(units, arches, nvcc=nvcc, cache=cache, fast_math=fast_math, progress=progress)

    sources = _Sources(names, target, plainer)
    for symbol in functions:
        if symbol in names:
            sources.emit(symbol, functions[symbol])
    made = CudaKernels()
    for group, unit in _compile_devices(sources, arches, compile_all):
        members = [sources.made[symbol] for symbol in group.names]
        table = join_tables(source.table for source in members)
        made.modules.append(CudaModule(BINARY_FORMAT, table, unit.fatbin))
        sizes = fatbin_code_bytes(unit.fatbin)
        for source in members:
            made.reports[source.name] = report(source.kernels, unit.resources, arches)
            made.code_bytes[source.name] = sum(sizes.get(kernel.name, 0) for kernel in source.kernels)
    for symbol, function in functions.items():
        path = made.objects[symbol] = folder / f"{symbol}.o"
        if symbol not in names:
            _compile_host(guard(function), symbol, target, path)
        elif symbol not in sources.replaced and cache.fetch(symbol, path):
            made.cache_hits += 1
        else:
            _compile_launcher(sources.made[symbol], target, path)
            if symbol not in sources.replaced:
                cache.store(symbol, path)
    return made


def find_tools(target: tvm.target.Target) -> Nvcc:
    """Return the nvcc for a CUDA target; `TvmpassError` for a compiler that is missing.

    nvcc must know the target's architectures, and a C++ compiler must be there.
    """
    nvcc = find_nvcc()
    check_architectures(nvcc, target_arches(target))
    host_compiler()
    return nvcc


class _Sources:
    """The CUDA text of each kernel; one that fails is replaced by plainer forms, if there are any."""

    def __init__(self, names: Mapping[str, str], target: tvm.target.Target, plainer: Plainer):
        self.names, self.target, self.plainer = names, target, plainer
        self.made: dict[str, CudaSource] = {}
        self.replaced: Counter[str] = Counter()

    def emit(self, symbol: str, function: tirx.PrimFunc) -> None:
        """Lower a function and keep what it became."""
        try:
            self.made[symbol] = emit_cuda(function, self.target, symbol)
        except Exception as error:  # TVM raises several classes
            self.replace(symbol, last_line(error), error)

    def replace(self, symbol: str, reason: str, cause: Exception) -> None:
        """Lower the next plainer form instead; `TvmpassError` where there is none."""
        if not self.has_replaced(symbol, reason):
            raise TvmpassError(f"code generation of kernel {self.names[symbol]} failed: {reason}") from cause

    def has_replaced(self, symbol: str, reason: str) -> bool:
        """Lower the next plainer form instead; return whether there was one."""
        simple = self.plainer(symbol, reason) if self.replaced[symbol] < MAX_FORMS else None
        self.replaced[symbol] += 1
        if simple is None:
            return False
        self.emit(symbol, simple.with_attr("global_symbol", symbol))
        return True


def _compile_devices(sources: _Sources, arches, compile_all) -> list[tuple[Group, Unit]]:
    """Check the launches and compile all device code.

    What breaks a limit, or nvcc refuses, is replaced where there is another form.
    """
    while True:
        checked: str | None = None
        try:
            for checked, source in sources.made.items():
                check_launch(sources.names[checked], source.kernels, arches)
            checked = None
            made = compile_joined({symbol: s.source for symbol, s in sources.made.items()}, compile_all)
            for group, unit in made:
                for checked in group.names:
                    source = sources.made[checked]
                    check_resources(sources.names[checked], source.kernels, unit.resources)
            return made
        except UnitError as error:
            sources.replace(error.unit, error.reason, error)
        except TvmpassError as error:
            if checked is None or not sources.has_replaced(checked, last_line(error)):
                raise


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
