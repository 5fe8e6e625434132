"""Random well-typed Relay programs, as hypothesis strategies.

A program is a graph of calls with shared nodes, lets, tuples, branches, closures
and global functions.  It consists of operators that the interpreter has, and of
values that two right implementations agree on (`values`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tvmpass.frontends.relay import ast

from . import random_elementwise, random_movement, random_networks, random_quantized
from .building import GRID, Builder, Scope, allowed, content
from .values import INEXACT, Range, Value, tensor

Maker = Callable[[Builder, Value], Value | None]

FAMILIES: tuple[tuple[Maker, ...], ...] = (
    random_elementwise.MAKERS,
    random_elementwise.MAKERS,
    random_movement.MAKERS,
    random_movement.MAKERS,
    random_networks.MAKERS,
    random_quantized.MAKERS,
)
SUMMED = ("float32", "int32", "int64", "float64")
INPUTS = (*["float32"] * 5, *["int32"] * 2, "int8", "float16", "bool", "int64", "uint8", "float64")
LOOPED = Range(-8, 8, INEXACT)
"""The state of a loop: many values are in this range."""

ATTRIBUTES: tuple[dict[str, Any], ...] = ({}, {}, {"Primitive": 1}, {"Composite": "test.block"})

DEEPEST = 3
TRIES = 6
MOST_RESULTS = 6


@dataclass(frozen=True)
class Program:
    """A program with the types of its values and what its inputs may be."""

    module: ast.Module
    types: dict[ast.Expression, ast.Type] = field(repr=False)
    params: tuple[Value, ...] = field(repr=False)

    def inputs(self, seed: int) -> list[Any]:
        """Return random arguments of ``@main``: arrays and tuples of arrays."""
        random = np.random.default_rng(seed)

        def argument(value: Value) -> Any:
            if value.items:
                return tuple(map(argument, value.items))
            return content(random, value.shape, value.dtype, value.range)

        return list(map(argument, self.params))


@st.composite
def programs(draw: st.DrawFn, size: int = 12, shared: bool = False) -> Program:
    """Draw a program of three to ``size`` statements in ``@main``.

    With ``shared`` blocks use nodes outside of them that have no name; such a
    program can be converted but not printed (see `Builder`).
    """

    def pick(options: Sequence[Any]) -> Any:
        return options[draw(st.integers(0, len(options) - 1))]

    builder = Builder(pick, shared)
    for _ in range(builder.number(1, 3)):
        _parameter(builder)
    for _ in range(builder.number(0, 1)):
        _global_function(builder)
    for _ in range(builder.number(min(3, size), size)):
        _statement(builder, 0)
    unread = [value for value in builder.scope.made if value.node not in builder.used]
    results = [value for value in unread if value.result is None][-MOST_RESULTS:] or [_made(builder)]
    result = results[0] if len(results) == 1 and not builder.chance(4) else builder.tuple(results)
    main = _finished(builder, [param.node for param in builder.params], result)
    module = ast.Module({**builder.functions, "main": main}, "random")
    return Program(module, builder.types, tuple(builder.params))


def _parameter(b: Builder) -> None:
    """Add a parameter of ``@main``, now and then a tuple of the two last ones' kinds."""
    if len(b.params) >= 2 and b.chance(4):
        items = tuple(b.params[-2:])
        pair = b.variable(Value(ast.Var(""), ast.TupleType(tuple(item.type for item in items)), items=items))
        b.types[pair.node] = pair.type
        b.params.append(pair)
        b.scope.values.insert(0, pair)
        return
    dtype = b.pick(INPUTS)
    shape = [b.pick([2, 3, 1, 4, 6]) for _ in range(b.pick([2, 3, 1, 4, 0]))]
    span = GRID
    if dtype == "bool":
        span = Range(0, 1)
    elif dtype in random_quantized.FULL:
        span = random_quantized.FULL[dtype]
    elif not dtype.startswith("float"):
        span = Range(-5, 9)
    elif dtype != "float16" and b.chance(3):
        span = Range(-2, 2, INEXACT)
    b.parameter(shape, dtype, span)


def _statement(b: Builder, depth: int) -> None:
    """Do one thing in the open scope: a call, a name, a tuple, a branch, a function."""
    kind = b.number(0, 19)
    if kind == 19 and depth < DEEPEST:
        _loop(b, depth) if b.chance(3) else _closure(b, depth)
    elif kind == 18 and depth < DEEPEST:
        _branch(b, depth)
    elif kind >= 16:
        function = b.find(lambda value: value.result is not None)
        if function is None or _called(b, function) is None:
            _made(b)
    elif kind >= 14:
        _paired(b)
    else:
        value = _made(b)
        if kind >= 10:
            b.bind(value)


