"""What a kernel's parameters are drawn from for verification."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tir_passes.cases import conv, depthwise, finite, matmul
from tvmpass.compile.verify_inputs import draw_parameters
from tvmpass.core.padding import may_count


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (depthwise(1, 5, 6, 8, 3, pad=1), ["w"]),
        (conv(1, 5, 6, 4, 8, 3, pad=1), ["w"]),
        (conv(1, 5, 6, 4, 8, 3), []),
        (matmul(3, 4, 5), []),
    ],
)
def test_weights_of_padded_images_are_told(function, expected):
    assert may_count(function) == expected


def drawn(function, kind):
    shapes = [[int(d) for d in p.ty.shape] for p in function.params]
    return draw_parameters(function, shapes, [np.random.default_rng(k) for k in range(len(shapes))], kind)


def test_special_values_spare_what_is_known_to_be_finite():
    function = depthwise(1, 5, 6, 8, 3, pad=1)
    assert not any(np.isfinite(array).all() for array in drawn(function, "special")[:3])
    known = finite(function)
    assert may_count(known) == []
    x, weight, bias, _ = drawn(known, "special")
    assert np.isfinite(weight).all() and not np.isfinite(x).all() and not np.isfinite(bias).all()
    np.testing.assert_array_equal(weight, drawn(known, "normal")[1])
