"""Sizes and counts that no machine could hold are refused before anything is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from running import converted, run_ops

from tvmpass.frontends.relay.errors import RelayError

X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("clip(%x, a_min=0f)", "both bounds"),
        ("nn.adaptive_max_pool1d(expand_dims(%x, axis=0), output_size=[0])", "is not positive"),
        ("repeat(%x, repeats=1000000000000, axis=0)", "repeats is 1000000000000"),
        ("expand_dims(%x, axis=0, num_newaxis=4294967297)", "num_newaxis is 4294967297"),
        ('full(1f, shape=[-1], dtype="float32")', "negative size"),
        ('zeros(shape=[2, -3], dtype="int32")', "negative size"),
        ('arange(0f, 1000000000000f, 1f, dtype="float32")', "steps is too long"),
    ],
)
def test_refused(body, why):
    with pytest.raises(RelayError, match=why):
        run_ops(body, {"x": X})


def test_many_parts():
    with pytest.raises(RelayError, match="1000000 parts"):
        converted(
            "def @main(%x: Tensor[(1000000), float32]) {\n"
            "  %0 = split(%x, indices_or_sections=1000000);\n  %0.0\n}\n"
        )


@pytest.mark.parametrize(
    ("k", "upper", "want"), [(1 << 32, True, X * 0), (1 << 32, False, X), (-(1 << 32), True, X)]
)
def test_diagonals_past_the_corners(k, upper, want):
    found = run_ops(f"trilu(%x, {k}i64, upper={upper})", {"x": X})
    np.testing.assert_array_equal(found[0], want)
