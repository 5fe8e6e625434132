"""Blocks that tensor cores compute: the work that their intrinsics stand for.

After tensorisation the arithmetic is gone from the TIR; what is left is a call,
and the regions that the block reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import tirx

from .cuda_lanes import conflicts
from .work import item_bytes

_MULTIPLY = frozenset({"tvm_mma_sync", "tvm_bmma_sync", "ptx_mma", "ptx_mma_sp"})
_MOVE = frozenset(
    {"tvm_load_matrix_sync", "tvm_store_matrix_sync", "tvm_fill_fragment", "ptx_ldmatrix"}
    | {"mma_store", "mma_fill"}
)
TENSOR_CALLS = _MULTIPLY | _MOVE
FRAGMENT = 256
"""Results of one product of fragments, which a warp computes at once."""

_ROW_BYTES = 16
"""What one of eight threads reads of a matrix row at a time."""

_RATE = {1: 0.5, 2: 1.0, 4: 2.0, 8: 32.0}
"""Time of a multiply-add by the bytes of its inputs, against that of 16 bits."""


@dataclass(frozen=True)
class TensorWork:
    """What one execution by one warp does; multiply-adds weighted to those of 16-bit inputs."""

    multiply_adds: float = 0.0
    shared_requests: float = 0.0
    shared_passes: float = 0.0
    shared_fewest: float = 0.0


def tensor_call(body) -> str | None:
    """Return the name of the tensor-core call that ``body`` consists of, else None."""
    while body is not None:
        if isinstance(body, tirx.Evaluate):
            if not isinstance(body.value, tvm.ir.Call):
                return None
            name = str(getattr(body.value.op, "name", "")).rsplit(".", 1)[-1]
            return name if name in TENSOR_CALLS else None
        if isinstance(body, tirx.SeqStmt):
            body = body.seq[-1]
        elif isinstance(body, (tirx.AttrStmt, tirx.For)):
            body = body.body
        else:
            return None
    return None


def tensor_work(call: str, block, extent_of: Callable, strides_of: Callable) -> TensorWork:
    """Return the work of ``block``, whose body is the tensor-core ``call``."""
    if call in _MULTIPLY:
        return TensorWork(multiply_adds=_multiply_adds(block, extent_of))
    requests = passes = fewest = 0.0
    for region in (*block.reads, *block.writes):
        if not str(region.source.ty.storage_scope).startswith("shared"):
            continue
        made = _matrix_passes(region, extent_of, strides_of(region.source))
        passes, fewest = passes + made[0], fewest + made[1]
        requests += made[1]
    return TensorWork(0.0, requests, passes, fewest)


def _multiply_adds(block, extent_of: Callable) -> float:
    """Return m*n*k of a product from the sizes m*n, m*k and n*k of its regions."""
    written = block.writes[0].source
    volumes = [_volume(block.writes[0], extent_of)]
    volumes += [_volume(r, extent_of) for r in block.reads if not r.source.same_as(written)]
    if len(volumes) != 3:
        return 0.0
    inputs = next(r.source for r in block.reads if not r.source.same_as(written))
    rate = _RATE.get(int(item_bytes(str(inputs.ty.dtype))), 1.0)
    return math.sqrt(math.prod(volumes)) * rate


def _volume(region, extent_of: Callable) -> float:
    return math.prod(extent_of(r.extent) for r in region.region)


def _matrix_passes(region, extent_of: Callable, strides) -> tuple[float, float]:
    """Return the passes of shared memory for one matrix, and the fewest possible.

    Rows are read in pieces of 16 bytes, eight of them at a time.
    """
    item = item_bytes(str(region.source.ty.dtype))
    extents = [extent_of(r.extent) for r in region.region]
    wide = [i for i, size in enumerate(extents) if size > 1.0]
    size = math.prod(extents) * item
    eighths = max(1.0, size / (8 * _ROW_BYTES))
    if len(wide) < 2:
        return eighths, eighths
    stride = int(strides[wide[-2]] * item)
    passes, fewest = conflicts(np.arange(8) * stride, np.ones(8, dtype=bool), _ROW_BYTES)
    return eighths * passes / max(1, fewest), eighths
