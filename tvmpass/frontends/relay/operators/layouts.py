"""Layouts by letters: from any layout to a plain one and back, and lists of padding."""

from __future__ import annotations

import math
import re
from typing import Any

from tvm import tirx

from ..table import CannotConvert, Emitter
from .facts import product, rank_of, shape_of
from .shapes import reshaped, transposed

_AXIS = re.compile(r"([A-Z])|([0-9]+)([a-z])")


def known(dim: Any, what: str) -> int:
    """Return a dim that must be known now; raises `CannotConvert` that names ``what``."""
    if not isinstance(dim, int):
        raise CannotConvert(f"{what} must be known, it is {dim}; give it with --shape")
    return dim


def parsed(layout: str) -> list[tuple[str, int]]:
    """Return the axes of a layout: ``NCHW4c`` is N, C, H, W and c of 4; 0 is no split part."""
    axes, end = [], 0
    for found in _AXIS.finditer(layout):
        if found.start() != end:
            break
        end = found.end()
        axes.append((found[1], 0) if found[1] else (found[3], int(found[2])))
    letters = [name for name, _ in axes]
    whole = [name for name in letters if name.isupper()]
    if (
        end != len(layout)
        or len(set(whole)) != len(whole)
        or not set(n.upper() for n in letters) <= set(whole)
    ):
        raise CannotConvert(f"{layout!r} is not a layout")
    return axes


def is_plain(layout: str) -> bool:
    """Return whether no axis of the layout is split."""
    return layout.isalpha() and layout.isupper()


def _split_axes(layout: str, plain: str) -> list[list[int]]:
    """Return for each letter of ``plain`` its axes in ``layout``, the outermost first."""
    axes = parsed(layout)
    if sorted(name for name, size in axes if not size) != sorted(plain):
        raise CannotConvert(f"the layout {layout!r} has other axes than {plain}")
    return [[i for i, (name, _) in enumerate(axes) if name.upper() == letter] for letter in plain]


def unpacked(emit: Emitter, x, layout: str, plain: str):
    """Return ``x``, stored as ``layout``, in the order ``plain`` with split axes merged."""
    if len(parsed(layout)) != rank_of(x):
        raise CannotConvert(f"a tensor of rank {rank_of(x)} has no layout {layout!r}")
    if layout == plain:
        return x
    groups = _split_axes(layout, plain)
    x = transposed(emit, x, [axis for group in groups for axis in group])
    if is_plain(layout):
        return x
    sizes = iter(shape_of(x))
    return reshaped(emit, x, [product([next(sizes) for _ in group]) for group in groups])


def packed(emit: Emitter, x, plain: str, layout: str):
    """Return ``x``, stored as ``plain``, as ``layout``: the inverse of `unpacked`."""
    if layout == plain:
        return x
    groups, axes = _split_axes(layout, plain), parsed(layout)
    if not is_plain(layout):
        shape: list[Any] = []
        for size, group in zip(shape_of(x), groups):
            factors = [axes[axis][1] for axis in group[1:]]
            block = math.prod(factors)
            if isinstance(size, int) and size % block:
                raise CannotConvert(f"a dim of {size} cannot be split by {block} as {layout!r} says")
            outer = size // block if isinstance(size, int) else tirx.floordiv(size, block)
            shape += [outer, *factors]
        x = reshaped(emit, x, shape)
    order = [axis for group in groups for axis in group]
    return transposed(emit, x, [order.index(axis) for axis in range(len(order))])


def padding_of(values: list[int] | None, rank: int) -> list[int]:
    """Return padding in full, all begins and then all ends.

    Relay lets one number stand for every side, and ``rank`` numbers for both
    sides of each axis.
    """
    values = values or [0]
    if len(values) == 1:
        return values * (2 * rank)
    if len(values) == rank:
        return values * 2
    if len(values) == 2 * rank:
        return values
    raise CannotConvert(f"padding of {len(values)} numbers for {rank} axes")


def per_axis(values: list[int] | None, rank: int, what: str) -> list[int]:
    """Return one number per axis: a single one stands for all."""
    values = [1] if values is None else values
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise CannotConvert(f"{what} has {len(values)} numbers for {rank} axes")
    return values


def along(emit: Emitter, vector, axis: int, rank: int):
    """Return a vector in the shape that broadcasts along ``axis`` of ``rank`` axes."""
    if axis == rank - 1:
        return vector
    return reshaped(emit, vector, [shape_of(vector)[0], *[1] * (rank - 1 - axis)])


def require_number(dtype: str) -> None:
    """Raise `CannotConvert` for sums in bool, which have no meaning here."""
    if dtype == "bool":
        raise CannotConvert("it is not defined on bool")
