"""Give maximum and minimum of floats one meaning on every target.

TVM's LLVM code computes ``max(a, b)`` as ``a > b ? a : b``, which is ``b`` where either is
NaN; tvmpass's legalisation places the operands by that, so that a NaN goes through.
CUDA's ``max`` drops NaN.  Where kernels are printed as CUDA text, the choice is
therefore spelled out.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx


def spell_out(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered device function with a choice for each float maximum and minimum.

    For the very end: TVM's simplifier must not see the result.
    """
    kinds = [(tirx.Max, lambda e: _chosen(e, tirx.GT)), (tirx.Min, lambda e: _chosen(e, tirx.LT))]
    body = tvm_ffi.structural_map(function.body, kinds, order="post")
    return function if body.same_as(function.body) else function.with_body(body)


def _chosen(expr, compare):
    dtype = str(expr.ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return expr
    names, values = [], []
    for operand in (expr.a, expr.b):
        # Each operand is computed and printed once, however deep the nest.
        simple = isinstance(operand, (tirx.Var, tirx.FloatImm))
        names.append(operand if simple else tirx.Var("operand", dtype))
        values.append(None if simple else operand)
    a, b = names
    made = tirx.Select(compare(a, b), a, b)
    for name, value in zip(reversed(names), reversed(values)):
        if value is not None:
            made = tirx.Let(name, value, made)
    return made
