"""Shape, dtype and, where operators tell, the layout of every tensor.

Read by `work` and `memory`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from ..site import FunctionView, op_name, operands, same_shape, shape_of

EXAMPLE_EXTENT = 4
"""The value that a symbolic dim is taken to have where a number is needed."""

_CONTRACTIONS = ("relax.matmul", "relax.einsum")


@dataclass(frozen=True)
class Facts:
    """``shape`` is None where unknown; a dim is an int or a PrimExpr.

    ``layout`` is a string such as ``NHWC``, or None where no operator says.
    """

    shape: tuple[Any, ...] | None
    dtype: str | None
    layout: str | None = None


def find_types(view: FunctionView) -> Mapping[relax.Var, Facts]:
    """Return the facts of every tensor variable; layouts flow from convolutions to their readers."""
    facts: dict[relax.Var, Facts] = {}
    for param in view.function.params:
        if isinstance(param.ty, relax.TensorType):
            facts[param] = Facts(shape_of(param), _dtype(param))
    for var, value in view.bindings.items():
        if isinstance(var.ty, relax.TensorType):
            facts[var] = Facts(shape_of(var), _dtype(var), _layout(var, value, facts))
    return facts


def _dtype(expr) -> str | None:
    return str(expr.ty.dtype) if expr.ty.dtype else None


def _layout(var, value, facts: Mapping[relax.Var, Facts]) -> str | None:
    for name in ("out_layout", "data_layout", "layout"):
        said = getattr(getattr(value, "attrs", None), name, None)
        if isinstance(said, str) and said:
            return str(said)
    if not isinstance(value, relax.Call) or op_name(value) in _CONTRACTIONS:
        return facts[value].layout if isinstance(value, relax.Var) and value in facts else None
    sources = [facts[leaf] for leaf in operands(value) if isinstance(leaf, relax.Var) and leaf in facts]
    if op_name(value) == "relax.permute_dims":
        axes = value.attrs.axes
        known = sources[0].layout if sources else None
        return "".join(known[int(a)] for a in axes) if known and axes and len(known) == len(axes) else None
    # What keeps the shape keeps the order of the axes.
    fitting = [s.layout for s in sources if s.layout and same_shape(s.shape, shape_of(var))]
    return fitting[0] if fitting else None


def extent(dim, examples: Mapping[str, int] | None = None) -> int:
    """Return a dim as a number; symbols by name from ``examples``, else `EXAMPLE_EXTENT`."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    if isinstance(dim, tirx.Var):
        return (examples or {}).get(dim.name, EXAMPLE_EXTENT)
    return _evaluate(dim, examples or {})


def _evaluate(dim, examples: Mapping[str, int]) -> int:
    import tvm
    import tvm_ffi

    def value(variable):
        return tirx.IntImm("int64", examples.get(variable.name, EXAMPLE_EXTENT))

    filled = tvm.sym.Analyzer().simplify(tvm_ffi.structural_map(dim, [(tirx.Var, value)], order="post"))
    return int(filled.value) if isinstance(filled, tirx.IntImm) else EXAMPLE_EXTENT


def elements(expr, examples: Mapping[str, int] | None = None) -> int:
    """Return the number of elements of a tensor expression; 1 where the shape is unknown."""
    if not isinstance(expr.ty, relax.TensorType):
        return 1
    return math.prod(extent(dim, examples) for dim in shape_of(expr) or ())


def size_in_bytes(expr, examples: Mapping[str, int] | None = None) -> int:
    """Return the bytes that a tensor, or a tuple of them, takes."""
    return _bytes(expr.ty, examples)


def _bytes(ty, examples) -> int:
    if isinstance(ty, relax.TupleType):
        return sum(_bytes(item, examples) for item in ty.fields)
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return 0
    count = math.prod(extent(dim, examples) for dim in getattr(ty.shape, "values", ()))
    return (count * _bits(str(ty.dtype)) + 7) // 8


def _bits(dtype: str) -> int:
    found = re.search(r"\d+", dtype)
    return int(found.group()) if found else 8
