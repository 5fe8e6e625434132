"""What a CPU target offers to schedules."""

from __future__ import annotations

import functools

import tvm

_MAX_LANES = 16
_X86_WIDTHS = (("avx512f", 512), ("avx", 256))
_OTHER_BITS = 128


@functools.cache
def _vector_bits(target_text: str) -> int:
    target = tvm.target.Target(target_text)
    features = {str(feature) for feature in tvm.target.codegen.llvm_get_cpu_features(target)}
    dropped = {str(name)[1:] for name in target.attrs.get("mattr", ()) if str(name).startswith("-")}
    return next((bits for name, bits in _X86_WIDTHS if name in features - dropped), _OTHER_BITS)


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
