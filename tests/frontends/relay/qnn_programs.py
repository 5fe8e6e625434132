"""Relay programs of one quantised operator, run on arrays and on constants."""

from __future__ import annotations

import numpy as np
from running import run

Arrays = dict[str, np.ndarray]


def run_qnn(body: str, arrays: Arrays, constants: Arrays | None = None, level: int = 1) -> np.ndarray:
    """Run ``body`` on inputs and on parameters bound as constants; return the first result."""
    return run_all([body], arrays, constants, level)[0]


def run_all(
    bodies: list[str], arrays: Arrays, constants: Arrays | None = None, level: int = 1
) -> list[np.ndarray]:
    """Run several expressions as one program: one build, a result each."""
    constants = constants or {}
    types = ", ".join(
        f"%{name}: Tensor[({', '.join(map(str, value.shape))}), {value.dtype}]"
        for name, value in {**arrays, **constants}.items()
    )
    body = bodies[0] if len(bodies) == 1 else "(" + ",\n   ".join(bodies) + ")"
    text = f'#[version = "0.0.5"]\ndef @main({types}) {{\n  {body}\n}}\n'
    return run(text, *arrays.values(), params=constants, level=level)


def whole(shape, dtype: str, seed: int = 0) -> np.ndarray:
    """Return random whole numbers over the range of a dtype (int32: of sums that occur)."""
    rng = np.random.default_rng(seed)
    low, high = (-200_000, 200_000) if dtype == "int32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)
