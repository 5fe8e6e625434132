"""Recipes for products on CUDA devices: matmul, convolution, depthwise convolution."""

from __future__ import annotations

import tvm

from tvmpass.core.kernels import Kernel
from tvmpass.core.options import Options

from .decompose_reduction import DecomposeReduction
from .inline_epilogue import InlineEpilogue
from .pipeline_loads import PipelineLoads
from .stage_shared import StageShared
from .step import Step
from .tile_blocks import TileBlocks
from .unroll_registers import UnrollRegisters
from .vectorize_loads import VectorizeLoads


def contraction_steps(kernel: Kernel, target: tvm.target.Target, options: Options) -> list[tuple[Step, ...]]:
    """Return the steps of each recipe for a product, the library's choice first."""
    made: list[tuple[Step, ...]] = []
    for m, n, k, tm, tn in ((64, 64, 16, 4, 4), (128, 128, 16, 8, 8), (32, 32, 16, 4, 4)):
        steps: list[Step] = [InlineEpilogue(), TileBlocks(m=m, n=n, k=k, tm=tm, tn=tn), StageShared()]
        steps.append(VectorizeLoads())
        if options.pipeline != "off":
            steps.append(PipelineLoads(stages=3))
        steps.append(DecomposeReduction())
        if options.unroll != "off":
            steps.append(UnrollRegisters())
        made.append(tuple(steps))
    return made
