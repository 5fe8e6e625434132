"""Loops: functions that call themselves last, without one stack frame per step.

Relay writes a loop as a function that calls itself at the end.  A call of a
Relax function takes a frame of the machine's stack, which ends after some
thousand steps.  Such a function becomes four kinds:

- ``step`` takes the arguments and returns whether to go on, and the next ones;
- ``advance`` number n runs the one before it, and again if it is to go on: up to
  2**n steps, n frames deep; it returns the arguments at which the loop stands;
- ``end`` is the function as it was written, called with those;
- the function itself advances, then ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx

from . import ast
from .closures import Closure, Frame
from .scopes import Scopes
from .table import Value
from .types import flat, is_data, leaves

if TYPE_CHECKING:
    from .convert import Conversion, Work
    from .functions import Functions

DOUBLINGS = 12
"""Steps of a loop between two frames of the stack: 2 to this power."""


@dataclass
class Loop:
    """A function whose calls of itself are all the last that it does.

    ``path`` holds the nodes that only pass the result on, ``calls`` among them.
    """

    function: ast.Function
    path: set[ast.Expression]
    calls: set[ast.Call]


def find_loop(callee: Closure, args: list[Value]) -> Loop | None:
    """Return the closure as a loop, None where it is none or not all its types are stated."""
    function, scopes = callee.function, callee.scopes

    def itself(node: ast.Expression) -> bool:
        target = scopes.resolved(node)
        if isinstance(target, ast.Global):
            return callee.frame is None and callee.name == f"@{target.name}"
        return target is function

    loop = Loop(function, set(), set())
    passed_by: dict[ast.Expression, list[ast.Expression]] = {function.body: []}
    stack = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call) and itself(node.function):
            loop.calls.add(node)
            continue
        for result in _results(node, scopes):
            if result not in passed_by:
                stack.append(result)
            passed_by.setdefault(result, []).append(node)
    if not loop.calls:
        return None
    stack = list(loop.calls)
    while stack:  # a branch that only ends the loop is a value like any other
        node = stack.pop()
        if node not in loop.path:
            loop.path.add(node)
            stack += passed_by[node]
    for node in scopes.inside(function):
        names = isinstance(node, (ast.Let, ast.Var))
        for operand, passes in _uses(node, loop):
            if operand in loop.path and not passes:
                return None
            called = isinstance(node, ast.Call) and node in loop.calls and operand is node.function
            if itself(operand) and not names and not called:
                return None
        if isinstance(node, ast.Call) and any(itself(arg) for arg in node.args):
            return None
    for index, (param, arg) in enumerate(zip(function.params, args)):
        if is_data(param.type):
            continue
        passed = [call.args[index] for call in loop.calls if index < len(call.args)]
        same = all(scopes.resolved(item) is param for item in passed)
        if not same or any(hasattr(leaf, "ty") for leaf in flat(arg)):
            return None
    return loop


def _results(node: ast.Expression, scopes: Scopes) -> Iterator[ast.Expression]:
    """Yield the nodes one of which gives the node its value unchanged."""
    if isinstance(node, ast.If):
        yield node.then
        yield node.otherwise
    elif isinstance(node, ast.Let) or (isinstance(node, ast.Var) and node in scopes.values):
        yield from scopes.operands(node)


def _uses(node: ast.Expression, loop: Loop) -> Iterator[tuple[ast.Expression, bool]]:
    """Yield what a node reads, and whether it passes it on as the loop's result."""
    on_path = node in loop.path
    if isinstance(node, ast.If):
        yield node.condition, False
        yield node.then, on_path
        yield node.otherwise, on_path
    elif isinstance(node, ast.Let):
        yield node.body, on_path
    elif isinstance(node, ast.Var):
        return  # a name: who reads it counts
    else:
        for operand in node.children():
            yield operand, False


