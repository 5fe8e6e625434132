"""Functions as values: where they were made, what they read, which call themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from .ast import Expression, Function, Global, Var
from .scopes import Scope, Scopes
from .table import Value
from .types import flat


@dataclass(eq=False)
class Context:
    """A Relax function under construction.

    ``captured`` maps the variables of enclosing functions to the parameters that carry them.
    """

    captured: dict[Any, Any] = field(default_factory=dict)

    def local(self, value: Value) -> Value:
        """Return an outer value as this function sees it."""
        if isinstance(value, tuple):
            return tuple(self.local(item) for item in value)
        return self.captured.get(value, value) if isinstance(value, relax.Var) else value


@dataclass(eq=False)
class Frame:
    """A scope that was entered: the values of its nodes and parameters so far."""

    scopes: Scopes
    scope: Scope
    parent: Frame | None
    context: Context
    values: dict[Expression, Value] = field(default_factory=dict)

    def find(self, node: Expression) -> tuple[Value, Context] | None:
        """Return the node's value and the function that computed it, None where it has none here."""
        if isinstance(node, Var) and node in self.scopes.params:
            owner: Scope | None = self.scopes.bodies.get(self.scopes.params[node])
        else:
            owner = self.scopes.owner.get(node)
        frame: Frame | None = self
        while frame is not None and frame.scope is not owner:
            frame = frame.parent
        if frame is None or node not in frame.values:
            return None
        return frame.values[node], frame.context


@dataclass(eq=False)
class Closure:
    """A function as a value, with the frame in which it was made (None: a global one)."""

    function: Function
    scopes: Scopes
    frame: Frame | None
    name: str = ""


def captures(values: Iterable[Value]) -> list[Any]:
    """Return the Relax variables that closures among ``values`` read from outside, each once."""
    found: dict[Any, None] = {}
    seen: set[tuple[Function, Frame | None]] = set()
    stack = [value for item in values for value in flat(item)]
    while stack:
        value = stack.pop()
        if isinstance(value, relax.Var):
            found[value] = None
        elif isinstance(value, Closure) and (value.function, value.frame) not in seen:
            seen.add((value.function, value.frame))
            stack += [leaf for item in _outside(value) for leaf in flat(item)]
    return list(found)


def _outside(closure: Closure) -> Iterator[Value]:
    """Yield the values that the body reads from the frames around it."""
    frame = closure.frame
    if frame is None:
        return
    scopes = closure.scopes
    body = scopes.bodies[closure.function]
    checked: set[Expression] = set()
    nodes: list[Expression] = [body.result]
    for node in scopes.inside(closure.function):
        nodes += scopes.operands(node)
    for node in nodes:
        if node in checked:
            continue
        checked.add(node)
        if isinstance(node, Var) and node in scopes.params:
            owner = scopes.bodies[scopes.params[node]]
        else:
            owner = scopes.owner[node]
        if not _within(owner, body):
            known = frame.find(node)
            if known is not None:
                yield known[0]


def _within(scope: Scope, outer: Scope) -> bool:
    walk: Scope | None = scope
    while walk is not None and walk.depth > outer.depth:
        walk = walk.parent
    return walk is outer


def recursive(all_scopes: Iterable[Scopes], by_name: dict[str, Function]) -> set[Function]:
    """Return the functions that may call themselves, directly or through others."""
    edges: dict[Function, list[Function]] = {}
    for scopes in all_scopes:
        for function, body in scopes.bodies.items():
            edges[function] = list(dict.fromkeys(_referenced(scopes, body, by_name)))
    return _in_cycles(edges)


def _referenced(scopes: Scopes, body: Scope, by_name: dict[str, Function]) -> Iterator[Function]:
    """Yield the functions that a function's own body names or contains."""
    stack = [body]
    while stack:
        scope = stack.pop()
        for node in [scope.result, *scope.nodes]:
            target = scopes.resolved(node)
            if isinstance(target, Function):
                yield target
            elif isinstance(target, Global) and target.name in by_name:
                yield by_name[target.name]
        for node in scope.nodes:
            for operand in scopes.operands(node):
                target = scopes.resolved(operand)
                if isinstance(target, Function) and target is not node:
                    yield target
            if node in scopes.branches:
                stack += scopes.branches[node]


def _in_cycles(edges: dict[Function, list[Function]]) -> set[Function]:
    """Return the nodes on a cycle (Tarjan's components, without recursion)."""
    index: dict[Function, int] = {}
    low: dict[Function, int] = {}
    on_path: dict[Function, None] = {}
    cyclic: set[Function] = set()
    for start in edges:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        on_path[start] = None
        work = [(start, iter(edges[start]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    on_path[target] = None
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member, _ = on_path.popitem()
                        component.append(member)
                        if member is node:
                            break
                    if len(component) > 1 or node in edges.get(node, ()):
                        cyclic.update(component)
    return cyclic
