"""Sums of products against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import run, run_ops

from tvmpass.frontends.relay.errors import RelayError

CASES = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,jk->ki", [(2, 3), (3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("abc,cd->abd", [(2, 3, 4), (4, 5)]),
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("i,j->ij", [(2,), (3,)]),
    ("i,i", [(3,), (3,)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("ij,ij->", [(2, 3), (2, 3)]),
    ("ij,kl->ijkl", [(2, 3), (4, 5)]),
    ("aij,aij->a", [(2, 3, 4), (2, 3, 4)]),
    ("ij,kl->ik", [(2, 3), (4, 5)]),
    ("ij,kj,kl->il", [(2, 3), (4, 3), (4, 5)]),
    ("...ij,...jk->...ik", [(2, 7, 3, 4), (2, 7, 4, 5)]),
    ("...ij,...jk", [(7, 3, 4), (2, 7, 4, 5)]),
    ("...ij,jk->...ik", [(2, 7, 3, 4), (4, 5)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("equation", "shapes"), CASES)
def test_einsum(equation, shapes, dtype):
    generator = np.random.default_rng(2)
    arrays = {f"x{i}": generator.integers(-5, 5, shape).astype(dtype) for i, shape in enumerate(shapes)}
    fields = ", ".join(f"%{name}" for name in arrays) + ("," if len(arrays) == 1 else "")
    (made,) = run_ops(f'einsum(({fields}), equation="{equation}")', arrays)
    expected = np.einsum(equation, *arrays.values())
    assert made.dtype == dtype and made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


def test_unknown_sizes():
    a, b = (np.random.default_rng(i).standard_normal((5, 3)).astype("float32") for i in (1, 2))
    text = """def @main(%a: Tensor[(?, 3), float32], %b: Tensor[(?, 3), float32]) {
      einsum((%a, %b), equation="ni,ni->n")
    }"""
    (made,) = run(text, a, b, shapes={"a": ("n", 3), "b": ("n", 3)})
    np.testing.assert_allclose(made, (a * b).sum(1), 1e-5, 1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->iz", "ij->i", "ijk,jk->i", "ij,ij->i"])
def test_equations_that_do_not_fit(equation):
    with pytest.raises(RelayError):
        arrays = {"a": np.ones((2, 3), "float32"), "b": np.ones((3, 4), "float32")}
        run_ops(f'einsum((%a, %b), equation="{equation}")', arrays)


def test_sizes_that_may_differ_are_refused():
    text = """def @main(%a: Tensor[(?, 3), float32], %b: Tensor[(?, 3), float32]) {
      einsum((%a, %b), equation="ni,ni->n")
    }"""
    with pytest.raises(RelayError, match="label n"):
        run(text)
