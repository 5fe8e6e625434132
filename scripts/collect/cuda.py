"""Collect records of CUDA kernels, timed by whatever runner is given."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx

from tir_passes.cuda_recipes import CUDA_RECIPE_VERSION
from tvmpass.core.options import Options
from tvmpass.cost.cuda_features import CUDA_INDEX

from .measure import Collector, Measured
from .runner import Runner


class CudaCollector(Collector):
    """Cuts and schedules graphs as `Collector` does; a `Runner` times the kernels."""

    extra_recipes = 1.0
    scale = 8.0
    written = CUDA_INDEX["written"]

    def __init__(self, target, options: Options, runner: Runner):
        super().__init__(target, options)
        self.runner = runner

    def forms(self, function: tirx.PrimFunc) -> Iterator[Measured]:
        """Yield a kernel as the library schedules it, and with other recipes."""
        yield from self.recipes_of(function)

    def measure(self, kernels: dict[str, Measured]) -> None:
        """Time what has no time yet, and write it."""
        fresh = {n: k for n, k in kernels.items() if n not in self.times and not self.too_large(k)}
        try:
            samples = self.runner.times({n: k.function for n, k in fresh.items()}, self.name)
        except Exception as error:  # one batch that cannot be timed must not lose the others
            self.fail("run", error)
            return
        for name, kernel in fresh.items():
            kernel.samples = samples.get(name, [])
            if not kernel.samples:
                self.counts["without a time"] += 1
                continue
            self.times[name] = kernel.median
            self.times.setdefault(kernel.kernel_key, kernel.median)
            self.write_kernel(kernel)

    def recipe_version(self, kind: str) -> int:
        return CUDA_RECIPE_VERSION.get(kind, 0)
