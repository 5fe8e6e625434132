"""Where kernels of the cost model's records are timed: a CUDA device, or the simulated one.

Both get scheduled functions and give samples; what is done before and after is
the same for both.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import tirx
from tvm.support import cc

from tvmpass.compile.codegen import Linker, kernel_symbol
from tvmpass.compile.compile_cache import CompileCache
from tvmpass.compile.cuda_build import compile_cuda
from tvmpass.compile.cuda_pack import BLOCK_SYMBOL, CUDA, LIBRARY, Module, embed, write_tree
from tvmpass.compile.cuda_probe import probe
from tvmpass.compile.cuda_toolchain import find_nvcc
from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.cost.cuda_device import CudaDevice
from tvmpass.cost.dataset import SIMULATED
from tvmpass.cost.simulated import SimulatedDevice

from .measure import argument

SLOT_MS = 4
ROUNDS = 7
MAX_US = 30_000.0
MAX_NOISE = 0.25
"""Half the spread between quartiles over the median, above which a time is thrown away."""


class Runner(Protocol):
    """Times kernels; ``device`` and ``facts`` go into the header of the record file."""

    device: str
    facts: dict[str, Any]

    def times(self, kernels: Mapping[str, tirx.PrimFunc], batch: str) -> dict[str, list[float]]:
        """Return samples in µs by kernel; one without a usable time is left out."""
        ...


class SimulatedRunner:
    """Times from the formulae of `SimulatedDevice`; nothing is compiled."""

    device = SIMULATED

    def __init__(self, target: tvm.target.Target):
        base = CudaDevice.of(target)
        self.simulated = SimulatedDevice(base)
        self.facts: dict[str, Any] = {"sms": base.sms, "name": "simulated device"}

    def times(self, kernels: Mapping[str, tirx.PrimFunc], batch: str) -> dict[str, list[float]]:
        return {name: self.simulated.samples_us(function) for name, function in kernels.items()}


class CudaRunner:
    """Times from a real device: kernels built as an artifact's, CUDA events around many calls.

    ``prebuilt`` is a folder of libraries that `Prebuilder` wrote; a batch that is
    not in it is compiled here, or has no times where there is no nvcc.  Raises
    `TvmpassError` where no device answers, or with neither nvcc nor ``prebuilt``.
    """

    device = "cuda"

    def __init__(self, target: tvm.target.Target, prebuilt: Path | None = None):
        found = require_device()
        self.target, self.prebuilt = target, prebuilt
        self.compiles = True
        try:
            find_nvcc()
        except TvmpassError:
            if prebuilt is None:
                raise
            self.compiles = False
        self.on = tvm.cuda(0)
        self.facts: dict[str, Any] = {"sms": int(self.on.multi_processor_count), "name": found.name}
        self.rng = np.random.default_rng(0)
        self.folder = tempfile.TemporaryDirectory(prefix="tvmpass-")

    def times(self, kernels: Mapping[str, tirx.PrimFunc], batch: str) -> dict[str, list[float]]:
        symbols = {name: kernel_symbol(function, self.target) for name, function in kernels.items()}
        path = None if self.prebuilt is None else self.prebuilt / f"{batch}.so"
        if path is not None and path.is_file():
            library = tvm.runtime.load_module(str(path))
        elif self.compiles:
            library = self._build({symbols[name]: function for name, function in kernels.items()}, batch)
        else:
            return {}
        found = {}
        for name, function in kernels.items():
            if library is not None and library.implements_function(symbols[name]):
                samples = self._time(library, symbols[name], function)
                if samples:
                    found[name] = samples
        return found

    def _build(self, functions: Mapping[str, tirx.PrimFunc], batch: str):
        path = build_library(functions, self.target, Path(self.folder.name) / f"{batch}.so")
        return None if path is None else tvm.runtime.load_module(str(path))

    def _time(self, library, symbol: str, function: tirx.PrimFunc) -> list[float]:
        """Return the times per call in µs, none where they are noisy or long."""
        arguments = [argument(p, self.rng, self.on) for p in function.params]
        first = min(library.time_evaluator(symbol, self.on, number=1, repeat=3)(*arguments).results) * 1e6
        if first > MAX_US:
            return []
        timer = library.time_evaluator(symbol, self.on, number=1, repeat=ROUNDS, min_repeat_ms=SLOT_MS)
        for _ in range(2):
            samples = sorted(s * 1e6 for s in timer(*arguments).results)
            quarter = len(samples) // 4
            spread = (samples[-1 - quarter] - samples[quarter]) / 2
            if spread <= MAX_NOISE * samples[len(samples) // 2]:
                return samples
        return []


class Prebuilder:
    """Builds what `CudaRunner` would time, for a device elsewhere; gives no times."""

    device = "none"

    def __init__(self, target: tvm.target.Target, folder: Path):
        self.target, self.folder = target, folder
        self.facts: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def times(self, kernels: Mapping[str, tirx.PrimFunc], batch: str) -> dict[str, list[float]]:
        functions = {kernel_symbol(function, self.target): function for function in kernels.values()}
        build_library(functions, self.target, self.folder / f"{batch}.so")
        return {}


def require_device():
    """Return what `probe` found; `TvmpassError` with one line where no device answers."""
    found = probe()
    if not found.answers:
        raise TvmpassError(f"no CUDA device answers: {found.reason}; --device sim needs none")
    return found


def build_library(functions: Mapping[str, tirx.PrimFunc], target, path: Path) -> Path | None:
    """Compile scheduled kernels, by symbol, into one library; None where none compiles.

    A kernel that does not compile costs only itself: the rest are tried without it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="tvmpass-") as text:
            folder = Path(text)
            named = {symbol: f.with_attr("global_symbol", symbol) for symbol, f in functions.items()}
            names = {symbol: symbol for symbol in functions}
            made = compile_cuda(named, names, target, CompileCache(), folder, lambda symbol, error: None)
            root = Module(LIBRARY, None, list(range(1, len(made.modules) + 1)))
            block = write_tree([root, *(Module(CUDA, module.to_bytes()) for module in made.modules)])
            source = embed(block, BLOCK_SYMBOL, folder)
            Linker(cc.get_cc())(str(path), [*(str(p) for p in made.objects.values()), str(source)])
        return path
    except Exception as error:  # nvcc, TVM and the linker each raise their own
        if len(functions) <= 1:
            print(f"compile: {last_line(error)[:200]}", file=sys.stderr)
            return None
    kept = {s: f for s, f in functions.items() if _compiles(s, f, target)}
    return build_library(kept, target, path) if 0 < len(kept) < len(functions) else None


def _compiles(symbol: str, function: tirx.PrimFunc, target) -> bool:
    with tempfile.TemporaryDirectory(prefix="tvmpass-") as folder:
        return build_library({symbol: function}, target, Path(folder) / "one.so") is not None
