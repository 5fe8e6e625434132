"""Run Relay text on arrays: what the tests of converters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import tvm

import tvmpass
from tvmpass.frontends.relay.convert import convert
from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.parser import parse

HEADER = '#[version = "0.0.5"]\n'


def converted(text: str, params=None, shapes=None) -> tvm.IRModule:
    """Return the Relax module of a program; the version line may be left out."""
    if not text.lstrip().startswith("#["):
        text = HEADER + text
    return convert(parse(text, "test.relay"), params, shapes)


def run(text: str, *arrays, params=None, level: int = 1, shapes=None, config=None) -> list[np.ndarray]:
    """Return the outputs of a program on arrays in the order of its inputs.

    ``level`` is the optimisation level of the build, 0 to 3.
    """
    return run_module(converted(text, params, shapes), *arrays, level=level, config=config)


def run_module(mod: tvm.IRModule, *arrays, level: int = 1, config=None) -> list[np.ndarray]:
    """Return the outputs of a converted module on arrays in the order of its inputs."""
    names = [param.name for param in mod["main"].params]
    assert len(names) == len(arrays), f"the program has inputs {names}, {len(arrays)} arrays were given"
    with tvmpass.PassContext(opt_level=level, config=config or {}):
        built = tvmpass.build(mod, target="llvm")
    return list(built.run(dict(zip(names, arrays))))


def run_ops(body: str, arrays: Mapping[str, np.ndarray], level: int = 0) -> list[np.ndarray]:
    """Return the outputs of an expression, or lines before one, on arrays by variable name.

    ``run_ops("add(%x, %y)", {"x": x, "y": y})`` wraps the text into ``@main`` with
    a parameter of each array's type.
    """
    params = ", ".join(f"%{name}: {type_of(array)}" for name, array in arrays.items())
    return run(f"def @main({params}) {{\n{body}\n}}\n", *arrays.values(), level=level)


def check(
    body: str, arrays: Mapping[str, np.ndarray], *expected, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Assert that `run_ops` gives ``expected``: dtypes, shapes and values; integers exactly."""
    same(run_ops(body, arrays), *expected, rtol=rtol, atol=atol)


def same(made: Sequence[np.ndarray], *expected, rtol: float = 0, atol: float = 0) -> None:
    """Assert that arrays are ``expected``: dtypes, shapes and values; integers exactly."""
    assert len(made) == len(expected)
    for one, other in zip(made, map(np.asarray, expected)):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.dtype.kind in "iub":
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def refused(body: str, arrays: Mapping[str, np.ndarray], words: str) -> None:
    """Assert that `run_ops` raises a `RelayError` that says ``words``, a regular expression."""
    with pytest.raises(RelayError, match=words):
        run_ops(body, arrays)


def floats(*shape: int) -> np.ndarray:
    """Return float32 numbers that all differ, some of them negative."""
    return np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape) - 3


def type_of(array: np.ndarray, dims: Sequence[int | str] | None = None) -> str:
    """Return an array's type as Relay prints it; ``dims`` instead of its shape, for ``?``."""
    array = np.asarray(array)
    dims = array.shape if dims is None else dims
    return f"Tensor[({', '.join(map(str, dims))}), {array.dtype}]" if len(dims) else str(array.dtype)
