"""Draw random input arrays, and show shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvmpass.core.errors import UsageError, nearest


def random_inputs(inputs: Sequence[Any], shapes: Mapping[str, tuple], seed: int) -> dict[str, np.ndarray]:
    """Draw an array for each input: normal floats, integers and bools from {0, 1}.

    ``inputs`` are an artifact's ``input_info``.  An open dimension takes its
    size from ``shapes``, else 1; one symbol has one size everywhere.
    """
    known = {entry.name: entry for entry in inputs}
    sizes: dict[str, int] = {}
    for name, dims in shapes.items():
        if name not in known:
            raise UsageError(
                f"--shape {name}: no such input{nearest(name, known)}; inputs are: {', '.join(known)}"
            )
        declared = known[name].shape or ()
        if len(declared) != len(dims) or not all(isinstance(dim, int) for dim in dims):
            raise UsageError(f"--shape {name}: expected {len(declared)} sizes, as in {show_shape(declared)}")
        for symbol, size in zip(declared, dims):
            if isinstance(symbol, str):
                if sizes.setdefault(symbol, size) != size:
                    raise UsageError(f"--shape {name}: {symbol} is both {sizes[symbol]} and {size}")
            elif symbol != size:
                raise UsageError(f"--shape {name}: the artifact was built for {show_shape(declared)}")
    generator = np.random.default_rng(seed)
    return {name: _draw(generator, entry, sizes) for name, entry in known.items()}


def _draw(generator, entry, sizes: Mapping[str, int]) -> np.ndarray:
    if entry.shape is None or entry.dtype is None:
        raise UsageError(f"input {entry.name!r} has no known shape and dtype; give it with --inputs")
    shape = tuple(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in entry.shape)
    dtype = np.dtype(entry.dtype)
    if dtype.kind in "iub":
        return generator.integers(0, 2, size=shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def show_shape(shape: Sequence[Any]) -> str:
    """Print a shape as people write it: ``1x3x48x192``; a scalar is ``scalar``."""
    return "x".join(str(dim) for dim in shape) or "scalar"
