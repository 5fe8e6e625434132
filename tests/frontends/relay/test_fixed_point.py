"""Multiplication by fixed-point numbers against integers of any size."""

from __future__ import annotations

import numpy as np
import pytest
from running import run_ops

from tvmpass.frontends.relay.errors import RelayError

EXTREMES = np.array([-(2**31), -(2**31) + 1, -123457, -5, -1, 0, 1, 7, 123456, 2**31 - 1], "int32")


def wrapped(value: int, bits: int = 32) -> int:
    """Return an integer as two's complement of a width holds it."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def product(x: int, multiplier: int, shift: int) -> int:
    """Return what the definition says, on exact integers."""
    if multiplier == 1 << 30:
        if shift > 1:
            return wrapped(x << (shift - 1))
        return x if shift == 1 else wrapped(x + (1 << -shift)) >> (1 - shift)
    right = 31 + max(-shift, 0)
    scaled = wrapped(wrapped(x << max(shift, 0), 64) * multiplier, 64)
    return wrapped(wrapped(scaled + (1 << (right - 1)), 64) >> right)


@pytest.mark.parametrize(
    ("multiplier", "shift"),
    [(1518500250, -3), (2147483647, 0), (1073741825, 5), (7, -30)]
    + [(1 << 30, shift) for shift in (-9, 0, 1, 2, 5)],
)
def test_fixed_point_multiply(multiplier, shift):
    body = f"fixed_point_multiply(%x, multiplier={multiplier}, shift={shift})"
    (made,) = run_ops(body, {"x": EXTREMES})
    assert made.dtype == np.int32
    assert made.tolist() == [product(int(x), multiplier, shift) for x in EXTREMES]


@pytest.mark.parametrize("left_shift", [True, False])
def test_fixed_point_multiply_per_axis(left_shift):
    generator = np.random.default_rng(2)
    x = generator.integers(-(2**31), 2**31, (2, 3, 4)).astype("int32")
    multiplier = np.array([1518500250, 1073741825, 2000000000], "int32")
    left, right = np.array([0, 1, 3], "int32"), np.array([2, 0, 1], "int32")
    (made,) = run_ops(
        f"""fixed_point_multiply_per_axis(%x, %m, %l, %r, is_lshift_required={left_shift},
        is_rshift_required=True, axes=[1])""",
        {"x": x, "m": multiplier, "l": left, "r": right},
    )
    for channel in range(3):
        total = 31 + int(right[channel])
        for value, result in zip(x[:, channel].ravel(), made[:, channel].ravel()):
            shifted = int(value) << (int(left[channel]) if left_shift else 0)
            scaled = wrapped(shifted * int(multiplier[channel]) + (1 << (total - 1)), 64)
            assert int(result) == wrapped(scaled >> total)


def test_other_dtypes_are_refused():
    with pytest.raises(RelayError, match="int32 only"):
        run_ops("fixed_point_multiply(%x, multiplier=5, shift=1)", {"x": EXTREMES.astype("int64")})
