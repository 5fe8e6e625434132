"""Split the reduction of a product into parts that are computed side by side."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from schedules.cpu.emit import Emitter, LoopAxis, statements, with_statements
from tvmpass.core.kernels import contraction_operands
from tvmpass.core.nest import Stage, extent, root_block, stages, substitute

from .frame import sole_epilogue

JOINED = "_joined"


def splittable(anchor: Stage, parts: int):
    """Return the longest reduction iterator that ``parts`` divide evenly, None where there is none."""
    fitting = [iv for iv in anchor.reduce if extent(iv) is not None and extent(iv) % parts == 0]
    return max(fitting, key=lambda iv: extent(iv) or 0, default=None)


def split_k(func, anchor_name: str, parts: int) -> tirx.PrimFunc:
    """Return ``func`` with its anchor computing ``parts`` partial products, summed by what follows.

    The partial products lie in memory, in the dtype of the sums.  The epilogue
    adds them up in order; where the anchor has none, a block of its own does.
    """
    found = stages(func)
    anchor = next(stage for stage in found if stage.name == anchor_name)
    epilogue = sole_epilogue(func, found, anchor)
    old, dtype = anchor.store.buffer, str(anchor.iters[0].var.ty.dtype)
    wide = "float32" if str(old.dtype) in ("float16", "bfloat16") else str(old.dtype)
    partial = tirx.decl_buffer([tirx.const(parts, dtype), *old.shape], wide, old.name + "_parts")
    made = statements(func)
    position = found.index(anchor)
    after = _summed(epilogue, old, partial, parts) if epilogue else _joined(anchor, partial, parts, dtype)
    made[position : position + (2 if epilogue else 1)] = [_parts(anchor, partial, parts, dtype), after]
    kept = [b for b in root_block(func).alloc_buffers if epilogue is None or not b.same_as(old)]
    return with_statements(func, made, [partial, *kept])


def _parts(anchor: Stage, partial, parts: int, dtype: str):
    """Return the nest that computes all partial products."""
    split = splittable(anchor, parts)
    names = {iv.var: f"i{position}" for position, iv in enumerate(anchor.iters)}
    length = extent(split) // parts
    axes = [LoopAxis("part", parts, dtype)]
    for iv in anchor.iters:
        axes.append(LoopAxis(names[iv.var], length if iv.same_as(split) else iv.dom.extent, dtype))

    def place(bound) -> dict:
        mapping = {iv.var: bound[names[iv.var]] for iv in anchor.iters}
        mapping[split.var] = bound["part"] * length + bound[names[split.var]]
        return mapping

    def at(mapping, bound) -> list:
        return [bound["part"], *(substitute(index, mapping) for index in anchor.store.indices)]

    def update(bound):
        mapping = place(bound)
        indices = at(mapping, bound)
        a, b = (substitute(x, mapping).astype(str(partial.dtype)) for x in contraction_operands(anchor))
        return tirx.BufferStore(partial, tirx.BufferLoad(partial, indices) + a * b, indices)

    def start(bound):
        return tirx.BufferStore(partial, tirx.const(0, str(partial.dtype)), at(place(bound), bound))

    reduced = {names[iv.var] for iv in anchor.reduce}
    return Emitter([], dtype).block(anchor.name, axes, update, start, reduced)


def _total(partial, indices, parts: int, dtype: str):
    """Return the sum of the partial products at one place."""
    loads = [tirx.BufferLoad(partial, [tirx.const(i, "int32"), *indices]) for i in range(parts)]
    total = loads[0]
    for load in loads[1:]:
        total = total + load
    return total if str(partial.dtype) == dtype else total.astype(dtype)


def _copy(stage_name: str, iters, dtype: str, body):
    """Return a nest over the extents of ``iters``; ``body`` maps their variables to a store."""
    axes = [LoopAxis(f"i{position}", iv.dom.extent, dtype) for position, iv in enumerate(iters)]
    places = lambda bound: {iv.var: bound[axis.name] for iv, axis in zip(iters, axes)}  # noqa: E731
    return Emitter([], dtype).block(stage_name, axes, lambda bound: body(places(bound)))


def _summed(epilogue: Stage, old, partial, parts: int):
    """Return the epilogue with the sum of the parts in place of the product."""
    store = epilogue.store

    def total(load):
        if not load.source.same_as(old):
            return load
        return _total(partial, list(load.indices), parts, str(old.dtype))

    value = tvm_ffi.structural_map(store.value, [(tvm.ir.TensorLoad, total)], order="post")

    def body(mapping):
        indices = [substitute(index, mapping) for index in store.indices]
        return tirx.BufferStore(store.buffer, substitute(value, mapping), indices)

    return _copy(epilogue.name, epilogue.iters, str(epilogue.iters[0].var.ty.dtype), body)


def _joined(anchor: Stage, partial, parts: int, dtype: str):
    """Return the nest that adds the parts up into the anchor's own buffer."""
    store = anchor.store

    def body(mapping):
        indices = [substitute(index, mapping) for index in store.indices]
        return tirx.BufferStore(
            store.buffer, _total(partial, indices, parts, str(store.buffer.dtype)), indices
        )

    return _copy(anchor.name + JOINED, anchor.spatial, dtype, body)
