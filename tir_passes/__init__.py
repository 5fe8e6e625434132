"""Scheduling steps on TIR, one rule per file.

A step checks one kernel as scheduled so far and changes its schedule; steps in
a row with their options are a recipe (`tir_passes.recipes`), and every step is
also a TVM pass: ``Sequential([TileMatmul(m=6, n=64)])``.
"""

from .decompose_reduction import DecomposeReduction
from .inline_epilogue import InlineEpilogue
from .inline_neighbours import InlineNeighbours
from .inline_padding import InlinePadding
from .inline_producers import InlineProducers
from .parallelize_outer import ParallelizeOuter
from .pipeline_loads import PipelineLoads
from .skip_padding import SkipPadding
from .split_k import SplitK
from .stage_padding import StagePadding
from .stage_shared import StageShared
from .tensorize_wmma import TensorizeWmma
from .tile_blocks import TileBlocks
from .tile_conv import TileConv
from .tile_elementwise import TileElementwise
from .tile_matmul import TileMatmul
from .tile_reduce import TileReduce
from .tile_results import TileResults
from .tile_row_threads import TileRowThreads
from .tile_rows import TileRows
from .tile_transpose import TileTranspose
from .tile_warps import TileWarps
from .tile_window import TileWindow
from .unroll_inner import UnrollInner
from .unroll_lanes import UnrollLanes
from .unroll_registers import UnrollRegisters
from .unroll_rows import UnrollRows
from .vectorize_inner import VectorizeInner
from .vectorize_lanes import VectorizeLanes
from .vectorize_loads import VectorizeLoads
from .vectorize_math import VectorizeMath
from .widen_sums import WidenSums

RULES = (
    InlineNeighbours,
    InlinePadding,
    SkipPadding,
    TileMatmul,
    TileConv,
    TileWindow,
    TileReduce,
    TileRows,
    TileElementwise,
    StagePadding,
    ParallelizeOuter,
    VectorizeInner,
    UnrollInner,
    UnrollRows,
    DecomposeReduction,
    VectorizeMath,
    InlineEpilogue,
    SplitK,
    TileBlocks,
    TileWarps,
    StageShared,
    VectorizeLoads,
    PipelineLoads,
    TensorizeWmma,
    UnrollRegisters,
    InlineProducers,
    TileResults,
    TileRowThreads,
    TileTranspose,
    VectorizeLanes,
    UnrollLanes,
    WidenSums,
)
