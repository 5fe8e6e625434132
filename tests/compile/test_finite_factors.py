"""Kernels are told which factors of padding are finite at every call."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx

import tvmpass
from tests.tir_passes.cases import depthwise, finite
from tvmpass.compile.kernel_key import canonical_text
from tvmpass.core.padding import FINITE_ATTR
from tvmpass.testing.graphs import graph

SHAPE = ((1, 8, 6, 6),)


def weight(*odd: float) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((8, 1, 3, 3)).astype("float32")
    values[: len(odd), 0, 0, 0] = odd
    return values


def conv(x, w):
    return relax.op.nn.conv2d(x, w, padding=1, groups=8)


def told(mod) -> list[list[int]]:
    """Return what each kernel that multiplies with padding is told, by position."""
    with tvmpass.PassContext(config={"tvmpass.threads": 1, "tvmpass.layout": "keep"}):
        made, _ = tvmpass.optimize(mod)
    functions = [f for _, f in made.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert functions
    return [[int(i) for i in f.attrs.get(FINITE_ATTR, ())] for f in functions]


@pytest.mark.parametrize(
    ("odd", "expected"), [((), [[1]]), ((np.nan,), [[]]), ((0.0, -np.inf), [[]]), ((3e38,), [[1]])]
)
def test_constant_weights(odd, expected):
    assert told(graph(lambda x: conv(x, relax.const(weight(*odd))), SHAPE)) == expected


def test_weights_that_come_as_inputs():
    assert told(graph(conv, SHAPE, (weight().shape,))) == [[]]


def test_one_call_with_infinity_counts_for_all():
    def body(x):
        return conv(relax.op.nn.relu(conv(x, relax.const(weight()))), relax.const(weight(np.inf)))

    found = told(graph(body, SHAPE))
    with_padding = [positions for positions in found if positions]
    # Kernels that are shared are told nothing; apart, only the first knows.
    assert len(with_padding) <= 1 and len(found) - len(with_padding) >= 1


def test_a_kernel_that_knows_has_the_key_of_one_that_does_not():
    """Records are shared: a recipe that needs to know refuses where the kernel does not say so."""
    function = depthwise(1, 5, 6, 8, 3, pad=1)
    known = finite(function)
    assert canonical_text(function) == canonical_text(known)
