"""Shapes as converters build them: products, reshapes, empty results, sizes that must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, sym, tirx

from ..table import CannotConvert, Emitter
from .facts import Dim, as_shape, dtype_of, product, shape_of

op = relax.op


def same(one: Dim, other: Dim) -> bool:
    """Say whether two sizes are the same for every value of their symbols."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return bool(sym.Analyzer().can_prove_equal(one, other))


def require_same(one: Dim, other: Dim, what: str) -> None:
    """Raise `CannotConvert` where two sizes may differ; ``what`` says which they are."""
    if same(one, other):
        return
    if isinstance(one, int) and isinstance(other, int):
        raise CannotConvert(f"{what} must be equal, they are {one} and {other}")
    raise CannotConvert(
        f"{what} must be equal, they are {one} and {other}: give the inputs' sizes by --shape"
    )


def simplified(dim: Dim) -> Dim:
    """Return a size in its simplest form, an int where it is one."""
    if isinstance(dim, int):
        return dim
    dim = sym.Analyzer().simplify(dim)
    return int(dim) if isinstance(dim, tirx.IntImm) else dim


def quotient(dims: Sequence[Dim], divisors: Sequence[Dim]) -> Dim:
    """Return the product of ``dims`` over that of ``divisors``; equal sizes cancel first.

    Raises `CannotConvert` where a known quotient is not whole, or is over 0.
    """
    left, below = list(dims), []
    for divisor in divisors:
        hit = next((i for i, dim in enumerate(left) if same(dim, divisor) and dim != 0), None)
        if hit is None:
            below.append(divisor)
        else:
            del left[hit]
    above, under = product(left), product(below)
    if isinstance(under, int) and under == 0:
        raise CannotConvert("a size cannot be told from the others where one of them is 0")
    if isinstance(above, int) and isinstance(under, int):
        if above % under:
            raise CannotConvert(f"{above} elements do not divide by {under}")
        return above // under
    return simplified(above if isinstance(under, int) and under == 1 else tirx.floordiv(above, under))


def is_empty(shape: Sequence[Dim]) -> bool:
    """Say whether a tensor of this shape surely has no elements."""
    return any(isinstance(dim, int) and dim == 0 for dim in shape)


def reshaped(emit: Emitter, x: Any, shape: Sequence[Dim]) -> Any:
    """Return ``x`` in another shape, itself where the shape is the same.

    A result without elements is made anew: `relax.op.reshape` takes 0 for "copy".
    """
    old = shape_of(x)
    if len(old) == len(shape) and all(same(a, b) for a, b in zip(old, shape)):
        return x
    before, after = product(old), product(shape)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise CannotConvert(f"a tensor of shape {told(old)} has no shape {told(shape)}")
    if is_empty(shape):
        return emit(op.zeros(as_shape(shape), dtype_of(x)))
    return emit(op.reshape(x, as_shape(shape)))


def transposed(emit: Emitter, x: Any, axes: Sequence[int]) -> Any:
    """Return ``x`` with permuted axes, itself where none moves."""
    return x if list(axes) == sorted(axes) else emit(op.permute_dims(x, list(axes)))


def cast(emit: Emitter, x: Any, dtype: str) -> Any:
    """Return ``x`` in a dtype, itself where it has it."""
    return x if dtype_of(x) == dtype else emit(op.astype(x, dtype))


def wide_indices(emit: Emitter, indices: Any) -> Any:
    """Return indices in a dtype that any position fits: narrow ones become int32."""
    dtype = dtype_of(indices)
    if dtype in ("int32", "int64"):
        return indices
    return cast(emit, indices, "int64" if dtype in ("uint32", "uint64") else "int32")


def numbers(emit: Emitter, expr: Any, what: str) -> list[int]:
    """Return the value of an integer tensor that must be known now, as a list."""
    value = emit.array(expr)
    if value is None:
        raise CannotConvert(f"{what} is computed when the program runs")
    if not np.issubdtype(value.dtype, np.integer):
        raise CannotConvert(f"{what} is not made of integers")
    return [int(item) for item in value.reshape(-1)]


def positions(emit: Emitter, length: Dim, dtype: str) -> Any:
    """Return the vector 0, 1, ... ``length - 1``."""
    if isinstance(length, int):
        return emit.const(np.arange(length), dtype)
    zero, one = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)
    return cast(emit, emit(op.arange(zero, length, one, "int64")), dtype)


def measured(emit: Any, sizes: Any, name: str) -> list[Dim]:
    """Return a vector of sizes that is computed when the program runs, as a symbol for each.

    ``emit`` is the conversion's own emitter, whose block the symbols are bound in.
    """
    count = shape_of(sizes)[0]
    if not isinstance(count, int):
        raise CannotConvert(f"the rank of {name} is not known")
    symbols = [tirx.Var(f"{name}_{i}" if count > 1 else name, "int64") for i in range(count)]
    shape = emit(op.tensor_to_shape(cast(emit, sizes, "int64")))
    emit.builder.match_cast(shape, relax.ShapeType(symbols))
    return list(symbols)


def told(shape: Sequence[Dim]) -> str:
    """Return a shape as messages show it."""
    return f"({', '.join(str(dim) for dim in shape)}{',' if len(shape) == 1 else ''})"
