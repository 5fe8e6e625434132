"""Floating-point operations and bytes of each binding, told from its types.

A multiply-add counts two; a comparison, a conversion or a curve such as ``exp``
counts one.  Numeric verification bounds what it runs by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from ..site import FunctionView, op_name, operands, shape_of
from .alias import VIEW_OPS
from .types import elements, extent, size_in_bytes


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"relax.{name}" for name in names)


_MOVES = _named(
    *("permute_dims", "layout_transform", "broadcast_to", "concat", "split", "strided_slice", "flip", "tile"),
    *("repeat", "dynamic_strided_slice", "take", "gather_elements", "gather_nd", "scatter_elements"),
    *("scatter_nd", "one_hot", "nn.pad", "nn.pixel_shuffle", "image.resize2d", "full", "full_like", "zeros"),
    *("zeros_like", "ones", "ones_like", "arange", "tril", "triu", "shape_of"),
)
_REDUCTIONS = _named(
    *("sum", "mean", "max", "min", "prod", "variance", "std", "argmax", "argmin", "cumsum", "cumprod")
)
_NORMS = _named(
    *("nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm"),
    "nn.batch_norm",
)
_NORM_PASSES = 4


@dataclass(frozen=True)
class Work:
    """What one binding does; symbolic dims at their example values."""

    flops: float
    bytes_read: int
    bytes_written: int


def find_work(view: FunctionView) -> Mapping[relax.Var, Work]:
    """Return the work of every binding of a function."""
    return {var: binding_work(var, value) for var, value in view.bindings.items()}


def binding_work(var, value, examples: Mapping[str, int] | None = None) -> Work:
    """Return the work of computing ``value`` into ``var``; views and tuples cost nothing."""
    if not isinstance(value, relax.Call) or op_name(value) in VIEW_OPS:
        return Work(0.0, 0, 0)
    read = sum(size_in_bytes(leaf, examples) for leaf in operands(value) if isinstance(leaf, relax.Expr))
    return Work(float(_flops(var, value, examples)), read, size_in_bytes(var, examples))


def _flops(var, value, examples) -> int:
    name = op_name(value) or ""
    made = elements(var, examples)
    first = elements(value.args[0], examples) if value.args and hasattr(value.args[0], "ty") else 1
    if name in _MOVES:
        return 0
    if name == "relax.matmul":
        dims = shape_of(value.args[0])
        return 2 * made * (extent(dims[-1], examples) if dims else 1)
    if name.startswith("relax.nn.conv"):
        # The axis of the kernel that its other operand runs over, once per element.
        transposed = name.endswith("_transpose")
        kept = _kernel_axis(value, "I" if transposed else "O", examples)
        return 2 * (first if transposed else made) * elements(value.args[1], examples) // max(1, kept)
    if "_pool" in name:
        window = getattr(value.attrs, "pool_size", None)
        return made * math.prod(int(p) for p in window) if window is not None else first
    if name in _NORMS:
        return _NORM_PASSES * first
    return max(made, first) if name in _REDUCTIONS else made


def _kernel_axis(value, letter: str, examples) -> int:
    dims, layout = shape_of(value.args[1]), str(value.attrs.kernel_layout)
    if dims is None or letter not in layout or len(dims) != len(layout):
        return 1
    return extent(dims[layout.index(letter)], examples)
