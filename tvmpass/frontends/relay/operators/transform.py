"""Operators that move elements: reshapes, axes, joins and splits, repetition.

Slices are in `slices`, layouts in `relayout`; `TABLE` has them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tvm import relax, tirx

from ..table import Attrs, CannotConvert, Emitter, Table, merged
from . import dynamic, relayout, slices
from .facts import Dim, as_shape, dtype_of, normal_axis, rank_of, shape_of
from .shapes import (
    cast,
    is_empty,
    numbers,
    product,
    quotient,
    require_same,
    reshaped,
    simplified,
    told,
    transposed,
)

op = relax.op
_OWN = Table()

# Beyond these a program is damaged, and would take all memory before a size is looked at.
_MOST_AXES = 100
_MOST_PARTS = 10_000
_MOST_REPEATS = (1 << 31) - 1


def new_shape(old: Sequence[Dim], asked: Sequence[int], allow_zero: bool) -> list[Dim]:
    """Return the shape that Relay's special sizes ask for.

    0 copies the size at its place (with ``allow_zero`` it is 0), -1 is what is
    left over, -2 copies all remaining sizes, -3 merges two, -4 splits one into
    the two sizes that follow (of which one may be -1).
    """
    made: list[Dim] = []
    at, inferred = 0, None
    read: set[int] = set()
    settled: set[int] = set()
    sizes = iter(asked)

    def take() -> Dim:
        nonlocal at
        if at >= len(old):
            raise CannotConvert(f"the new shape {list(asked)} reads more sizes than {told(old)} has")
        read.add(at)
        at += 1
        return old[at - 1]

    def settle(size: Dim) -> None:
        settled.add(len(made))
        made.append(size)

    for size in sizes:
        if size > 0 or (size == 0 and allow_zero):
            made.append(size)
            at += 1
        elif size == 0:
            settle(take())
        elif size == -1:
            if inferred is not None:
                raise CannotConvert(f"the new shape {list(asked)} has -1 more than once")
            inferred = len(made)
            made.append(1)
            at += 1
        elif size == -2:
            while at < len(old):
                settle(take())
        elif size == -3:
            settle(product([take(), take()]))
        elif size == -4:
            for part in _parts(take(), next(sizes, None), next(sizes, None), asked):
                settle(part)
        else:
            raise CannotConvert(f"the new shape {list(asked)} has {size}, which means nothing")
    if inferred is not None:
        free = [dim for i, dim in enumerate(old) if i not in read]
        made[inferred] = quotient(free, [dim for i, dim in enumerate(made) if i not in settled])
    return made


def _parts(whole: Dim, left: int | None, right: int | None, asked: Sequence[int]) -> list[Dim]:
    if left is None or right is None or (left == -1 and right == -1):
        raise CannotConvert(f"the new shape {list(asked)} has a -4 without two sizes, of which one may be -1")
    if left == -1:
        return [quotient([whole], [right]), right]
    return [left, quotient([whole], [left]) if right == -1 else right]


def _asked(emit: Emitter, attrs: Attrs, name: str, args: Sequence[Any], what: str) -> list[int]:
    """Return a list of integers that is an attribute, or an operand in the ``dyn`` forms."""
    stated = attrs.ints(name)
    if stated is not None:
        return stated
    if not args:
        raise CannotConvert(f"{name} is not stated")
    return numbers(emit, args[0], what)


@_OWN.operator("reshape", "dyn.reshape")
def reshape(emit, attrs, x, *shape):
    if not dynamic.is_known(emit, shape):
        return dynamic.reshape(emit, x, shape[0], bool(attrs.allowzero))
    asked = _asked(emit, attrs, "newshape", shape, "the new shape")
    if attrs.get("reverse"):
        return _reversed_reshape(emit, attrs, x, asked)
    return reshaped(emit, x, new_shape(shape_of(x), asked, bool(attrs.allowzero)))


@_OWN.operator("contrib_reverse_reshape", "_contrib_reverse_reshape")
def reverse_reshape(emit, attrs, x):
    return _reversed_reshape(emit, attrs, x, _asked(emit, attrs, "newshape", (), ""))


def _reversed_reshape(emit, attrs, x, asked):
    """Reshape with special sizes read from the right."""
    made = new_shape(shape_of(x)[::-1], asked[::-1], bool(attrs.get("allowzero")))
    return reshaped(emit, x, made[::-1])


@_OWN.operator("reshape_like")
def reshape_like(emit, attrs, x, like):
    old, other = shape_of(x), shape_of(like)

    def span(begin, end, rank):
        begin, end = int(begin), rank if end is None else int(end)
        begin, end = (bound + rank if bound < 0 else bound for bound in (begin, end))
        if not (0 <= begin <= rank and 0 <= end <= rank):
            raise CannotConvert(f"axes {begin} to {end} are out of range for rank {rank}")
        return begin, end

    left, left_end = span(attrs.lhs_begin, attrs.lhs_end, len(old))
    right, right_end = span(attrs.rhs_begin, attrs.rhs_end, len(other))
    shape = [*old[:left], *other[right:right_end], *old[left_end:]]
    if not (is_static(old) and is_static(shape)):
        # Cancel what both have; what is left over must be the same number.
        require_same(quotient(old, shape), 1, "the numbers of elements of both shapes")
    return reshaped(emit, x, shape)


def is_static(shape: Sequence[Dim]) -> bool:
    """Say whether every size is known."""
    return all(isinstance(dim, int) for dim in shape)


@_OWN.operator("transpose")
def transpose(emit, attrs, x):
    rank = rank_of(x)
    axes = attrs.ints("axes")
    axes = list(range(rank))[::-1] if axes is None else [normal_axis(axis, rank) for axis in axes]
    if sorted(axes) != list(range(rank)):
        raise CannotConvert(f"axes {axes} do not name each of {rank} axes once")
    return transposed(emit, x, axes)


@_OWN.operator("squeeze", "dyn.squeeze")
def squeeze(emit, attrs, x, *axes):
    shape = shape_of(x)
    given = attrs.ints("axis") if not axes else numbers(emit, axes[0], "the axes")
    if given is None:
        if not is_static(shape):
            raise CannotConvert("without axes it needs sizes that are known; give them by --shape")
        given = [i for i, dim in enumerate(shape) if dim == 1]
    gone = {normal_axis(axis, len(shape)) for axis in given}
    for axis in sorted(gone):
        require_same(shape[axis], 1, f"the size of the axis {axis} that goes and 1")
    return reshaped_by(emit, x, op.squeeze, sorted(gone))


def reshaped_by(emit: Emitter, x: Any, operator, axes: list[int]) -> Any:
    """Return ``x`` with axes added or removed, itself where there are none."""
    return emit(operator(x, axes)) if axes else x


@_OWN.operator("expand_dims")
def expand_dims(emit, attrs, x):
    rank, count = rank_of(x), int(attrs.num_newaxis)
    axis = _new_axis(int(attrs.axis), rank)
    if count < 0:
        raise CannotConvert(f"num_newaxis is {count}")
    if count > _MOST_AXES:
        raise CannotConvert(f"num_newaxis is {count}, more than {_MOST_AXES}")
    return reshaped_by(emit, x, op.expand_dims, list(range(axis, axis + count)))


@_OWN.operator("dyn.expand_dims")
def dyn_expand_dims(emit, attrs, x, axis):
    count = attrs.get("num_newaxis", 1)
    at = [_new_axis(value, rank_of(x)) for value in numbers(emit, axis, "the axis")]
    if len(at) != 1:
        raise CannotConvert(f"it needs one axis, not {len(at)}")
    return reshaped_by(emit, x, op.expand_dims, list(range(at[0], at[0] + int(count))))


def _new_axis(axis: int, rank: int) -> int:
    """Return the place of a new axis, counted from the front."""
    if not -rank - 1 <= axis <= rank:
        raise CannotConvert(f"axis {axis} is out of range for a new axis of rank {rank}")
    return axis + rank + 1 if axis < 0 else axis


def joined(emit: Emitter, parts: Sequence[Any], axis: int) -> Any:
    """Return tensors one after the other along an axis; all other sizes must agree."""
    first = shape_of(parts[0])
    for part in parts[1:]:
        shape = shape_of(part)
        if len(shape) != len(first) or dtype_of(part) != dtype_of(parts[0]):
            raise CannotConvert(
                f"{dtype_of(part)} of rank {len(shape)} does not join "
                f"{dtype_of(parts[0])} of rank {len(first)}"
            )
        for i, (one, other) in enumerate(zip(first, shape)):
            if i != axis:
                require_same(one, other, f"the sizes of axis {i} of what is joined")
    if len(parts) == 1:
        return parts[0]
    length = sum_of([shape_of(part)[axis] for part in parts])
    shape = [*first[:axis], length, *first[axis + 1 :]]
    if is_empty(shape):
        return emit(op.zeros(as_shape(shape), dtype_of(parts[0])))
    kept = [part for part in parts if not is_empty(shape_of(part))]
    return kept[0] if len(kept) == 1 else emit(op.concat(kept, axis))


def sum_of(dims: Sequence[Dim]) -> Dim:
    """Return the sum of sizes, an int where all are known."""
    total: Dim = 0
    for dim in dims:
        total = total + dim
    return simplified(total)


@_OWN.operator("concatenate")
def concatenate(emit, attrs, data):
    parts = _fields(data)
    return joined(emit, parts, normal_axis(int(attrs.axis), rank_of(parts[0])))


@_OWN.operator("stack")
def stack(emit, attrs, data):
    parts = _fields(data)
    axis = _new_axis(int(attrs.axis), rank_of(parts[0]))
    for part in parts[1:]:
        if rank_of(part) == rank_of(parts[0]):
            for i, (one, other) in enumerate(zip(shape_of(parts[0]), shape_of(part))):
                require_same(one, other, f"the sizes of axis {i} of what is stacked")
    return joined(emit, [emit(op.expand_dims(part, axis)) for part in parts], axis)


def _fields(data: Any) -> Sequence[Any]:
    if not isinstance(data, (tuple, list)):
        raise CannotConvert("it takes a tuple of tensors")
    parts = data
    if not parts:
        raise CannotConvert("it joins an empty tuple")
    return parts


@_OWN.operator("split")
def split(emit, attrs, x):
    shape = shape_of(x)
    axis = normal_axis(int(attrs.axis), len(shape))
    length = shape[axis]
    asked = attrs.indices_or_sections
    if isinstance(asked, (list, tuple)):
        bounds: list[Dim] = [0, *attrs.ints("indices_or_sections"), length]
        known = [bound for bound in bounds if isinstance(bound, int)]
        if any(low >= high for low, high in pairwise(known)):
            raise CannotConvert(f"the places {list(asked)} do not rise from 0 to {length}")
    else:
        count = int(asked)
        if count > _MOST_PARTS:
            raise CannotConvert(f"{count} parts are more than {_MOST_PARTS}")
        if count < 1 or (isinstance(length, int) and length % count):
            raise CannotConvert(f"an axis of {length} is not split into {count} equal parts")
        part = length // count if isinstance(length, int) else tirx.floordiv(length, count)
        bounds = [part * i for i in range(count + 1)]
    if len(bounds) == 2:
        return (x,)
    if not isinstance(length, int):
        pairs = list(pairwise(bounds))
        inside = not isinstance(asked, (list, tuple))
        return tuple(
            emit(op.strided_slice(x, [axis], [low], [high], assume_inbound=inside)) for low, high in pairs
        )
    if is_empty(shape):
        sizes = [high - low for low, high in pairwise(bounds)]
        return tuple(
            emit(op.zeros(as_shape([*shape[:axis], size, *shape[axis + 1 :]]), dtype_of(x))) for size in sizes
        )
    parts = emit(op.split(x, [int(bound) for bound in bounds[1:-1]], axis))
    return tuple(emit(relax.TupleGetItem(parts, i)) for i in range(len(bounds) - 1))


@_OWN.operator("tile", "dyn.tile")
def tile(emit, attrs, x, *reps):
    if not dynamic.is_known(emit, reps):
        return dynamic.tile(emit, x, reps[0])
    counts = _asked(emit, attrs, "reps", reps, "the number of repetitions")
    if any(count < 1 for count in counts) and not reps:
        raise CannotConvert(f"reps {counts} must be positive")
    old = shape_of(x)
    rank = max(len(old), len(counts))
    old = [1] * (rank - len(old)) + old
    counts = [1] * (rank - len(counts)) + counts
    if all(count == 1 for count in counts):
        return reshaped(emit, x, old)
    shape = [dim * count for dim, count in zip(old, counts)]
    if is_empty(shape):
        return emit(op.zeros(as_shape(shape), dtype_of(x)))
    return emit(op.tile(x, counts))


@_OWN.operator("repeat")
def repeat(emit, attrs, x):
    shape, count = shape_of(x), int(attrs.repeats)
    axis = normal_axis(int(attrs.axis or 0), len(shape))
    if count < 1:
        raise CannotConvert(f"repeats is {count}")
    if count > _MOST_REPEATS:
        raise CannotConvert(f"repeats is {count}, more than {_MOST_REPEATS}")
    if count == 1 or is_empty(shape):
        shape[axis] = shape[axis] * count
        return x if count == 1 else emit(op.zeros(as_shape(shape), dtype_of(x)))
    return emit(op.repeat(x, count, axis))


@_OWN.operator("reverse")
def reverse(emit, attrs, x):
    return op.flip(x, normal_axis(int(attrs.axis or 0), rank_of(x)))


@_OWN.operator("reverse_sequence")
def reverse_sequence(emit, attrs, x, lengths):
    shape = shape_of(x)
    axis, batch = (normal_axis(int(attrs[name]), len(shape)) for name in ("seq_axis", "batch_axis"))
    if rank_of(lengths) != 1:
        raise CannotConvert(f"the lengths have rank {rank_of(lengths)}, not 1")
    require_same(shape_of(lengths)[0], shape[batch], "the number of lengths and the batch")
    return op.reverse_sequence(x, cast(emit, lengths, "int64"), axis, batch)


@_OWN.operator("broadcast_to", "dyn.broadcast_to")
def broadcast_to(emit, attrs, x, *shape):
    if not dynamic.is_known(emit, shape):
        return dynamic.broadcast(emit, x, shape[0])
    return spread(emit, x, _asked(emit, attrs, "shape", shape, "the shape"))


@_OWN.operator("broadcast_to_like")
def broadcast_to_like(emit, attrs, x, like):
    return spread(emit, x, shape_of(like))


def spread(emit: Emitter, x: Any, shape: Sequence[Dim]) -> Any:
    """Return ``x`` repeated along axes of size 1 and new leading ones, to a shape."""
    old = shape_of(x)
    if len(old) > len(shape):
        raise CannotConvert(f"{told(old)} is not broadcast to {told(shape)}")
    for axis, (dim, wanted) in enumerate(zip(old[::-1], list(shape)[::-1])):
        if not (isinstance(dim, int) and dim == 1):
            require_same(
                dim, wanted, f"the sizes of axis {len(shape) - 1 - axis} of {told(old)} and {told(shape)}"
            )
    if is_empty(shape):
        return emit(op.zeros(as_shape(shape), dtype_of(x)))
    return emit(op.broadcast_to(x, as_shape(shape)))


TABLE = Table(merged([_OWN, slices.TABLE, relayout.TABLE]))
