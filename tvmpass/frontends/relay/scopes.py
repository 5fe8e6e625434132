"""Say in which scope each node of a function is computed, and in which order.

A node may be used in several places.  It belongs to the innermost scope that
encloses all its uses: a branch of an If, the body of a closure, or the body of
the whole function.  Lets bind names and nothing else: Relay is pure, so a value
is computed where it is needed first, and not at all where nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .ast import Expression, Function, Global, If, Let, Place, Var


class Misplaced(Exception):
    """A variable or node is used where it has no value; ``place`` is of the use."""

    def __init__(self, message: str, place: Place):
        super().__init__(message)
        self.place = place


@dataclass(eq=False)
class Scope:
    """A region whose nodes are computed together, once each time it is entered."""

    parent: Scope | None
    result: Expression
    depth: int = 0
    nodes: list[Expression] = field(default_factory=list)

    def common(self, other: Scope) -> Scope:
        """Return the innermost scope that encloses both."""
        one, two = self, other
        while one is not two:
            if one.depth >= two.depth:
                assert one.parent is not None
                one = one.parent
            else:
                assert two.parent is not None
                two = two.parent
        return one


@dataclass(eq=False)
class Scopes:
    """The scopes of one global function, or of one closure that stands alone.

    ``owner`` gives each reached node its scope, whose ``nodes`` are in an order
    in which operands come first, those of inner scopes included.
    """

    function: Function
    root: Scope
    owner: dict[Expression, Scope] = field(default_factory=dict)
    values: dict[Var, Expression] = field(default_factory=dict)
    params: dict[Var, Function] = field(default_factory=dict)
    bodies: dict[Function, Scope] = field(default_factory=dict)
    branches: dict[If, tuple[Scope, Scope]] = field(default_factory=dict)
    _resolved: dict[Expression, Expression] = field(default_factory=dict)

    def operands(self, node: Expression) -> Iterator[Expression]:
        """Yield what the node reads; a let variable reads its value."""
        if isinstance(node, Let):
            yield node.body
        elif isinstance(node, Var):
            if node in self.values:
                yield self.values[node]
        else:
            yield from node.children()

    def resolved(self, node: Expression) -> Expression:
        """Return the node itself behind let variables and lets; a chain is walked once."""
        path: dict[Expression, None] = {}
        while node not in path and node not in self._resolved:
            if isinstance(node, Let):
                path[node] = None
                node = node.body
            elif isinstance(node, Var) and node in self.values:
                path[node] = None
                node = self.values[node]
            else:
                break
        node = self._resolved.get(node, node)
        self._resolved.update(dict.fromkeys(path, node))
        return node

    def inside(self, function: Function) -> Iterator[Expression]:
        """Yield the nodes of a function's body and of all scopes in it."""
        stack = [self.bodies[function]]
        while stack:
            scope = stack.pop()
            for node in scope.nodes:
                yield node
                if isinstance(node, If):
                    stack.extend(self.branches[node])
                elif isinstance(node, Function):
                    stack.append(self.bodies[node])


def find_scopes(function: Function) -> Scopes:
    """Return the scopes of a function.

    Raises `Misplaced` for a variable that is not bound where it is used and for
    a value that needs itself, functions excepted.
    """
    root = Scope(None, function.body)
    scopes = Scopes(function, root)
    scopes.bodies[function] = root
    scopes.params.update(dict.fromkeys(function.params, function))
    _assign(scopes, _in_order(scopes, function.body))
    return scopes


def _in_order(scopes: Scopes, body: Expression) -> list[Expression]:
    """Return the nodes that ``body`` needs, operands first, and note bindings."""
    order: list[Expression] = []
    open_nodes: set[Expression] = set()
    done: set[Expression] = set()
    stack: list[tuple[Expression, Iterator[Expression]]] = []

    def enter(node: Expression) -> None:
        if isinstance(node, Let):
            for var, value in node.bindings:
                if scopes.values.setdefault(var, value) is not value:
                    raise Misplaced(f"%{var.name} is bound twice", node.place)
        elif isinstance(node, Function):
            scopes.params.update(dict.fromkeys(node.params, node))
        open_nodes.add(node)
        stack.append((node, scopes.operands(node)))

    def check(node: Expression, user: Expression) -> None:
        if isinstance(node, Var) and node not in scopes.values and node not in scopes.params:
            raise Misplaced(f"%{node.name} is used where it is not bound", user.place)

    check(body, body)
    if body not in scopes.params:
        enter(body)
    while stack:
        node, operands = stack[-1]
        for operand in operands:
            if operand in done or operand in scopes.params:
                continue
            if operand in open_nodes:
                # Only a function may need itself, and only by its name.
                if isinstance(scopes.resolved(operand), Function) and isinstance(operand, (Var, Function)):
                    continue
                raise Misplaced(f"{_called(operand)} is used in its own value", node.place)
            check(operand, node)
            enter(operand)
            break
        else:
            stack.pop()
            open_nodes.discard(node)
            done.add(node)
            order.append(node)
    return order


def _called(node: Expression) -> str:
    if isinstance(node, Var):
        return f"%{node.name}"
    return node.place.name or "a value"


def _assign(scopes: Scopes, order: list[Expression]) -> None:
    """Give each node its scope: users first, so that all uses of a node are known at its turn."""
    uses: dict[Expression, Scope] = {}

    def use(node: Expression, scope: Scope) -> None:
        if node in scopes.params or node in scopes.owner:  # a function around its own name is owned already
            return
        known = uses.get(node)
        uses[node] = scope if known is None else known.common(scope)

    entered = [scopes.root]
    use(scopes.root.result, scopes.root)
    for node in reversed(order):
        scope = uses[node]
        scopes.owner[node] = scope
        scope.nodes.append(node)
        if isinstance(node, Function):
            body = scopes.bodies[node] = Scope(scope, node.body, scope.depth + 1)
            entered.append(body)
            use(node.body, body)
        elif isinstance(node, If):
            then = Scope(scope, node.then, scope.depth + 1)
            otherwise = Scope(scope, node.otherwise, scope.depth + 1)
            scopes.branches[node] = (then, otherwise)
            entered += [then, otherwise]
            use(node.condition, scope)
            use(node.then, then)
            use(node.otherwise, otherwise)
        else:
            for operand in scopes.operands(node):
                use(operand, scope)
    for scope in entered:
        scope.nodes.reverse()


def reachable(functions: dict[str, Function], start: str) -> tuple[dict[str, Scopes], list[str]]:
    """Return the scopes of the global functions that ``start`` needs, and the names that do not exist."""
    found: dict[str, Scopes] = {}
    missing: list[str] = []
    names = [start]
    while names:
        name = names.pop()
        if name in found:
            continue
        if name not in functions:
            missing.append(name)
            continue
        found[name] = find_scopes(functions[name])
        names += [node.name for node in found[name].owner if isinstance(node, Global)]
    return found, missing
