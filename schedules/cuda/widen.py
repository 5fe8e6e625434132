"""Add up products of half-precision numbers in single precision."""

from __future__ import annotations

from tvm import tirx

from schedules.cpu.emit import Emitter, LoopAxis, statements, with_statements
from tvmpass.core.kernels import contraction_operands
from tvmpass.core.nest import root_block, stages, substitute

NARROWED = "_narrow"
WIDE = "float32"


def widen_sums(func, anchor_name: str) -> tirx.PrimFunc:
    """Return ``func`` with the sums of its anchor in float32, rounded once at the end."""
    parts = stages(func)
    anchor = next(stage for stage in parts if stage.name == anchor_name)
    dtype = str(anchor.iters[0].var.ty.dtype)
    narrow = anchor.store.buffer
    wide = tirx.decl_buffer(list(narrow.shape), WIDE, narrow.name + "_wide")
    axes = [LoopAxis(iv.var.name.removeprefix("v_"), iv.dom.extent, dtype) for iv in anchor.iters]
    names = {iv.var: axis.name for iv, axis in zip(anchor.iters, axes)}
    reduced = {names[iv.var] for iv in anchor.reduce}

    def place(bound) -> dict:
        return {iv.var: bound[names[iv.var]] for iv in anchor.iters}

    def update(bound):
        mapping = place(bound)
        at = [substitute(index, mapping) for index in anchor.store.indices]
        a, b = (substitute(load, mapping).astype(WIDE) for load in contraction_operands(anchor))
        return tirx.BufferStore(wide, tirx.BufferLoad(wide, at) + a * b, at)

    def start(bound):
        at = [substitute(index, place(bound)) for index in anchor.store.indices]
        return tirx.BufferStore(wide, tirx.const(0, WIDE), at)

    outputs = [LoopAxis(f"i{position}", dim, dtype) for position, dim in enumerate(narrow.shape)]

    def rounded(bound):
        at = [bound[axis.name] for axis in outputs]
        return tirx.BufferStore(narrow, tirx.BufferLoad(wide, at).astype(str(narrow.dtype)), at)

    emitter = Emitter([], dtype)
    position = parts.index(anchor)
    made = statements(func)
    made[position : position + 1] = [
        emitter.block(anchor_name, axes, update, start, reduced),
        emitter.block(anchor_name + NARROWED, outputs, rounded),
    ]
    return with_statements(func, made, [wide, *root_block(func).alloc_buffers])
