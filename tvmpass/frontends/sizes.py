"""Refuse values that no machine could hold."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from tvmpass.core.errors import TvmpassError
from tvmpass.core.site import shape_of

MAX_ELEMENTS = 1 << 48
"""A larger tensor fits no address space, and index arithmetic on it may overflow."""


def check_sizes(mod: tvm.IRModule, where: str) -> None:
    """Raise `TvmpassError` for the first value that no machine could hold."""
    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            _check_function(function, where)


def _check_function(function: relax.Function, where: str) -> None:
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else []
    bound = [binding.var for block in blocks for binding in block.bindings]
    for var in (*function.params, *bound):
        if not isinstance(var.ty, relax.TensorType):
            continue
        dims = [dim for dim in shape_of(var) or () if isinstance(dim, int)]
        if 0 not in dims and math.prod(dims) > MAX_ELEMENTS:
            shown = "x".join(str(dim) for dim in dims)
            raise TvmpassError(
                f"{where}: value {var.name!r} has {shown} elements, more than any memory holds"
            )
