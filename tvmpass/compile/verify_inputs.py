"""Inputs to compare rewrites on, and how results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from tvmpass.core.nest import as_int
from tvmpass.core.padding import finite_parameters
from tvmpass.core.site import GenericConst, dtype_of, shape_of

EXAMPLE_DIMS = (3, 5, 2, 4)
"""Values for symbolic dims, in order of first appearance."""

# Relative to the output's scale; contractions of up to a few thousand terms.
_TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}


def input_sets(arguments: Sequence[Any], seed: int, extreme: bool) -> list[tuple[str, list[Any]]]:
    """Draw named sets of arrays for ``arguments`` (variables and constants).

    ``normal`` is standard normal; ``special`` sprinkles 0, -0.0, NaN and
    infinities; ``extreme`` uses the ends of the dtype's range, and is for
    comparisons in which no sum is reordered: its order decides what overflows.
    """
    symbols: dict[Any, int] = {}
    for argument in arguments:
        _bind_symbols(argument, symbols)
    sets = []
    for name in ["normal", "special"] + (["extreme"] if extreme else []):
        generators = [np.random.default_rng([seed, k]) for k in range(len(arguments))]
        sets.append((name, [draw(a, symbols, g, name) for a, g in zip(arguments, generators)]))
    return sets


def _bind_symbols(argument, symbols: dict[Any, int]) -> None:
    dims: list[Any] = []
    if isinstance(argument, relax.ShapeExpr):
        dims = list(argument.values)
    elif isinstance(argument.ty, relax.TensorType):
        dims = list(shape_of(argument) or ())
    for dim in dims:
        if isinstance(dim, tirx.Var) and dim not in symbols:
            symbols[dim] = EXAMPLE_DIMS[len(symbols) % len(EXAMPLE_DIMS)]


def _extent(dim, symbols: dict[Any, int]) -> int:
    """Return a dim at the example values; a symbol met for the first time gets one."""
    if isinstance(dim, int):
        return dim

    def value(variable):
        return tirx.IntImm(
            "int64", symbols.setdefault(variable, EXAMPLE_DIMS[len(symbols) % len(EXAMPLE_DIMS)])
        )

    made = tvm_ffi.structural_map(dim, [(tirx.Var, value)], order="post")
    return int(tvm.sym.Analyzer().simplify(made))


def draw(argument, symbols: dict[Any, int], rng: np.random.Generator, kind: str):
    """Draw one argument; constants are themselves, shape parameters their values."""
    if isinstance(argument, GenericConst):
        return argument.value.numpy()
    if isinstance(argument, relax.ShapeExpr):
        return tvm_ffi.Shape([_extent(as_int(d) or d, symbols) for d in argument.values])
    shape = tuple(_extent(d, symbols) for d in (shape_of(argument) or ()))
    return draw_array(shape, dtype_of(argument) or "float32", rng, kind)


def draw_array(shape: Sequence[int], dtype: str, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Draw an array of one dtype; ``kind`` is as for `input_sets`."""
    shape = tuple(shape)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        low, high = (max(info.min, -8), 8)
        values = rng.integers(low, high, size=shape, dtype=np.int64).astype(dtype)
        return _sprinkle(values, [info.min, info.max, 0, 1], rng) if kind == "extreme" else values
    wide = rng.standard_normal(shape)
    values = np.asarray(wide, dtype=_numpy_dtype(dtype))
    if kind == "special":
        return _sprinkle(values, [0.0, -0.0, np.nan, np.inf, -np.inf], rng)
    if kind == "extreme":
        top = {"float16": 6e4, "bfloat16": 3e38, "float32": 3e38, "float64": 1e308}[dtype]
        return _sprinkle(values, [top, -top, 1 / top, 0.0], rng)
    return values


def draw_parameters(
    function: tirx.PrimFunc, shapes: Sequence[Sequence[int]], rngs: Sequence[np.random.Generator], kind: str
) -> list[np.ndarray]:
    """Draw an array for each parameter of an unscheduled kernel.

    What the kernel says is finite wherever it is called stays finite.
    """
    finite = finite_parameters(function) if kind == "special" else frozenset()
    return [
        draw_array(shape, str(parameter.ty.dtype), rng, "normal" if position in finite else kind)
        for position, (parameter, shape, rng) in enumerate(zip(function.params, shapes, rngs))
    ]


def _numpy_dtype(dtype: str):
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(dtype)


def _sprinkle(values: np.ndarray, specials: Sequence[Any], rng: np.random.Generator) -> np.ndarray:
    flat = values.reshape(-1).copy()
    if flat.size:
        where = rng.choice(flat.size, size=min(flat.size, max(len(specials), flat.size // 16)), replace=False)
        flat[where] = np.resize(np.asarray(specials, dtype=flat.dtype), where.size)
    return flat.reshape(values.shape)


def difference(
    expected: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    loose: bool,
    tolerance_scale: float = 1.0,
) -> str | None:
    """Return None where results agree, else one line saying how they differ.

    Integers and bools must be equal.  Floats are compared relative to the
    output's scale; NaN and infinities must stand in the same places, except
    that ``loose`` lets one non-finite value take another's place.
    """
    if len(expected) != len(found):
        return f"{len(found)} outputs instead of {len(expected)}"
    for i, (want, have) in enumerate(zip(expected, found)):
        gap = _difference(np.asarray(want), np.asarray(have), loose, tolerance_scale)
        if gap is not None:
            return f"output {i}: {gap}"
    return None


def _difference(want: np.ndarray, have: np.ndarray, loose: bool, tolerance_scale: float) -> str | None:
    if want.shape != have.shape or want.dtype != have.dtype:
        return f"{have.dtype}{list(have.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.size == 0:
        return None
    tolerance = _TOLERANCE.get(want.dtype.name)
    if tolerance is None:
        wrong = int(np.sum(want != have))
        return f"{wrong} of {want.size} values differ" if wrong else None
    left, right = want.astype("float64"), have.astype("float64")
    finite = np.isfinite(left) & np.isfinite(right)
    if loose:
        misplaced = np.isfinite(left) != np.isfinite(right)
    else:
        misplaced = ~finite & ~((np.isnan(left) & np.isnan(right)) | (left == right))
    if misplaced.any():
        at = int(np.flatnonzero(misplaced)[0])
        count = int(misplaced.sum())
        return f"{count} non-finite values differ, first {right.flat[at]} instead of {left.flat[at]}"
    if not finite.any():
        return None
    scale = float(np.max(np.abs(left[finite])))
    worst = float(np.max(np.abs(left[finite] - right[finite])))
    allowed = tolerance * tolerance_scale
    if worst > allowed * max(scale, 1e-30):
        return f"largest difference {worst:.3g} at scale {scale:.3g} (allowed {allowed:.1g} of it)"
    return None