def _operand(b: Builder) -> Value:
    """Choose a tensor to go on with; now and then one out of a tuple."""
    if b.chance(6):
        packed = b.find(lambda value: bool(value.items))
        if packed is not None:
            return _tensor_of(b, packed)
    found = b.find(lambda value: value.is_tensor)
    return found if found is not None else b.parameter([2, 3], "float32")


def _tensor_of(b: Builder, value: Value) -> Value:
    while value.items:
        value = b.item(value, b.number(0, len(value.items) - 1))
    return value


def _made(b: Builder) -> Value:
    """Make a call of a random operator that has a use for a random operand."""
    operand = _operand(b)
    for _ in range(TRIES):
        made = b.pick(b.pick(FAMILIES))(b, operand)
        if made is not None:
            return b.add(made)
    return b.add(b.call("reshape", [operand], operand.range, {"newshape": [-1]}) or operand)


def _paired(b: Builder) -> None:
    """Make a tuple, or take an item out of one."""
    packed = b.find(lambda value: bool(value.items))
    if packed is not None and b.chance():
        b.add(b.item(packed, b.number(0, len(packed.items) - 1)))
        return
    items = _some(b)
    if items:
        b.add(b.tuple(items))


def _some(b: Builder) -> list[Value]:
    """Choose one to three values that are no functions."""
    found = [b.find(lambda value: value.result is None) for _ in range(b.number(1, 3))]
    return [value for value in found if value is not None]


# -- blocks: the visible values are those outside and what the block makes


def _block(
    b: Builder, depth: int, visible: Sequence[Value], result: Callable[[], Value]
) -> tuple[ast.Expression, Value]:
    """Fill a new scope with statements; return its expression and what it gives."""
    b.scopes.append(Scope(list(visible)))
    for _ in range(b.number(0, 3)):
        _statement(b, depth)
    value = result()
    b.use(value)
    return b.close(value.node), value


def _branch(b: Builder, depth: int) -> None:
    condition = _condition(b)
    sample = b.find(lambda value: value.result is None and not _halves(value))
    if condition is None or sample is None:
        return
    if not isinstance(sample.node, ast.Var):
        sample = b.bind(sample)
    outside, wanted = b.visible(), sample
    then, first = _block(b, depth + 1, outside, lambda: _of_type(b, wanted))
    otherwise, second = _block(b, depth + 1, outside, lambda: _of_type(b, wanted))
    b.use(condition, sample)
    node = ast.If(condition.node, then, otherwise)
    b.add(_joined(node, first, second))


def _halves(value: Value) -> bool:
    return any(map(_halves, value.items)) if value.items else value.dtype == "float16"


def _joined(node: ast.Expression, first: Value, second: Value) -> Value:
    items = tuple(_joined(node, a, c) for a, c in zip(first.items, second.items))
    return Value(node, first.type, first.range.joined(second.range), items)


def _condition(b: Builder) -> Value | None:
    """Make a scalar truth of a tensor whose sum is exact."""
    value = b.find(lambda v: v.is_tensor and v.range.exact and v.dtype in SUMMED)
    if value is None:
        return None
    count = int(np.prod(value.shape, dtype=int))
    span = Range(value.range.low * count, value.range.high * count, value.range.bits).joined(Range(0, 0))
    summed = b.call("sum", [value], span) if value.shape else value
    if summed is None:
        return None
    bound = b.scalar(b.pick([0, 1, -2]), value.dtype)
    return b.call(b.pick(["less", "greater"]), [summed, bound], Range(0, 1))


def _of_type(b: Builder, sample: Value) -> Value:
    """Return a visible value of the type of ``sample``, perhaps with a call on it."""
    if sample.items:
        return b.tuple([_of_type(b, b.item(sample, i)) for i in range(len(sample.items))])
    found = b.find(lambda value: value.type == sample.type) or sample
    for _ in range(b.number(0, 2)):
        changed = _same_type(b, found)
        found = changed if changed is not None and changed.type == sample.type else found
    return found


def _same_type(b: Builder, value: Value) -> Value | None:
    for maker in (random_elementwise.sign_like, random_elementwise.arithmetic, random_elementwise.smooth):
        if b.chance() and (made := maker(b, value)) is not None:
            return made
    return None


# -- functions


def _closure(b: Builder, depth: int) -> None:
    """Make a function of some values, call it, and leave it for later calls."""
    arguments = _some(b)
    if not arguments:
        return
    attrs: dict[str, Any] = b.pick(ATTRIBUTES)
    captured = [] if attrs else b.visible()
    function = _function(b, depth, arguments, captured, attrs)
    if b.chance():
        function = b.bind(function)
    else:
        b.scope.values.append(function)
    _called(b, function, arguments)