def make_loop(
    functions: Functions,
    loop: Loop,
    callee: Closure,
    args: list[Value],
    outside: list[Any],
    name: str,
    called: str,
) -> Work:
    """Return the private function of a loop, its helpers added to the module."""
    to = functions.conversion
    declared = [param.type for param in loop.function.params if is_data(param.type)]
    state = tuple(leaf for ty in declared for _, leaf in leaves(ty, ""))
    told = (ast.TensorType((), "bool"), *state)
    keeps = functions.keeps_sizes(callee, args)
    steps = _Steps(to, loop)
    made, _ = yield functions.build(callee, args, outside, steps.convert, told, called)
    if keeps and not steps.keeps_sizes:
        functions.resizing.add(loop.function)
        steps = _Steps(to, loop)
        made, _ = yield functions.build(callee, args, outside, steps.convert, told, called)
    step = made
    variable = to.builder.add_func(step, f"{name}_step")
    for _ in range(DOUBLINGS):
        params, _, _ = functions.parameters(callee, args, outside)
        to.builder.begin_scope(params)
        to.begin()
        go, *now = to.unpacked(to.emit(relax.Call(variable, params)), told)
        again = relax.Call(variable, [*now, *params[len(state) :]])
        parts = []
        for value in (again, relax.Tuple([go, *now])):
            to.begin()
            result = to.builder.emit(value)
            part = relax.SeqExpr([to.end()], result)
            relax.expr._update_type(part, result.ty)
            parts.append(part)
        twice = flat(to.unpacked(to.emit(relax.If(go, *parts)), told))
        variable = to.builder.add_func(functions.finish(params, twice), f"{name}_advance")
    instance = functions.stub(
        callee, args, outside, name, called, lambda params: steps.result_types(list(step.params), params)
    )
    made, _ = yield functions.build(callee, args, outside, to.scope, instance.result, called)
    end = to.builder.add_func(made, f"{name}_end")
    params, _, _ = functions.parameters(callee, args, outside)
    to.builder.begin_scope(params)
    to.begin()
    _, *last = to.unpacked(to.emit(relax.Call(variable, params)), told)
    result = to.unpacked(to.emit(relax.Call(end, [*last, *params[len(state) :]])), instance.result)
    made = functions.finish(params, functions.as_told(flat(result), instance.result))
    to.builder.update_func(instance.variable, made)
    return instance


class _Steps:
    """Converts one step of a loop."""

    def __init__(self, conversion: Conversion, loop: Loop):
        self._conversion = conversion
        self._loop = loop
        self._results: list[list[Any]] = []
        self.keeps_sizes = True
        """Whether the next arguments have the sizes of these, as far as was seen."""

    def result_types(self, own: list[Any], params: list[Any]) -> list[Any] | None:
        """Return the types of the loop's results over other parameters; None where they are not known.

        ``own`` are the parameters of the step, ``params`` those to write them over.
        """
        if not self.keeps_sizes or not self._results:
            return None
        renamed: dict[Any, Any] = {}
        for old, new in zip(own, params):
            renamed.update(zip(dims_of(old), dims_of(new)))
        made = []
        for ty in self._results[0]:
            if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
                return None
            dims = [dim if isinstance(dim, tirx.IntImm) else renamed.get(dim) for dim in ty.shape.values]
            if any(dim is None for dim in dims):
                return None
            made.append(relax.TensorType(dims, str(ty.dtype)))
        alike = all(
            _same_sizes(one, other)
            for types in self._results[1:]
            for one, other in zip(types, self._results[0])
        )
        return made if alike else None

    def convert(self, frame: Frame) -> Work:
        """Return whether to go on, and the next arguments' tensors."""
        to, loop = self._conversion, self._loop
        yield to.nodes(frame, loop.path)
        node = frame.scope.result
        while node in loop.path and isinstance(node, (ast.Let, ast.Var)):
            node = next(iter(frame.scopes.operands(node)))
        if node in loop.path and isinstance(node, ast.If):
            return (yield to.branch(node, frame, self.convert))
        given = node.args if isinstance(node, ast.Call) and node in loop.calls else None
        if given is None:
            ends = flat(to.read(node, frame, node.place))
            self._results.append([getattr(leaf, "ty", None) for leaf in ends])
        values = []
        for index, param in enumerate(loop.function.params):
            if is_data(param.type):
                value = to.read(given[index] if given is not None else param, frame, node.place)
                to.declared(param.type, value, node.place, f"argument %{param.name}")
                values.append(value)
                now = flat(to.read(param, frame, node.place))
                self.keeps_sizes &= all(_same_sizes(a.ty, b.ty) for a, b in zip(flat(value), now))
        return to.emit.const(given is not None, "bool"), *flat(tuple(values))


def dims_of(value: Value) -> list[Any]:
    """Return the dims of a tensor, none where they are not known."""
    ty = value.ty
    known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if known else []


def _same_sizes(one, other) -> bool:
    """Say whether two tensors' types have the same shape for certain."""
    if not all(
        isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in (one, other)
    ):
        return False
    left, right = list(one.shape.values), list(other.shape.values)
    analyzer = tvm.sym.Analyzer()
    return len(left) == len(right) and all(map(analyzer.can_prove_equal, left, right))
