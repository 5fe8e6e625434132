"""Multiplication by Q31 fixed-point numbers, bit for bit, and sums that undo a broadcast."""

from __future__ import annotations

from tvm import relax

from ..table import CannotConvert, Table
from .facts import dtype_of, normal_axes, normal_axis, rank_of, shape_of
from .shapes import reshaped

TABLE = Table()

_FRACTION = 31
_HALF = 1 << 30


def _require_int32(*values) -> None:
    for value in values:
        if dtype_of(value) != "int32":
            raise CannotConvert(f"it is defined on int32 only, not on {dtype_of(value)}")


@TABLE.operator("fixed_point_multiply")
def fixed_point_multiply(emit, attrs, x):
    """Return ``x * multiplier * 2**(shift - 31)``, halves rounded up, in 64 bits and cut to 32.

    A multiplier of one half (2**30) is a plain shift, in 32 bits.
    """
    _require_int32(x)
    multiplier, shift = int(attrs.multiplier), int(attrs.shift)
    if multiplier == _HALF:
        return _power_of_two(emit, x, shift - 1)
    left, right = max(shift, 0), max(-shift, 0) + _FRACTION
    if left > 31 or right > 62:
        raise CannotConvert(f"a shift by {shift} is out of range")
    wide = emit(relax.op.astype(x, "int64"))
    # Wraps as a shift followed by a product does.
    factor = ((multiplier << left) + (1 << 63)) % (1 << 64) - (1 << 63)
    scaled = emit(relax.op.multiply(wide, emit.const(factor, "int64")))
    rounded = emit(relax.op.add(scaled, emit.const(1 << (right - 1), "int64")))
    return relax.op.astype(emit(relax.op.right_shift(rounded, emit.const(right, "int64"))), "int32")


def _power_of_two(emit, x, exponent: int):
    if not -31 <= exponent <= 31:
        raise CannotConvert(f"a shift by {exponent + 1} is out of range")
    if exponent == 0:
        return x
    if exponent > 0:
        return relax.op.left_shift(x, emit.const(exponent, "int32"))
    rounded = emit(relax.op.add(x, emit.const(1 << (-exponent - 1), "int32")))
    return relax.op.right_shift(rounded, emit.const(-exponent, "int32"))


@TABLE.operator("fixed_point_multiply_per_axis")
def fixed_point_multiply_per_axis(emit, attrs, x, multiplier, left, right):
    """Return `fixed_point_multiply` with a multiplier and shifts per index of some axes."""
    _require_int32(x, multiplier, left, right)
    rank = rank_of(x)
    axes = [normal_axis(axis, rank) for axis in attrs.ints("axes") or []]
    if axes != normal_axes(axes, rank) or len(axes) != rank_of(multiplier):
        raise CannotConvert(f"axes {axes} do not fit multipliers of rank {rank_of(multiplier)}")
    sizes = shape_of(x)
    spread = [size if axis in axes else 1 for axis, size in enumerate(sizes)]

    def wide(value):
        return emit(relax.op.astype(reshaped(emit, value, spread), "int64"))

    product = emit(relax.op.astype(x, "int64"))
    if attrs.is_lshift_required:
        product = emit(relax.op.left_shift(product, wide(left)))
    product = emit(relax.op.multiply(product, wide(multiplier)))
    amount = emit(relax.op.add(wide(right), emit.const(_FRACTION, "int64")))
    before = emit(relax.op.subtract(amount, emit.const(1, "int64")))
    half = emit(relax.op.left_shift(emit.const(1, "int64"), before))
    shifted = emit(relax.op.right_shift(emit(relax.op.add(product, half)), amount))
    return relax.op.astype(shifted, "int32")
