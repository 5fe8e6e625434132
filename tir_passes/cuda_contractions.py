"""Recipes for products on CUDA devices: matmul, convolution, depthwise convolution."""

from __future__ import annotations

import tvm

from schedules.cuda.choices import block_tiles, known, other_depths, typical_sms, warp_tiles
from schedules.cuda.contraction import Contraction, read_contraction
from schedules.cuda.panels import prefers_k_last
from schedules.cuda.vector_width import VECTOR_BYTES, itemsize
from schedules.cuda.wmma import DTYPES
from tvmpass.core.cuda_arch import WARP, CudaArch, smallest, target_arches
from tvmpass.core.kernels import Kernel
from tvmpass.core.nest import as_int, stages
from tvmpass.core.options import Options

from .decompose_reduction import DecomposeReduction
from .inline_epilogue import InlineEpilogue
from .inline_producers import InlineProducers
from .pipeline_loads import PipelineLoads
from .split_k import SplitK
from .stage_shared import StageShared
from .step import Step
from .tensorize_wmma import TensorizeWmma
from .tile_blocks import TileBlocks
from .tile_results import TileResults
from .tile_row_threads import TileRowThreads
from .tile_warps import TileWarps
from .unroll_lanes import UnrollLanes
from .unroll_registers import UnrollRegisters
from .vectorize_lanes import VectorizeLanes
from .vectorize_loads import VectorizeLoads
from .widen_sums import WidenSums

PIPELINE_STAGES = 3
_BFLOAT16_FROM = 80
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
    if kernel.kind == "depthwise":
        made += _by_result(product, options)
    elif _is_vector(product):
        made += _by_row(product, arch, options)
    if options.tensorize != "off" and _fits_tensor_cores(product, arch):
        made += _on_tensor_cores(product, arch, options)[:_TENSOR_CORES]
    made += _on_plain_units(product, arch, options)[:_PLAIN]
    if kernel.kind == "conv":
        made += _by_result(product, options)[:1]
    return made


def _is_vector(product: Contraction) -> bool:
    """Is it the product of a matrix and a vector, which reads each element once?"""
    return 1 in (as_int(product.m.size), as_int(product.n.size))


def _by_result(product: Contraction, options: Options) -> list[tuple[Step, ...]]:
    """Return recipes with one thread for a few neighbouring results, operands read where they are."""
    widest = _lanes(product)
    pairs = ((widest, 128), (widest, 256), (max(1, widest // 2), 128), (1, 128))
    tiles = (TileResults(threads=threads, lanes=lanes) for lanes, threads in dict.fromkeys(pairs))
    return [_shared_rows(product, tile, options) for tile in tiles]


def _by_row(product: Contraction, arch: CudaArch, options: Options) -> list[tuple[Step, ...]]:
    """Return recipes in which several threads share the sum of each result."""
    widest = _lanes(product)
    depth, results = known(product.k.size), known(product.m.size) * known(product.n.size)
    matrix = "lhs" if as_int(product.n.size) == 1 else "rhs"
    if prefers_k_last(product, matrix):
        threads = min(WARP, _power_up_to(max(1, depth // widest)))
        shares = [(threads, max(1, 128 // threads)), (threads, max(1, 256 // threads)), (128, 1)]
        tiles = [TileRowThreads(threads=t, rows=r, lanes=widest, keep=False) for t, r in shares]
    else:
        # Few results: more threads along k, so that all of the device takes part.
        groups = known(product.batch.size) * results // widest
        rows = min(32, max(8, _power_up_to(max(1, groups // typical_sms(arch)))))
        threads = min(256 // rows, _power_up_to(max(1, depth // 4)))
        shares = [(threads, max(rows, 64 // threads)), (8, 32), (32, 8)]
        tiles = [TileRowThreads(threads=t, rows=r, lanes=widest, across=True, keep=False) for t, r in shares]
    return [_shared_rows(product, tile, options) for tile in dict.fromkeys(tiles)]


def _shared_rows(product: Contraction, tile: Step, options: Options) -> tuple[Step, ...]:
    widen = (WidenSums(),) if str(product.anchor.store.buffer.dtype) != product.accumulator else ()
    unroll = () if options.unroll == "off" else (UnrollLanes(),)
    return (*widen, InlineProducers(), tile, VectorizeLanes(), *unroll)


def _lanes(product: Contraction) -> int:
    """Return how many elements of the operands fit in the widest load."""
    item = max(itemsize(str(load.source.dtype)) for load in (product.lhs, product.rhs))
    return max(1, VECTOR_BYTES // item)


def _power_up_to(number: int) -> int:
    return 1 << (number.bit_length() - 1)


def _fits_tensor_cores(product: Contraction, arch: CudaArch) -> bool:
    dtypes = {str(load.source.dtype) for load in (product.lhs, product.rhs)}
    if len(dtypes) != 1 or not dtypes <= set(DTYPES) or product.accumulator != "float32":
        return False
    return arch.capability >= _BFLOAT16_FROM or dtypes != {"bfloat16"}


def _on_tensor_cores(product: Contraction, arch: CudaArch, options: Options) -> list[tuple[Step, ...]]:
    made = []
    for choice in _with_depths(product, arch, warp_tiles(product, arch, _depth(arch, options))):
        tile, warps = choice.tile, choice.warps
        made.append(
            (
                InlineEpilogue(),
                *_split(choice.parts),
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
    for choice in _with_depths(product, arch, block_tiles(product, arch, _depth(arch, options))):
        tile, thread = choice.tile, choice.thread
        made.append(
            (
                InlineEpilogue(),
                *_split(choice.parts),
                TileBlocks(m=tile.m, n=tile.n, k=tile.k, tm=thread.m, tn=thread.n, lanes=thread.lanes),
                StageShared(),
                VectorizeLoads(),
                *_pipeline(choice.stages, arch),
                DecomposeReduction(),
                *_unroll(options),
            )
        )
    return made


def _with_depths(product: Contraction, arch: CudaArch, choices: list) -> list:
    """Return the choices, the best one with other depths of its pipeline after the second."""
    if not choices or not arch.async_copy:
        return choices
    return [*choices[:2], *other_depths(product, arch, choices[0]), *choices[2:]]


def _depth(arch: CudaArch, options: Options) -> int:
    """Return the most stages to pipeline in, 1 for none."""
    if options.pipeline == "off":
        return 1
    return PIPELINE_STAGES if arch.async_copy else 2


def _pipeline(stages: int, arch: CudaArch) -> tuple[Step, ...]:
    return (PipelineLoads(stages=stages, asynchronous=arch.async_copy),) if stages > 1 else ()


def _split(parts: int) -> tuple[Step, ...]:
    return (SplitK(parts=parts),) if parts > 1 else ()


def _unroll(options: Options) -> tuple[Step, ...]:
    return () if options.unroll == "off" else (UnrollRegisters(),)
