"""Types of a Relay program as Relax types, and whether a value agrees with one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from tvm import relax, tirx

from .ast import FunctionType, NamedType, TensorType, TupleType, Type
from .table import Value

DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "bfloat16"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)

MAX_ELEMENTS = 1 << 48
"""A larger tensor fits no address space, and index arithmetic on it may overflow."""

Fresh = Callable[[int], Any]
"""Gives the Relax dim of an unknown one, by its axis."""


class BadType(Exception):
    """A type has no Relax form; the text says why."""


def tensor_type(ty: TensorType, fresh: Fresh):
    """Return a tensor type in Relax; raises `BadType`."""
    dtype = "bool" if ty.dtype in ("uint1", "int1") else ty.dtype
    if dtype not in DTYPES:
        raise BadType(f"dtype {ty.dtype} has no Relax form")
    sizes = [dim for dim in ty.shape if dim is not None]
    if any(dim < 0 for dim in sizes):
        raise BadType(f"{text(ty)} has a negative size")
    if too_large(sizes):
        raise BadType(f"{text(ty)} has more elements than any memory holds")
    dims = [fresh(axis) if dim is None else tirx.IntImm("int64", dim) for axis, dim in enumerate(ty.shape)]
    return relax.TensorType(dims, dtype)


def too_large(sizes: Iterable[int]) -> bool:
    """Say whether a tensor of these sizes, or a part of it along some of them, fits no memory."""
    known = list(sizes)
    return max(known, default=0) > MAX_ELEMENTS or math.prod(known) > MAX_ELEMENTS


def leaves(ty: Type | None, name: str) -> list[tuple[str, TensorType]]:
    """Return the tensors of a type by name: ``x``, or ``x.0``, ``x.1.0`` inside tuples; raises `BadType`."""
    if isinstance(ty, TensorType):
        return [(name, ty)]
    if isinstance(ty, TupleType):
        return [leaf for index, item in enumerate(ty.fields) for leaf in leaves(item, f"{name}.{index}")]
    if ty is None:
        raise BadType("the type is not stated")
    raise BadType(f"a value of type {text(ty)} has no Relax form")


def is_data(ty: Type | None) -> bool:
    """Say whether a declared type is of tensors alone."""
    if isinstance(ty, TupleType):
        return all(is_data(item) for item in ty.fields)
    return isinstance(ty, TensorType)


def has_open_dims(ty: Type | None) -> bool:
    """Say whether a declared type leaves a dim of a tensor open."""
    if isinstance(ty, TupleType):
        return any(has_open_dims(item) for item in ty.fields)
    return isinstance(ty, TensorType) and None in ty.shape


def structured(ty: Type | None, items: Callable[[], Value]) -> Value:
    """Return values, taken one after the other, in the tuples of ``ty``."""
    if isinstance(ty, TupleType):
        return tuple(structured(item, items) for item in ty.fields)
    return items()


def disagreement(ty: Type | None, value: Value) -> str | None:
    """Say how ``value`` contradicts the declared type; None where it does not.

    Types and dims that are not stated agree with everything.
    """
    if ty is None:
        return None
    if isinstance(ty, TupleType):
        if not isinstance(value, tuple):
            return f"{text(ty)} is declared, the value is {text_of(value)}"
        if len(value) != len(ty.fields):
            return f"a tuple of {len(ty.fields)} is declared, the value has {len(value)} items"
        found = (disagreement(item, part) for item, part in zip(ty.fields, value))
        return next((reason for reason in found if reason), None)
    if isinstance(ty, TensorType):
        found_type = getattr(value, "ty", None)
        if not isinstance(found_type, relax.TensorType) or not _agrees(ty, found_type):
            return f"{text(ty)} is declared, the value is {text_of(value)}"
        return None
    if isinstance(ty, FunctionType) and (isinstance(value, tuple) or hasattr(value, "ty")):
        return f"{text(ty)} is declared, the value is {text_of(value)}"
    return None


def _agrees(ty: TensorType, found) -> bool:
    dtype = "bool" if ty.dtype in ("uint1", "int1") else ty.dtype
    if str(found.dtype) != dtype:
        return False
    if not isinstance(found.shape, relax.ShapeExpr):
        return found.ndim in (-1, len(ty.shape))
    dims = list(found.shape.values)
    return len(dims) == len(ty.shape) and all(
        want is None or not isinstance(dim, tirx.IntImm) or int(dim) == want
        for want, dim in zip(ty.shape, dims)
    )


def text(ty: Type | None) -> str:
    """Return a type as Relay prints it."""
    if ty is None:
        return "_"
    if isinstance(ty, TensorType):
        if not ty.shape:
            return ty.dtype
        return f"Tensor[({', '.join('?' if dim is None else str(dim) for dim in ty.shape)}), {ty.dtype}]"
    if isinstance(ty, TupleType):
        return f"({', '.join(text(item) for item in ty.fields)})"
    if isinstance(ty, FunctionType):
        return f"fn ({', '.join(text(item) for item in ty.params)}) -> {text(ty.result)}"
    assert isinstance(ty, NamedType)
    return ty.name + (f"[{', '.join(text(item) for item in ty.arguments)}]" if ty.arguments else "")


def text_of(value: Value) -> str:
    """Return the type of a value in Relay's words, with symbolic dims by name."""
    if isinstance(value, tuple):
        return f"({', '.join(text_of(item) for item in value)})"
    ty = getattr(value, "ty", None)
    if not isinstance(ty, relax.TensorType):
        return "a function"
    if not isinstance(ty.shape, relax.ShapeExpr):
        return f"a tensor of {'unknown rank' if ty.ndim < 0 else f'rank {ty.ndim}'}, {ty.dtype}"
    dims = [str(int(dim)) if isinstance(dim, tirx.IntImm) else str(dim) for dim in ty.shape.values]
    return f"Tensor[({', '.join(dims)}), {ty.dtype}]" if dims else str(ty.dtype)


def flat(value: Value) -> list[Any]:
    """Return the tensors and functions of a value, nested tuples flattened."""
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def rebuilt(value: Value, leaf: Callable[[Any], Value]) -> Value:
    """Return the tuples of ``value`` with ``leaf`` of each of its leaves, in order."""
    if isinstance(value, tuple):
        return tuple(rebuilt(item, leaf) for item in value)
    return leaf(value)


def symbols(ty) -> list[tirx.Var]:
    """Return the symbolic variables in a tensor's type, each once."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return []
    if all(isinstance(dim, tirx.IntImm) for dim in ty.shape.values):
        return []
    return list(dict.fromkeys(relax.analysis.tir_vars_in_type(ty)))
