"""What a CPU target offers to schedules."""

from __future__ import annotations

import functools

import tvm

_WIDEST_BITS = 512
_MAX_LANES = 16


@functools.cache
def _vector_bits(target_text: str) -> int:
    target = tvm.target.Target(target_text)
    bits = int(tvm.target.codegen.llvm_get_vector_width(target))
    return min(max(bits, 128), _WIDEST_BITS)


def vector_bits(target: tvm.target.Target) -> int:
    """Return the width of the target's vector registers in bits, 128 to 512."""
    return _vector_bits(str(target))


def vector_lanes_of(target: tvm.target.Target, dtypes) -> int:
    """Return the lanes of a vector of the kernel's widest float or integer type."""
    widest = 8
    for dtype in dtypes:
        digits = "".join(c for c in dtype.partition("x")[0] if c.isdigit())
        widest = max(widest, int(digits) if digits else 8)
    return max(1, min(_MAX_LANES, vector_bits(target) // widest))
