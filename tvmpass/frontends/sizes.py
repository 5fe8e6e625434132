"""Shapes as callers give them, and values that no machine could hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.site import shape_of

MAX_ELEMENTS = 1 << 48
"""A larger tensor fits no address space, and index arithmetic on it may overflow."""


def plain_shapes(shapes: Any) -> dict[str, tuple[Any, ...]] | None:
    """Return shapes by input name as tuples, NumPy's integers as Python's.

    Raises `UsageError` for what is no mapping of names to sequences of dims.
    """
    if shapes is None:
        return None
    if not isinstance(shapes, Mapping):
        raise UsageError(f"shapes: dims by input name are needed, not {type(shapes).__name__}")
    found = {}
    for name, dims in shapes.items():
        if isinstance(dims, str) or not isinstance(dims, Iterable):
            raise UsageError(f"shape of input {name!r}: a sequence of dims is needed, not {dims!r}")
        found[str(name)] = tuple(int(dim) if isinstance(dim, np.integer) else dim for dim in dims)
    return found


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
