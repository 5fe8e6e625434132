"""The parameters of ``@main``: inputs with their dims, and bound parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax, tirx

from tvmpass.core.constants import make_constant
from tvmpass.core.errors import UsageError, nearest
from tvmpass.frontends.sizes import MAX_ELEMENTS

from .ast import Function, TensorType
from .table import Value
from .types import leaves, structured, tensor_type, text

Dim = int | str


@dataclass
class Inputs:
    """What stands for the parameters of a function that is called from outside."""

    values: list[Value] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    dims: dict[Any, list[str]] = field(default_factory=dict)
    """Of each symbol the dims it stands for, in words."""


def bind_inputs(
    function: Function, params: Mapping[str, np.ndarray] | None, shapes: Mapping[str, Sequence[Dim]] | None
) -> Inputs:
    """Return a variable for each tensor among the parameters, a constant where ``params`` has it.

    A tuple becomes its tensors, named ``t.0``, ``t.1``.  ``shapes`` gives dims that
    the program leaves open (``?``): sizes, or words that stay symbolic; other
    open dims get a symbol each.  Names in ``params`` that the program lacks are
    left, as Relay does, unless none is there.  Raises `UsageError` for what
    does not fit and `types.BadType` for a parameter of no tensor type.
    """
    shapes = dict(shapes or {})
    tensors = [leaf for var in function.params for leaf in leaves(var.type, var.name or "input")]
    names = _unique(name for name, _ in tensors)
    params = _as_printed(params or {}, names)
    doubled = sorted({name for name, _ in tensors if name in params and _count(tensors, name) > 1})
    if doubled:
        raise UsageError(f"parameter {doubled[0]!r} is given, but several inputs have that name")
    bound = {name for name in names if name in params}
    open_names = [name for name in names if name not in bound]
    _check_names(params, bound, shapes, open_names, names)
    inputs = Inputs()
    symbols: dict[str, tirx.Var] = {}
    words = frozenset(dim for dims in shapes.values() for dim in dims if isinstance(dim, str))
    tensors_left = iter(zip(names, (ty for _, ty in tensors)))

    def take() -> Any:
        name, ty = next(tensors_left)
        if name in bound:
            return _constant(name, ty, params[name])
        variable = relax.Var(name, _input_type(name, ty, shapes.get(name), symbols, inputs.dims, words))
        inputs.variables.append(variable)
        inputs.names.append(name)
        return variable

    inputs.values = [structured(var.type, take) for var in function.params]
    return inputs


def _count(tensors: list[tuple[str, TensorType]], name: str) -> int:
    return sum(other == name for other, _ in tensors)


def _unique(names: Iterable[str]) -> list[str]:
    """Return names with a number behind those that occurred before, as Relay prints them."""
    found: dict[str, None] = {}
    for name in names:
        new, number = name, 0
        while new in found:
            number += 1
            new = f"{name}{number}"
        found[new] = None
    return list(found)


def _as_printed(params: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return parameters by the names of the program.

    Where a name does not begin with a letter, Relay prints a v before it: the
    parameter ``0.weight`` of a file is ``v0.weight`` in text.
    """
    found = dict(params)
    for name in params:
        printed = "v" + name
        if name not in names and printed in names and printed not in params and not name[:1].isalpha():
            found[printed] = found.pop(name)
    return found


def _check_names(params, bound, shapes, open_names, names) -> None:
    known = ", ".join(names) or "none"
    if params and not bound:
        name = next(iter(params))
        more = ", ..." if len(params) > 1 else ""
        raise UsageError(
            f"none of the given parameters ({name!r}{more}) is a parameter of @main{nearest(name, names)}; "
            f"these are: {known}"
        )
    for name in shapes:
        if name in bound:
            raise UsageError(f"{name!r} is in shapes, but it is a parameter with a value")
        if name not in open_names:
            raise UsageError(
                f"unknown input {name!r} in shapes{nearest(name, open_names)}; the program's inputs are: "
                f"{', '.join(open_names) or 'none'}"
            )


def _constant(name: str, ty: TensorType, array: np.ndarray):
    array = np.asarray(array)
    shape = ty.shape
    fits = len(shape) == array.ndim and all(dim in (None, size) for dim, size in zip(shape, array.shape))
    dtype = "bool" if ty.dtype == "uint1" else ty.dtype
    if not fits or str(array.dtype) != dtype:
        given = text(TensorType(array.shape, str(array.dtype)))
        raise UsageError(f"parameter {name!r} is declared {text(ty)}, but {given} was given")
    tensor_type(ty, lambda axis: tirx.IntImm("int64", array.shape[axis]))
    return make_constant(array)


def _input_type(
    name: str,
    ty: TensorType,
    given: Sequence[Dim] | None,
    symbols: dict[str, tirx.Var],
    dims: dict[Any, list[str]],
    words: frozenset[str],
):
    if given is not None:
        _check_given(name, ty, given)

    def fresh(axis: int):
        dim = given[axis] if given is not None else None
        if isinstance(dim, int):
            return tirx.IntImm("int64", dim)
        word = dim if dim is not None else re.sub(r"\W", "_", f"{name}_{axis}")
        if dim is None:
            # An input named n_0 beside dim 0 of n, or a word that the caller uses.
            while word in symbols or word in words:
                word += "_"
        symbol = symbols.setdefault(word, tirx.Var(word, "int64"))
        dims.setdefault(symbol, []).append(f"dim {axis} of input {name!r}")
        return symbol

    return tensor_type(ty, fresh)


def _check_given(name: str, ty: TensorType, given: Sequence[Dim]) -> None:
    for dim in given:
        valid = dim.isidentifier() if isinstance(dim, str) else isinstance(dim, int) and dim >= 0
        if not valid or isinstance(dim, bool):
            raise UsageError(f"shape of input {name!r}: {dim!r} is neither a size nor a name like 'n'")
        if not isinstance(dim, str) and dim > MAX_ELEMENTS:
            raise UsageError(f"shape of input {name!r}: {dim} is more than any memory holds")
    wanted = ",".join(str(dim) for dim in given)
    if len(given) != len(ty.shape):
        raise UsageError(f"input {name!r} is {text(ty)}, which has {len(ty.shape)} dims; {wanted} was given")
    for axis, (new, old) in enumerate(zip(given, ty.shape)):
        if old is not None and new != old:
            raise UsageError(f"input {name!r} has dim {axis} fixed at {old}, but {new} was given")
