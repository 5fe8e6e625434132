"""Recipes for CUDA devices, per kernel kind."""

from __future__ import annotations

import tvm

from tvmpass.core.kernels import Kernel
from tvmpass.core.options import Options

from .cuda_fallback import cuda_fallback
from .step import Step

__all__ = ["CUDA_RECIPE_VERSION", "cuda_fallback", "cuda_steps"]

CUDA_RECIPE_VERSION: dict[str, int] = {}
"""The version of each kernel kind's recipes for CUDA targets."""


def cuda_steps(kernel: Kernel, target: tvm.target.Target, options: Options) -> list[tuple[Step, ...]]:
    """Return the steps of each recipe for ``kernel``, the library's choice first."""
    return []
