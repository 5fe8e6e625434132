"""Weights laid out in the order in which a register tile reads them.

A weight ``[K, N]`` or ``[kh, kw, K, N]`` becomes ``[ceil(N / lanes), (kh, kw,) K, lanes]``:
one vector of output channels after another, each contiguous along the
reduction.  Where ``lanes`` does not divide N the last vector starts early and
repeats channels of the one before, as the tiles do; so no tile reads past the
end, and the layout does not depend on the tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvmpass.core.kernels import Kernel, contraction_operands
from tvmpass.core.nest import as_int, extent, loads, regions, stages, variables

from .emit import vector_lanes
from .machine import vector_lanes_of

MIN_ROW_BYTES = 1536
MIN_DEPTH = 256
MIN_BYTES = 3 << 19
"""Weights are packed from these sizes on: a long, wide weight read column block by column
block touches another page at every step of the reduction and few sets of the caches.
Measured on Zen 5: 768 x 3072 gains 2.9 times, 4608 x 512 1.7, 384 x 1536 1.1; 512 x 512,
256 x 1024 and 120 x 6625 gain nothing or lose."""


@dataclass(frozen=True)
class Packing:
    """How one weight parameter of a kernel is packed.

    ``parameter`` is its index among the function's parameters, ``block`` the
    block that reads it, ``size`` the number of output channels.
    """

    parameter: int
    block: str
    size: int
    lanes: int

    @property
    def vectors(self) -> int:
        return -(-self.size // self.lanes)

    def pack_array(self, array: np.ndarray) -> np.ndarray:
        """Return a weight [..., N] as [vectors, ..., lanes], same dtype, contiguous."""
        starts = np.minimum(np.arange(self.vectors) * self.lanes, self.size - self.lanes)
        columns = starts[:, None] + np.arange(self.lanes)
        return np.ascontiguousarray(np.moveaxis(array[..., columns], -2, 0))

    def pack_function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return ``func`` with the weight parameter packed and read accordingly."""
        old = func.params[self.parameter]
        rows = list(old.shape)[:-1]
        dtype = str(rows[0].ty.dtype)
        shape = [tirx.const(self.vectors, dtype), *rows, tirx.const(self.lanes, dtype)]
        new = tirx.decl_buffer(shape, old.dtype, old.name)

        def read(node):
            if not node.source.same_as(old):
                return node
            *outer, n = node.indices
            vector = tirx.min(tirx.floordiv(n, self.lanes), self.vectors - 1)
            start = vector * self.lanes
            if self.size % self.lanes:
                start = tirx.min(start, self.size - self.lanes)
            return tirx.BufferLoad(new, [vector, *outer, n - start])

        def block(node):
            if node.name_hint != self.block:
                return node
            store = tvm_ffi.structural_map(node.body, [(tvm.ir.TensorLoad, read)], order="post")
            own = store.buffer
            reads = regions((x.source, x.indices) for x in loads(store.value) if not x.source.same_as(own))
            return s_tir.SBlock(
                node.iter_vars,
                reads,
                node.writes,
                node.name_hint,
                store,
                node.init,
                annotations=node.annotations,
            )

        body = tvm_ffi.structural_map(func.body, [(s_tir.SBlock, block)], order="post")
        params = [new if p.same_as(old) else p for p in func.params]
        made = tirx.PrimFunc(params, body, func.ret_type)
        return made.with_attrs(func.attrs) if func.attrs else made


def packing(kernel: Kernel, target: tvm.target.Target) -> Packing | None:
    """Return how to pack the kernel's weight, None where there is none or it does not pay.

    A weight here is a whole parameter, read by the anchor alone, whose last dimension is
    the output channel and which no other output axis indexes.
    """
    if kernel.kind not in ("matmul", "conv") or target.kind.name != "llvm":
        return None
    parts = stages(kernel.func)
    anchor = next(part for part in parts if part.name == kernel.anchor)
    size = extent(anchor.spatial[-1])
    weight = _weight_operand(anchor, size)
    if weight is None:
        return None
    index = next((i for i, p in enumerate(kernel.func.params) if p.same_as(weight.source)), None)
    readers = [p for p in parts if any(x.source.same_as(weight.source) for x in loads(p.block.body))]
    if index is None or readers != [anchor] or any(as_int(d) is None for d in weight.source.shape):
        return None
    depth = math.prod(extent(iv) or 1 for iv in anchor.reduce)
    lanes = vector_lanes(size, vector_lanes_of(target, kernel.dtypes))
    row_bytes = size * tvm.DataType(str(weight.source.dtype)).bits // 8
    if lanes < 4 or row_bytes < MIN_ROW_BYTES or depth < MIN_DEPTH or depth * row_bytes < MIN_BYTES:
        return None
    return Packing(index, kernel.anchor, size, lanes)


def _weight_operand(anchor, size):
    """Return the load indexed by reduction iterators and, last, the output channel."""
    operands = contraction_operands(anchor)
    if operands is None or size is None:
        return None
    channel = anchor.spatial[-1].var
    spatial = {iv.var for iv in anchor.spatial}
    for load in operands:
        *outer, last = load.indices
        plain = isinstance(last, tirx.Var) and last.same_as(channel)
        whole = plain and bool(outer) and as_int(load.source.shape[-1]) == size
        if whole and not any(variables(i) & spatial for i in outer):
            return load
    return None
