"""How many neighbouring elements a block may read and write as one vector."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import as_int, loads, substitute, variables

from .contraction import flat_offset

VECTOR_BYTES = 16
"""The widest load and store of one thread, and the widest asynchronous copy."""

_FIRST_STEPS = (1, 2)
"""Step numbers to try in place of a variable; 0 is the easiest and always fits."""

_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def vector_width(block, var, extent: int, widest: int) -> int:
    """Return the widest vector along iterator ``var`` of a block: a power of two, at least 1.

    Every access has to be contiguous and aligned there (or not move at all), and
    every condition the same for all elements of a vector.  ``extent`` is the
    extent of ``var``; a vector never crosses a multiple of its width.
    """
    width = widest
    while width > 1 and (extent % width or not _fits(block, var, extent, width)):
        width //= 2
    return width


def itemsize(dtype: str) -> int:
    """Return the bytes of one element."""
    kind = tvm_ffi.dtype(dtype)
    return max(1, kind.bits * kind.lanes // 8)


def _fits(block, var, extent: int, width: int) -> bool:
    analyzer = tvm.sym.Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    dtype = var.ty.dtype
    zero = tirx.const(0, dtype)
    group, lane = tirx.Var("group", dtype), tirx.Var("lane", dtype)
    analyzer.bind(group, tvm.ir.Range(zero, tirx.const(extent // width, dtype)))
    analyzer.bind(lane, tvm.ir.Range(zero, tirx.const(width, dtype)))
    start, there = {var: group * width}, {var: group * width + lane}

    def walks(offset) -> bool:
        first = analyzer.simplify(substitute(offset, start))
        moved = analyzer.simplify(substitute(offset, there))
        if lane not in variables(moved):
            return True
        aligned = as_int(analyzer.simplify(tirx.floormod(first, width))) == 0
        return aligned and analyzer.can_prove_equal(moved - first, lane)

    store = block.body
    places = [tirx.BufferLoad(store.buffer, store.indices), *loads(store.value)]
    # TVM's CUDA printer has vectors of 16 bits per truth value.
    if any(str(place.ty.dtype) == "bool" for place in places):
        return False
    offsets = [flat_offset(place) for place in places]
    if not all(map(walks, offsets)):
        return False
    # A pipeline puts numbers for the step in its first copies: what TVM simplifies to
    # neighbours for a variable, it need not for a number, and prints what no compiler takes.
    others = [iv.var for iv in block.iter_vars if not iv.var.same_as(var) and as_int(iv.dom.extent) != 1]
    for step in _FIRST_STEPS:
        fixed = {other: tirx.const(step, other.ty.dtype) for other in others}
        if not all(walks(substitute(offset, fixed)) for offset in offsets):
            return False
    return all(
        lane not in variables(analyzer.simplify(substitute(condition, there)))
        for condition in _conditions(store.value)
    )


def _conditions(value) -> list:
    """Return the comparisons of numbers that do not depend on tensor elements."""
    found: list = []
    kinds = [(getattr(tvm.ir.prim.expr, name), found.append) for name in _COMPARISONS]
    tvm_ffi.structural_walk(value, kinds, order="post")
    return [node for node in found if not loads(node)]
