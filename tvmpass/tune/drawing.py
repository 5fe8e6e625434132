"""Arguments for a kernel: which are outputs, what the inputs may hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from tvmpass.compile.verify_inputs import draw_array
from tvmpass.core.analysis.types import EXAMPLE_EXTENT
from tvmpass.core.nest import REDUCE, as_int, loads, substitute, walk_blocks
from tvmpass.core.padding import finite_parameters
from tvmpass.cost.extents import extent_value

INPUT, OUTPUT, INOUT, SCALAR = "input", "output", "inout", "scalar"

_TERMS = 4096
"""Terms of a sum up to which the tolerance by dtype holds; the error grows with their root."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel: its role, and its dtype and shape or its value."""

    role: str
    dtype: str
    shape: tuple[int, ...] = ()
    value: int = 0

    @property
    def bytes(self) -> int:
        """Return the size of the array, 0 for a scalar."""
        return 0 if self.role == SCALAR else math.prod(self.shape) * item_bytes(self.dtype)


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element as numpy keeps it."""
    return 1 if dtype == "bool" else (int(tvm_ffi.dtype(dtype).bits) + 7) // 8


def symbols_of(function: tirx.PrimFunc) -> list[Any]:
    """Return the symbolic dimensions of a kernel, in the order of its parameters."""
    found: dict[Any, None] = {}

    def note(variable) -> None:
        if not is_buffer_var(variable):
            found.setdefault(variable)

    for parameter in function.params:
        if is_buffer_var(parameter):
            for dim in parameter.ty.shape:
                tvm_ffi.structural_walk(dim, [(tirx.Var, note)])
        else:
            found.setdefault(parameter)
    return list(found)


def arguments_of(function: tirx.PrimFunc, extents: Mapping[Any, int]) -> list[Argument]:
    """Return the arguments of a kernel, in order, symbolic dimensions at ``extents``."""
    roles = _roles(function)
    values = {var: tirx.const(extent, str(var.ty.dtype)) for var, extent in extents.items()}
    analyzer = tvm.sym.Analyzer()
    made = []
    for parameter in function.params:
        if is_buffer_var(parameter):
            shape = tuple(_value(dim, values, analyzer) for dim in parameter.ty.shape)
            made.append(Argument(roles[parameter], str(parameter.ty.dtype), shape))
        else:
            made.append(Argument(SCALAR, str(parameter.ty.dtype), value=extents[parameter]))
    return made


def argument_bytes(function: tirx.PrimFunc) -> int:
    """Return the size of a kernel's arrays, symbolic dimensions by example."""
    extents = dict.fromkeys(symbols_of(function), EXAMPLE_EXTENT)
    return sum(argument.bytes for argument in arguments_of(function, extents))


def _value(dim: Any, values: Mapping[Any, Any], analyzer: Any) -> int:
    known = as_int(dim)
    return known if known is not None else int(analyzer.simplify(substitute(dim, values)))


def _roles(function: tirx.PrimFunc) -> dict[Any, str]:
    """Tell inputs, outputs, and outputs whose old content is read first, apart."""
    cleared: set[Any] = set()
    stored: set[Any] = set()
    read_first: set[Any] = set()

    def block(node) -> None:
        if node.init is not None:
            tvm_ffi.structural_walk(node.init, [(tirx.BufferStore, lambda s: cleared.add(s.buffer))])

    def load(node) -> None:
        if node.source not in stored and node.source not in cleared:
            read_first.add(node.source)

    def store(node) -> None:
        stored.add(node.buffer)

    tvm_ffi.structural_walk(function.body, [(s_tir.SBlock, block)])
    visitors = [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]
    tvm_ffi.structural_walk(function.body, visitors, order="post")
    buffers = [p for p in function.params if is_buffer_var(p)]
    if buffers and not any(p in stored for p in buffers):
        stored.add(buffers[-1])  # written by a call; results come last
    return {p: INPUT if p not in stored else INOUT if p in read_first else OUTPUT for p in buffers}


