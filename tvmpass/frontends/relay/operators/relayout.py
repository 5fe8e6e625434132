"""Operators that change the layout in which a tensor is stored."""

from __future__ import annotations

import re
from typing import Any

from tvm import relax, tirx

from ..table import CannotConvert, Emitter, Table
from .facts import Dim, as_shape, dtype_of, product, rank_of, shape_of
from .shapes import is_empty, reshaped, transposed

op = relax.op
TABLE = Table()

_AXIS = re.compile(r"([A-Z])|([0-9]+)([a-z])")
_SIZED_AXIS = re.compile(r"([0-9]+)([A-Za-z]+)")


def axes_of(layout: str) -> list[tuple[str, int]]:
    """Return the axes of a layout: ``NCHW4c`` is N, C, H, W and c of 4; 0 is an axis of any size."""
    found = _AXIS.findall(layout)
    if "".join(whole or size + part for whole, size, part in found) != layout:
        raise CannotConvert(f"{layout!r} is not a layout")
    axes = [(whole or part, int(size or 0)) for whole, size, part in found]
    names = [name for name, _ in axes]
    whole = [name for name in names if name.isupper()]
    if not axes or len(set(whole)) != len(whole) or not {name.upper() for name in names} <= set(whole):
        raise CannotConvert(f"{layout!r} is not a layout")
    return axes


@TABLE.operator("layout_transform")
def layout_transform(emit, attrs, x):
    """Merge the source's split axes, then split and order them as the result has them."""
    source, target = (axes_of(str(attrs[name])) for name in ("src_layout", "dst_layout"))
    order = [name for name, _ in target if name.isupper()]
    if sorted(order) != sorted(name for name, _ in source if name.isupper()):
        raise CannotConvert(f"{attrs.src_layout!r} and {attrs.dst_layout!r} have other axes")
    if len(source) != rank_of(x):
        raise CannotConvert(f"a tensor of rank {rank_of(x)} has no layout {attrs.src_layout!r}")
    for (name, size), dim in zip(source, shape_of(x)):
        if size and dim != size:
            raise CannotConvert(f"axis {name} of {attrs.src_layout!r} has {dim} elements")
    return _split(emit, _merged(emit, x, source, order), target, order)


def _merged(emit: Emitter, x: Any, axes: list[tuple[str, int]], order: list[str]) -> Any:
    """Return ``x`` with one axis per letter of ``order``."""
    groups = _groups(axes, order)
    dims = shape_of(x)
    x = transposed(emit, x, [axis for group in groups for axis in group])
    return reshaped(emit, x, [product([dims[axis] for axis in group]) for group in groups])


def _split(emit: Emitter, x: Any, axes: list[tuple[str, int]], order: list[str]) -> Any:
    """Return ``x``, one axis per letter of ``order``, as ``axes`` say; zeros fill the last parts."""
    groups, shape, widths = _groups(axes, order), [], []
    for group, dim in zip(groups, shape_of(x)):
        factors = [axes[axis][1] for axis in group[1:]]
        block = int(product(factors)) if factors else 1
        outer = _ceildiv(dim, block)
        widths.append(0 if block == 1 or not isinstance(dim, int) else int(outer) * block - dim)
        if not isinstance(dim, int) and block > 1:
            raise CannotConvert("an axis that is split needs a size that is known; give it by --shape")
        shape += [outer, *factors]
    if any(widths) and not is_empty(shape):
        zero = 0.0 if "float" in dtype_of(x) else 0
        x = emit(op.nn.pad(x, [n for width in widths for n in (0, width)], pad_value=zero))
    if is_empty(shape):
        x = emit(op.zeros(as_shape(shape), dtype_of(x)))
    else:
        x = reshaped(emit, x, shape)
    place = [axis for group in groups for axis in group]
    return transposed(emit, x, [place.index(axis) for axis in range(len(place))])


def _groups(axes: list[tuple[str, int]], order: list[str]) -> list[list[int]]:
    """Return for each letter its axes: the whole one, then its parts, the outermost first."""
    names = [name for name, _ in axes]
    return [
        [names.index(letter), *(i for i, name in enumerate(names) if name == letter.lower())]
        for letter in order
    ]


def _ceildiv(dim: Dim, block: int) -> Dim:
    if block == 1:
        return dim
    return -(-dim // block) if isinstance(dim, int) else tirx.ceildiv(dim, block)


@TABLE.operator("auto_scheduler_layout_transform")
def auto_scheduler_layout_transform(emit, attrs, x):
    """Convert a layout such as ``8a4b`` to one such as ``2a4b4a``: axes split and reordered."""
    source, target = (_sized_axes(str(attrs[name])) for name in ("src_layout", "dst_layout"))
    names = [name for name, _ in source]
    sizes = dict(source)
    if len(sizes) != len(names) or {name for name, _ in target} != set(names):
        raise CannotConvert(f"{attrs.src_layout!r} and {attrs.dst_layout!r} have other axes")
    if [size for _, size in source] != shape_of(x):
        raise CannotConvert(f"the tensor is not of layout {attrs.src_layout!r}")
    groups = [[i for i, (axis, _) in enumerate(target) if axis == name] for name in names]
    for name, group in zip(names, groups):
        if product([target[i][1] for i in group]) != sizes[name]:
            raise CannotConvert(f"axis {name} of {sizes[name]} is not split as {attrs.dst_layout!r} says")
    place = [i for group in groups for i in group]
    x = reshaped(emit, x, [target[i][1] for i in place])
    return transposed(emit, x, [place.index(i) for i in range(len(place))])


def _sized_axes(layout: str) -> list[tuple[str, int]]:
    found = _SIZED_AXIS.findall(layout)
    if not found or "".join(size + name for size, name in found) != layout:
        raise CannotConvert(f"{layout!r} is not a layout of sized axes")
    return [(name, int(size)) for size, name in found]
