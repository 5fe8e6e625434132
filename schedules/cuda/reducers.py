"""What a reduction does, read off its block: one accumulator, or several at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvmpass.core.nest import Stage, loads, substitute

_EXPR = tvm.ir.prim.expr
_BINARY = (
    _EXPR.Add, _EXPR.Mul, _EXPR.Max, _EXPR.Min, _EXPR.GT, _EXPR.LT, _EXPR.GE, _EXPR.LE, _EXPR.And, _EXPR.Or,
)  # fmt: skip


@dataclass(frozen=True)
class Reducer:
    """A reduction of ``elements`` into accumulators that start at ``identities``.

    ``results`` are the new accumulators as expressions over the variables
    ``left`` (accumulated so far) and ``right`` (what is added).
    """

    elements: tuple[Any, ...]
    identities: tuple[Any, ...]
    left: tuple[Any, ...]
    right: tuple[Any, ...]
    results: tuple[Any, ...]

    def combine(self, left, right) -> list:
        """Return the accumulators after ``right`` was added to ``left``."""
        mapping = dict(zip(self.left, left)) | dict(zip(self.right, right))
        return [substitute(result, mapping) for result in self.results]

    def bind_elements(self, values) -> tuple[list, list]:
        """Return statements that evaluate what `combine` uses more than once, and the elements to use."""
        binds, elements = [], []
        for variable, value in zip(self.right, values):
            if self._uses(variable) > 1:
                element = tirx.Var("element", str(value.ty.dtype))
                binds.append(tirx.Bind(element, value))
                value = element
            elements.append(value)
        return binds, elements

    def _uses(self, variable) -> int:
        found: list = []
        for result in self.results:
            tvm_ffi.structural_walk(result, [(tirx.Var, found.append)])
        return sum(var.same_as(variable) for var in found)


def read_reducer(stage: Stage) -> tuple[tuple[Any, ...], Reducer] | None:
    """Return the buffers a reduction writes and its reducer, None for another form."""
    return _read_tuple(stage) if stage.store is None else _read_single(stage)


def _read_single(stage: Stage):
    """Read an update by some function of the accumulator and one other operand."""
    value, buffer = stage.store.value, stage.store.buffer
    accumulators = [load for load in loads(value) if load.source.same_as(buffer)]
    if not accumulators or not isinstance(stage.block.init, tirx.BufferStore):
        return None
    identity = stage.block.init.value
    left, right = _pair(0, identity)
    for element in _operands(value, buffer):
        result = substitute_nodes(value, [(element, right), (accumulators[0], left)])
        if not loads(result):
            return (buffer,), Reducer((element,), (identity,), (left,), (right,), (result,))
    return None


def _operands(value, buffer) -> list:
    """Return what stands beside the accumulator, the outermost place first."""
    found: list = []

    def visit(node) -> None:
        for a, b in ((node.a, node.b), (node.b, node.a)):
            if isinstance(a, tvm.ir.TensorLoad) and a.source.same_as(buffer):
                found.append(b)
                return

    tvm_ffi.structural_walk(value, [(kind, visit) for kind in _BINARY], order="pre")
    return found


def _read_tuple(stage: Stage):
    """Read ``v0 = select(better, acc0, new0); v1 = …; acc0 = v0; acc1 = v1``, as argmax is."""
    body, init = stage.block.body, stage.block.init
    if not isinstance(body, tirx.SeqStmt) or not isinstance(init, tirx.SeqStmt):
        return None
    bound = {part.var: part.value for part in body.seq if isinstance(part, tirx.Bind)}
    stores = [part for part in body.seq if isinstance(part, tirx.BufferStore)]
    starts = {part.buffer: part.value for part in init.seq if isinstance(part, tirx.BufferStore)}
    if len(bound) + len(stores) != len(body.seq) or len(starts) != len(stores):
        return None
    buffers = tuple(store.buffer for store in stores)
    values = [bound.get(store.value) if isinstance(store.value, tirx.Var) else None for store in stores]
    if any(not isinstance(value, tirx.Select) for value in values) or any(b not in starts for b in buffers):
        return None
    elements = tuple(value.false_value for value in values)
    accumulators = tuple(value.true_value for value in values)
    for buffer, accumulator in zip(buffers, accumulators):
        if not isinstance(accumulator, tvm.ir.TensorLoad) or not accumulator.source.same_as(buffer):
            return None
    identities = tuple(starts[buffer] for buffer in buffers)
    pairs = [_pair(i, identity) for i, identity in enumerate(identities)]
    left, right = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    # A position may be part of the load beside it: what holds loads goes first.
    news = sorted(zip(elements, right), key=lambda pair: not loads(pair[0]))
    results = tuple(substitute_nodes(v, [*news, *zip(accumulators, left)]) for v in values)
    if any(loads(result) for result in results):
        return None
    return buffers, Reducer(elements, identities, left, right, results)


def _pair(number: int, identity):
    dtype = str(identity.ty.dtype)
    return tirx.Var(f"left{number}", dtype), tirx.Var(f"right{number}", dtype)


def substitute_nodes(value, pairs):
    """Replace every expression equal to the first of a pair by the second, pair by pair."""
    for old, new in pairs:
        value = _with(value, old, new)
    return value


def _with(value, old, new):
    same = lambda node: new if tvm_ffi.structural_equal(node, old) else node  # noqa: E731
    return tvm_ffi.structural_map(value, [(type(old), same)], order="post")