def draw(function: tirx.PrimFunc, arguments: list[Argument], kind: str, seed: int) -> list[np.ndarray | None]:
    """Draw the arrays that a kernel reads; None for scalars and outputs.

    ``kind`` is ``normal``, ``special`` (NaN and infinities among the floats) or
    ``tame`` (positive and near one, for kernels that are not defined for all
    numbers).  Integers that address an array stay inside it, and what the kernel says
    is finite wherever it is called stays finite.
    """
    bounds = index_bounds(function)
    finite = finite_parameters(function) if kind == "special" else frozenset()
    drawn: list[np.ndarray | None] = []
    for position, (argument, parameter) in enumerate(zip(arguments, function.params)):
        if argument.role in (SCALAR, OUTPUT):
            drawn.append(None)
            continue
        generator = np.random.default_rng([seed, position])
        bound = bounds.get(parameter)
        if bound is not None:
            values = generator.integers(0, max(1, bound), size=argument.shape)
            drawn.append(values.astype(argument.dtype))
        elif kind == "tame":
            drawn.append(_tame(argument, generator))
        else:
            wanted = "normal" if position in finite else kind
            drawn.append(draw_array(argument.shape, argument.dtype, generator, wanted))
    return drawn


def _tame(argument: Argument, generator: np.random.Generator) -> np.ndarray:
    if argument.dtype.startswith(("int", "uint")):
        return generator.integers(1, 4, size=argument.shape).astype(argument.dtype)
    values = draw_array(argument.shape, argument.dtype, generator, "normal")
    if argument.dtype == "bool":
        return values
    return (0.5 + generator.random(argument.shape)).astype(values.dtype)


def index_bounds(function: tirx.PrimFunc) -> dict[Any, int]:
    """Map each parameter whose integers address arrays to how far they may go.

    Zero alone is safe where the index is computed from them by more than a sum
    with a constant, a choice or a clamp.
    """
    parameters = {p for p in function.params if is_buffer_var(p) and _is_integer(str(p.ty.dtype))}
    origins = _origins(function)
    bounds: dict[Any, int] = {}

    def note(indices, buffer) -> None:
        for index, dim in zip(indices, buffer.ty.shape):
            for source, plain in _addressed(index, True):
                for parameter in (origins.get(source, set()) | {source}) & parameters:
                    direct = plain and parameter.same_as(source)
                    extent = int(extent_value(dim, {})) if direct else 1
                    bounds[parameter] = min(bounds.get(parameter, extent), extent)

    visitors = [
        (tvm.ir.TensorLoad, lambda node: note(node.indices, node.source)),
        (tirx.BufferStore, lambda node: note(node.indices, node.buffer)),
    ]
    tvm_ffi.structural_walk(function.body, visitors)
    return bounds


def _origins(function: tirx.PrimFunc) -> dict[Any, set[Any]]:
    """Map each integer array that the kernel makes to the integer arrays that it comes from."""
    made: dict[Any, set[Any]] = {}

    def store(node) -> None:
        if _is_integer(str(node.buffer.ty.dtype)):
            sources = {load.source for load in loads(node.value) if _is_integer(str(load.source.ty.dtype))}
            made.setdefault(node.buffer, set()).update(sources)

    tvm_ffi.structural_walk(function.body, [(tirx.BufferStore, store)])
    growing = True
    while growing:
        growing = False
        for sources in made.values():
            further = set().union(*(made.get(source, ()) for source in sources)) - sources
            growing = growing or bool(further)
            sources |= further
    return made


_TRANSPARENT = (tirx.Cast, tirx.Select, tirx.Max, tirx.Min)


def _addressed(index, plain: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the buffers that an index is computed from, and whether they are used as they are."""
    if isinstance(index, tvm.ir.TensorLoad):
        yield index.source, plain
        for inner in index.indices:
            yield from _addressed(inner, False)
    elif isinstance(index, _TRANSPARENT):
        for part in _operands(index):
            yield from _addressed(part, plain)
    else:
        for load in loads(index):
            yield load.source, False


def _operands(expr) -> list[Any]:
    if isinstance(expr, tirx.Cast):
        return [expr.value]
    if isinstance(expr, tirx.Select):
        return [expr.true_value, expr.false_value]
    return [expr.a, expr.b]


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def scalar_operations(function: tirx.PrimFunc, extents: Mapping[Any, int]) -> float:
    """Bound the scalar operations of an unscheduled kernel from its blocks' domains."""
    by_name = {variable.name: extent for variable, extent in extents.items()}
    return sum(
        math.prod(extent_value(iv.dom.extent, by_name) for iv in block.iter_vars)
        for block in walk_blocks(function)
    )


def tolerance_scale(function: tirx.PrimFunc) -> float:
    """Return how much wider than by dtype results may differ: sums may run in another order."""
    terms = 1.0
    for block in walk_blocks(function):
        reduced = [iv for iv in block.iter_vars if int(iv.iter_type) == REDUCE]
        terms = max(terms, math.prod(extent_value(iv.dom.extent, {}) for iv in reduced))
    return max(1.0, math.sqrt(terms / _TERMS))
