"""What a kernel multiplies with the padding of an image, and whether it is finite.

Zero times NaN or infinity is NaN: a schedule may leave such products out only
where the other factor is known to be finite.  A build knows it of constant
weights, and says so on the unscheduled kernel.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from .kernels import contraction_operands
from .nest import stages

FINITE_ATTR = "tvmpass.finite"
"""Positions of the parameters that are finite wherever the kernel is called."""


def padded_factors(function: tirx.PrimFunc) -> frozenset[int]:
    """Return the positions of the parameters multiplied with values of a padding block."""
    parts = [part for part in stages(function) or () if part.store is not None]
    padded = {part.store.buffer for part in parts if not part.reduce and _chooses(part.store.value)}
    found: set[int] = set()
    for part in parts:
        operands = contraction_operands(part) if part.reduce else None
        for load, other in (operands, operands[::-1]) if operands is not None else ():
            if load.source in padded:
                found.update(i for i, p in enumerate(function.params) if p.same_as(other.source))
    return frozenset(found)


def finite_parameters(function: tirx.PrimFunc) -> frozenset[int]:
    """Return the positions of the parameters that the kernel says are finite."""
    known = (function.attrs or {}).get(FINITE_ATTR, ())
    return frozenset(int(position) for position in known)


def may_count(function: tirx.PrimFunc) -> list[str]:
    """Name the factors of padding that may be NaN or infinite."""
    open_ones = padded_factors(function) - finite_parameters(function)
    return [function.params[i].name for i in sorted(open_ones)]


def _chooses(value) -> bool:
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, [(tvm.ir.Call, calls.append)])
    return any(isinstance(c.op, tvm.ir.Op) and c.op.name.endswith("if_then_else") for c in calls)
