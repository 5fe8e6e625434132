"""Recipes for products on CUDA devices: matmul, convolution, depthwise convolution."""

from __future__ import annotations

import tvm

from schedules.cuda.choices import block_tiles, warp_tiles
from schedules.cuda.contraction import Contraction, read_contraction
from schedules.cuda.wmma import DTYPES
from tvmpass.core.cuda_arch import CudaArch, smallest, target_arches
from tvmpass.core.kernels import Kernel
from tvmpass.core.nest import stages
from tvmpass.core.options import Options

from .decompose_reduction import DecomposeReduction
from .inline_epilogue import InlineEpilogue
from .pipeline_loads import PipelineLoads
from .stage_shared import StageShared
from .step import Step
from .tensorize_wmma import TensorizeWmma
from .tile_blocks import TileBlocks
from .tile_warps import TileWarps
from .unroll_registers import UnrollRegisters
from .vectorize_loads import VectorizeLoads

PIPELINE_STAGES = 3
_TENSOR_CORES, _PLAIN = 8, 8
"""How many tiles of each kind are listed."""


def contraction_steps(kernel: Kernel, target: tvm.target.Target, options: Options) -> list[tuple[Step, ...]]:
    """Return the steps of each recipe for a product, the library's choice first.

    Honours ``tile``, ``pipeline``, ``unroll`` and ``tensorize`` of the options.
    """
    anchor = next((part for part in stages(kernel.func) or () if part.name == kernel.anchor), None)
    product = None if anchor is None else read_contraction(anchor)
    if product is None or options.tile == "off":
        return []
    arch = smallest(target_arches(target))
    made: list[tuple[Step, ...]] = []
    if options.tensorize != "off" and _is_half(product):
        made += _on_tensor_cores(product, arch, options)[:_TENSOR_CORES]
    made += _on_plain_units(product, arch, options)[:_PLAIN]
    return made


def _is_half(product: Contraction) -> bool:
    dtypes = {str(load.source.dtype) for load in (product.lhs, product.rhs)}
    return len(dtypes) == 1 and dtypes <= set(DTYPES) and product.accumulator == "float32"


def _on_tensor_cores(product: Contraction, arch: CudaArch, options: Options) -> list[tuple[Step, ...]]:
    made = []
    for choice in warp_tiles(product, arch, _depth(arch, options)):
        tile, warps = choice.tile, choice.warps
        made.append(
            (
                InlineEpilogue(),
                TileWarps(m=tile.m, n=tile.n, k=tile.k, wm=warps.m, wn=warps.n),
                StageShared(),
                VectorizeLoads(),
                *_pipeline(choice.stages, arch),
                TensorizeWmma(),
                *_unroll(options),
            )
        )
    return made


def _on_plain_units(product: Contraction, arch: CudaArch, options: Options) -> list[tuple[Step, ...]]:
    made = []
    for choice in block_tiles(product, arch, _depth(arch, options)):
        tile, thread = choice.tile, choice.thread
        made.append(
            (
                InlineEpilogue(),
                TileBlocks(m=tile.m, n=tile.n, k=tile.k, tm=thread.m, tn=thread.n, lanes=thread.lanes),
                StageShared(),
                VectorizeLoads(),
                *_pipeline(choice.stages, arch),
                DecomposeReduction(),
                *_unroll(options),
            )
        )
    return made


def _depth(arch: CudaArch, options: Options) -> int:
    """Return the most stages to pipeline in, 1 for none."""
    if options.pipeline == "off":
        return 1
    return PIPELINE_STAGES if arch.async_copy else 2


def _pipeline(stages: int, arch: CudaArch) -> tuple[Step, ...]:
    return (PipelineLoads(stages=stages, asynchronous=arch.async_copy),) if stages > 1 else ()


def _unroll(options: Options) -> tuple[Step, ...]:
    return () if options.unroll == "off" else (UnrollRegisters(),)
