"""Read any contraction as batched matrix products: which iterator is row, column or depth.

A convolution is the product of its weights with the windows of its input, a
grouped one a batch of such products.  Only the access pattern is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.kernels import contraction_operands
from tvmpass.core.nest import Stage, as_int, extent, substitute, variables


@dataclass(frozen=True)
class Axis:
    """One loop of the product: a variable over ``0 .. size``, an int or a symbolic extent."""

    var: Any
    size: Any


@dataclass(frozen=True)
class Joined:
    """Several axes walked as one, the last fastest; none of them is one step."""

    axes: tuple[Axis, ...]

    @property
    def size(self):
        """Return the number of steps: an int, or an expression where some axis is symbolic."""
        sizes = [as_int(axis.size) for axis in self.axes]
        if None not in sizes:
            return math.prod(sizes)
        whole = self.axes[0].size
        for axis in self.axes[1:]:
            whole = whole * axis.size
        return whole

    def values(self, position) -> dict:
        """Map each axis' variable to its value at ``position`` of the joined axis."""
        mapping = {a.var: tirx.const(0, a.var.ty.dtype) for a in self.axes if as_int(a.size) == 1}
        wide = [axis for axis in self.axes if axis.var not in mapping]
        for axis in reversed(wide[1:]):
            mapping[axis.var] = tirx.floormod(position, axis.size)
            position = tirx.floordiv(position, axis.size)
        if wide:
            mapping[wide[0].var] = position
        return mapping


@dataclass(frozen=True)
class Contraction:
    """``out[batch, m, n] += lhs[batch, m, k] * rhs[batch, k, n]``, read off an anchor.

    ``n`` holds the innermost iterator of the output, unless both operands are
    indexed by it.  ``origin`` gives the anchor's spatial variables that are split
    (the channel of a grouped convolution) in terms of the axes' variables.
    """

    anchor: Stage
    batch: Joined
    m: Joined
    n: Joined
    k: Joined
    lhs: Any
    rhs: Any
    origin: dict

    @property
    def dtype(self) -> str:
        """Return the dtype of loop variables."""
        return str(self.anchor.iters[0].var.ty.dtype)

    @property
    def accumulator(self) -> str:
        """Return the dtype of the sums: float32 for products of half-precision numbers."""
        dtype = str(self.anchor.store.buffer.dtype)
        return "float32" if dtype in ("float16", "bfloat16") else dtype

    def at(self, b, m, n, k=None) -> dict:
        """Map the anchor's variables to expressions at one point of the product."""
        mapping = {**self.batch.values(b), **self.m.values(m), **self.n.values(n)}
        mapping.update({} if k is None else self.k.values(k))
        mapping.update({var: substitute(value, mapping) for var, value in self.origin.items()})
        return mapping


def read_contraction(anchor: Stage) -> Contraction | None:
    """Return the anchor as batched matrix products, None where it is something else."""
    operands = None if anchor.store is None else contraction_operands(anchor)
    if operands is None or not _starts_at_zero(anchor):
        return None
    origin, axes = _split_groups(anchor, operands)
    first, second = (_substituted(load, origin, axes) for load in operands)
    in_first, in_second = used_variables(first), used_variables(second)
    wide = [axis for axis in axes if as_int(axis.size) != 1]
    inner = wide[-1].var if wide else None
    if inner in in_first and inner not in in_second:
        first, second, in_first, in_second = second, first, in_second, in_first
    batch, m, n = [], [], []
    for axis in axes:
        if axis.var in in_first and axis.var not in in_second:
            m.append(axis)
        elif axis.var in in_second and axis.var not in in_first:
            n.append(axis)
        else:
            batch.append(axis)
    depth = _ordered_depth([Axis(iv.var, iv.dom.extent) for iv in anchor.reduce], first, second)
    return Contraction(
        anchor, Joined(tuple(batch)), Joined(tuple(m)), Joined(tuple(n)), Joined(depth), first, second, origin
    )


def _starts_at_zero(anchor: Stage) -> bool:
    init = anchor.block.init
    if not isinstance(init, tirx.BufferStore):
        return False
    value = init.value
    while isinstance(value, tvm.ir.prim.expr.Cast):
        value = value.value
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and float(value.value) == 0.0


def used_variables(load) -> set:
    """Return the scalar variables in a load's indices."""
    return set().union(*map(variables, load.indices)) if len(load.indices) else set()


def flat_offset(load):
    """Return a load's position in its tensor, counted in elements."""
    offset = tirx.const(0, "int32")
    for index, dim in zip(load.indices, load.source.shape):
        offset = offset * dim + index
    return offset


def _ordered_depth(axes: list[Axis], first, second) -> tuple[Axis, ...]:
    """Put the reduction axis along which most operands are contiguous last."""

    def contiguous(axis: Axis) -> int:
        return sum(stride_along(load, axis.var) == 1 for load in (first, second))

    wide = [axis for axis in axes if as_int(axis.size) != 1]
    best = max(reversed(wide), key=contiguous, default=None)
    if best is None or contiguous(best) == contiguous(wide[-1]):
        return tuple(axes)
    return (*(axis for axis in axes if axis is not best), best)


def stride_along(load, var) -> int | None:
    """Return by how many elements a load moves per step of ``var``, None where that varies."""
    offset = flat_offset(load)
    moved = substitute(offset, {var: var + tirx.const(1, var.ty.dtype)})
    return as_int(tvm.sym.Analyzer().simplify(moved - offset))


def _split_groups(anchor: Stage, operands) -> tuple[dict, list[Axis]]:
    """Split an output channel of which one operand only knows the group.

    The input channel of a grouped convolution is found by dividing the output
    channel; as (group, channel of the group) both are plain axes.
    """
    origin, axes = {}, []
    used = [used_variables(load) for load in operands]
    for iv in anchor.spatial:
        width = None
        if extent(iv) is not None and all(iv.var in names for names in used):
            width = next((w for w in (_group_width(load, iv.var) for load in operands) if w), None)
        if width is None or extent(iv) % width:
            axes.append(Axis(iv.var, iv.dom.extent))
            continue
        dtype = iv.var.ty.dtype
        group, channel = tirx.Var(iv.var.name + "_g", dtype), tirx.Var(iv.var.name + "_c", dtype)
        origin[iv.var] = group * width + channel
        axes.append(Axis(group, tirx.const(extent(iv) // width, dtype)))
        axes.append(Axis(channel, tirx.const(width, dtype)))
    return origin, axes


def _substituted(load, origin: dict, axes: list[Axis]):
    """Return a load in terms of split axes, divisions by the width of a group gone."""
    if not origin:
        return load
    analyzer = tvm.sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, tvm.ir.Range(tirx.const(0, axis.var.ty.dtype), axis.size))
    return tirx.BufferLoad(load.source, [analyzer.simplify(substitute(i, origin)) for i in load.indices])


def _group_width(load, var) -> int | None:
    """Return the constant by which ``var`` is divided wherever ``load`` uses it, else None."""
    divisions: list = []
    for index in load.indices:
        tvm_ffi.structural_walk(index, [(tvm.ir.prim.expr.FloorDiv, divisions.append)], order="post")
    widths = {as_int(node.b) for node in divisions if node.a.same_as(var)}
    mentions: list = []
    for index in load.indices:
        tvm_ffi.structural_walk(
            index, [(tirx.Var, lambda v: mentions.append(v) if v.same_as(var) else None)], order="post"
        )
    direct = len(mentions) - sum(node.a.same_as(var) for node in divisions)
    return widths.pop() if len(widths) == 1 and direct == 0 and None not in widths else None