def _function(
    b: Builder, depth: int, arguments: Sequence[Value], captured: Sequence[Value], attrs: dict[str, Any]
) -> Value:
    params = [b.variable(argument) for argument in arguments]
    for param in params:
        b.types[param.node] = param.type

    def result() -> Value:
        if b.chance(4):
            return b.tuple([_made(b), b.pick(params)])
        return b.scope.made[-1] if b.scope.made and b.scope.made[-1].result is None else _made(b)

    body, value = _block(b, depth + 1, [*captured, *params], result)
    node = ast.Function([param.node for param in params], body, value.type, dict(attrs))  # type: ignore[misc]
    kind = ast.FunctionType(tuple(param.type for param in params), value.type)
    b.types[node] = kind
    return Value(node, kind, params=tuple(params), result=value)


def _loop(b: Builder, depth: int) -> None:
    """Make a function that calls itself a few times with a counter and a state."""
    state = b.find(
        lambda v: v.is_float and v.dtype == "float32" and LOOPED.covers(v.range) and allowed(v.type, LOOPED)
    )
    if state is None:
        return
    start, last = b.number(0, 2), b.number(0, 3)
    counter = Value(ast.Var("i", tensor([], "int32")), tensor([], "int32"), Range(0, 6))
    running = b.variable(Value(ast.Var(""), state.type, LOOPED))
    kind = ast.FunctionType((counter.type, running.type), state.type)
    name = ast.Var(b.pick(["loop", "while_loop"]), kind)
    for node, its in ((counter.node, counter.type), (running.node, running.type), (name, kind)):
        b.types[node] = its
    visible = [*b.visible(), counter, running]

    def again() -> Value:
        # Whatever was computed, the state stays in its range.
        new = b.call("clip", [_of_type(b, running)], LOOPED, {"a_min": LOOPED.low, "a_max": LOOPED.high})
        more = b.call("add", [counter, b.scalar(1, "int32")], Range(0, 6))
        assert new is not None and more is not None
        call = ast.Call(name, [more.node, new.node])
        b.types[call] = running.type
        return running.at(call)

    then, _ = _block(b, depth + 1, visible, again)
    condition = b.call("less", [counter, b.scalar(last, "int32")], Range(0, 1))
    assert condition is not None
    body = ast.If(condition.node, then, running.node)
    function = ast.Function([counter.node, running.node], body, state.type)  # type: ignore[list-item]
    b.types[function] = kind
    b.scope.bindings.append((name, function))
    node = ast.Call(name, [b.scalar(start, "int32").node, state.node])
    b.use(state)
    b.add(running.at(node))


def _global_function(b: Builder) -> None:
    shapes = [(b.number(1, 3), b.number(1, 4)) for _ in range(b.number(1, 2))]
    arguments = [Value(ast.Var(""), tensor(shape, "float32"), GRID) for shape in shapes]
    outer = b.scopes
    b.scopes = [Scope([])]
    before = len(b.params)
    function = _function(b, DEEPEST - 1, arguments, [], {})
    b.scopes = outer
    # What the body asked for beyond its parameters becomes parameters of its own.
    extra = b.params[before:]
    del b.params[before:]
    node = function.node
    assert isinstance(node, ast.Function)
    node.params.extend(param.node for param in extra)  # type: ignore[misc]
    kind = ast.FunctionType(tuple(param.type for param in node.params), node.result)
    name = f"helper_{len(b.functions)}"
    b.functions[name] = node
    called = Value(ast.Global(name), kind, params=(*function.params, *extra), result=function.result)
    for param in called.params:
        if b.find(lambda value, wanted=param: wanted.covers(value)) is None:  # type: ignore[misc]
            b.parameter(param.shape, param.dtype, param.range)
    b.scope.values.append(called)
    _called(b, called)


def _called(b: Builder, function: Value, arguments: Sequence[Value] = ()) -> Value | None:
    """Call a function with values that it was made for; None where there are none."""
    chosen = []
    for place, param in enumerate(function.params):
        found = b.find(lambda value, wanted=param: wanted.covers(value))  # type: ignore[misc]
        if found is None or (arguments and b.chance()):
            found = arguments[place] if arguments else None
        if found is None:
            return None
        chosen.append(found)
    b.use(*chosen)
    assert function.result is not None
    node = ast.Call(function.node, [value.node for value in chosen])
    return b.add(_renamed(function.result, node))


def _renamed(value: Value, node: ast.Expression) -> Value:
    return Value(node, value.type, value.range, value.items)


def _finished(b: Builder, params: list[Any], result: Value) -> ast.Function:
    b.use(result)
    return ast.Function(params, b.close(result.node), result.type)
