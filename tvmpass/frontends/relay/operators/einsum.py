"""Sums of products by Einstein's convention: matrix products where they are some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tvm import relax

from ..table import CannotConvert, Table
from .facts import Dim, as_shape, dtype_of, product, rank_of, shape_of
from .shapes import require_same, reshaped

TABLE = Table()

_ELLIPSIS = "..."


def _labels(term: str, rank: int, spare: str) -> str:
    """Return a term with one label per axis; the axes of an ellipsis take the last of ``spare``."""
    letters = term.replace(_ELLIPSIS, "")
    if _ELLIPSIS in term:
        open_axes = rank - len(letters)
        if open_axes < 0 or term.count(_ELLIPSIS) > 1:
            raise CannotConvert(f"{term} does not fit a tensor of rank {rank}")
        term = term.replace(_ELLIPSIS, spare[len(spare) - open_axes :])
    if len(term) != rank or not (term.isalpha() or not term):
        raise CannotConvert(f"{term} does not fit a tensor of rank {rank}")
    return term


def parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, those of ellipses and implicit ones filled in.

    Raises `CannotConvert` for what is no equation of operands of these ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise CannotConvert(f"{equation} has {len(terms)} operands, {len(ranks)} are given")
    spare = "".join(sorted(set("ABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(equation)))
    widths = [r - len(t.replace(_ELLIPSIS, "")) for t, r in zip(terms, ranks) if _ELLIPSIS in t]
    width = max(widths, default=0)
    operands = [_labels(term, rank, spare) for term, rank in zip(terms, ranks)]
    shared = spare[len(spare) - width :] if width else ""
    counts = Counter("".join(operands))
    if arrow:
        result = right.replace(_ELLIPSIS, shared)
    else:
        result = shared + "".join(sorted(c for c, n in counts.items() if n == 1 and c not in shared))
    if len(set(result)) != len(result) or not set(result) <= set(counts):
        raise CannotConvert(f"{equation} has a result with unknown or repeated labels")
    return operands, result


def is_one(size: Dim) -> bool:
    """Say whether a size is known to be 1."""
    return isinstance(size, int) and size == 1


def _diagonal_free(operands: Sequence[str]) -> bool:
    return all(len(set(labels)) == len(labels) for labels in operands)


@TABLE.operator("einsum")
def einsum(emit, attrs, tensors):
    """Sum products of tensors over the labels that the result does not name."""
    tensors = list(tensors)
    if len({dtype_of(tensor) for tensor in tensors}) > 1:
        raise CannotConvert("its operands have different dtypes")
    operands, result = parsed(str(attrs.equation), [rank_of(tensor) for tensor in tensors])
    if dtype_of(tensors[0]) == "bool":
        raise CannotConvert("it is not defined on bool")
    if not _diagonal_free(operands):
        written = f"{','.join(operands)}->{result}"
        return relax.op.einsum(tuple(tensors), written)
    sizes: dict[str, Dim] = {}
    for tensor, labels in zip(tensors, operands):
        for label, size in zip(labels, shape_of(tensor)):
            if label not in sizes or is_one(sizes[label]):
                sizes[label] = size
            elif not is_one(size):
                require_same(sizes[label], size, f"the sizes of label {label}")
    total, labels = tensors[0], operands[0]
    for position in range(1, len(tensors)):
        later = set(result).union(*operands[position + 1 :])
        total, labels = _pair(emit, total, labels, tensors[position], operands[position], later, sizes)
    total, labels = _summed(emit, total, labels, set(result))
    total = (
        emit(relax.op.permute_dims(total, [labels.index(c) for c in result])) if labels != result else total
    )
    wanted = [sizes[label] for label in result]
    return total if shape_of(total) == wanted else relax.op.broadcast_to(total, as_shape(wanted))


def _summed(emit, tensor, labels: str, kept: set[str]):
    """Sum over the labels that are not kept."""
    axes = [axis for axis, label in enumerate(labels) if label not in kept]
    if not axes:
        return tensor, labels
    return emit(relax.op.sum(tensor, axes)), "".join(label for label in labels if label in kept)


def _pair(emit, a, a_labels: str, b, b_labels: str, kept: set[str], sizes: dict[str, Dim]):
    """Multiply two tensors and sum over what is not kept, as one batched matrix product."""
    a, a_labels = _summed(emit, a, a_labels, kept | set(b_labels))
    b, b_labels = _summed(emit, b, b_labels, kept | set(a_labels))
    batch = "".join(c for c in a_labels if c in b_labels and c in kept)
    inner = "".join(c for c in a_labels if c in b_labels and c not in kept)
    left = "".join(c for c in a_labels if c not in b_labels)
    right = "".join(c for c in b_labels if c not in a_labels)

    def arranged(tensor, labels: str, *groups: str):
        order = "".join(groups)
        if order != labels:
            tensor = emit(relax.op.permute_dims(tensor, [labels.index(c) for c in order]))
        common = [sizes[c] if c in batch or c in inner else s for c, s in zip(order, shape_of(tensor))]
        if shape_of(tensor) != common:
            tensor = emit(relax.op.broadcast_to(tensor, as_shape(common)))
        matrix = [product([sizes[c] for c in group]) for group in groups[1:]]
        shape = [*(sizes[c] for c in batch), *matrix]
        return tensor if all(len(group) == 1 for group in groups[1:]) else reshaped(emit, tensor, shape)

    dtype = dtype_of(a)
    if not inner:
        spread_a = arranged(a, a_labels, batch, left, "")
        spread_b = arranged(b, b_labels, batch, "", right)
        made = emit(relax.op.multiply(spread_a, spread_b))
    else:
        made = emit(
            relax.op.matmul(
                arranged(a, a_labels, batch, left, inner),
                arranged(b, b_labels, batch, inner, right),
                out_dtype=dtype,
            )
        )
    labels = batch + left + right
    return reshaped(emit, made, [sizes[c] for c in labels]), labels
