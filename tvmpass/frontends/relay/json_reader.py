"""Read a Relay program from the JSON of ``tvm.ir.save_json`` (TVM 0.6 to 0.19).

No TVM is needed.  Nodes that are shared stay shared, and nothing recurses along
expressions: chains of lets and calls may be long.
"""

from __future__ import annotations

from typing import Any

from . import ast, older, table
from .errors import RelayError
from .node_values import name_of
from .nodes import AttrsNode, NodeGraph

_CHILDREN = {
    "relay.Tuple": (),
    "relay.TupleGetItem": ("tuple_value",),
    "relay.If": ("cond", "true_branch", "false_branch"),
    "relay.Let": ("value", "body"),
    "relay.Function": ("body",),
    "relay.Match": ("data",),
    "relay.RefCreate": ("value",),
    "relay.RefRead": ("ref",),
    "relay.RefWrite": ("ref", "value"),
}
"""The fields of a node that are expressions."""

_LISTS = {"relay.Tuple": "fields", "relay.Call": "args"}
"""The fields that are Arrays of expressions."""

_LEAVES = frozenset(
    ("relay.Var", "relay.Constant", "relay.Op", "Op", "relay.GlobalVar", "GlobalVar", "relay.Constructor")
)
_UNSUPPORTED = {
    "relay.Match": "match on an algebraic data type (ADT)",
    "relay.RefCreate": "a reference (ref)",
    "relay.RefRead": "the value of a reference (ref_read)",
    "relay.RefWrite": "an assignment to a reference (ref_write)",
}


def read_json(text: str | bytes, where: str = "relay") -> ast.Module:
    """Return the program that a JSON text of ``tvm.ir.save_json`` holds.

    A text that holds one function gives a module with it as ``main``.  Raises
    `RelayError`, one line naming ``where`` and the node.
    """
    graph = NodeGraph(text, where)
    reader = _Reader(graph)
    root = graph.node(graph.root)
    if root.type_key in ("IRModule", "relay.Module"):
        return ast.Module(reader.module(graph.root), where)
    if root.type_key == "relay.Function":
        return ast.Module(reader.functions({"main": graph.root}), where)
    found = root.type_key or "nothing"
    raise RelayError(f"{where}: holds {found}; a Relay module or function is needed")


class _Reader:
    """Makes the tree of one graph; `done` holds the expression of each node."""

    def __init__(self, graph: NodeGraph):
        self.graph = graph
        self.done: dict[int, ast.Expression] = {}
        self.operands: dict[int, list[int]] = {}
        self.uses: dict[int, int] = {}

    def module(self, index: int) -> dict[str, ast.Function]:
        """Return the functions of a module node, by name."""
        graph = self.graph
        found: dict[str, int] = {}
        for key, function in graph.entries(graph.field(index, "functions")):
            name = key if isinstance(key, str) else name_of(graph, key)
            if name in found:
                raise graph.error(index, f"has two functions {name!r}")
            found[name] = function
        if not found:
            raise graph.error(index, "has no functions")
        return self.functions(found)

    def functions(self, nodes: dict[str, int]) -> dict[str, ast.Function]:
        """Return the functions at these nodes, and make all that they hold."""
        foreign = {}
        for name, index in nodes.items():
            key = self.graph.node(index).type_key
            if key != "relay.Function":
                if name == "main":
                    raise self.graph.error(index, "@main is no function of Relay")
                foreign[name] = ast.Function([], ast.Unsupported(f"@{name}, a {key or 'null'},"))
        order = self.order([index for name, index in nodes.items() if name not in foreign])
        # A let that is nothing but the body of another belongs to that one's chain.
        links = {self.operands[index][-1] for index in order if self.is_let(index)}
        for index in order:
            if not (index in links and self.is_let(index) and self.uses[index] == 1):
                self.done[index] = self.make(index)
        made = {name: foreign.get(name) or self.done[index] for name, index in nodes.items()}
        return {name: function for name, function in made.items() if isinstance(function, ast.Function)}

    def order(self, roots: list[int]) -> list[int]:
        """Return all nodes that the roots need, operands first, and count their uses."""
        found: list[int] = []
        opened: set[int] = set()
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            index, ready = stack.pop()
            if ready:
                opened.discard(index)
                found.append(index)
                continue
            self.uses[index] = self.uses.get(index, 0) + 1
            if index in opened:
                raise self.graph.error(index, "contains itself")
            if index in self.operands:
                continue
            opened.add(index)
            self.operands[index] = self.children(index)
            stack.append((index, True))
            # The last is popped first: operands are met in the order of evaluation.
            stack.extend((child, False) for child in reversed(self.operands[index]))
        return found

    def is_let(self, index: int) -> bool:
        return self.graph.node(index).type_key == "relay.Let"

    def children(self, index: int) -> list[int]:
        """Return the expressions that a node refers to."""
        graph = self.graph
        key = graph.node(index).type_key
        found: list[int] = []
        if key == "relay.Call":
            found.append(graph.field(index, "op"))
        elif key in _CHILDREN:
            found += [graph.field(index, name) for name in _CHILDREN[key]]
        elif key not in _LEAVES:
            raise graph.error(index, "not an expression of Relay")
        if key in _LISTS:
            found += graph.items(graph.field(index, _LISTS[key]))
        if key == "relay.Match":
            found += [graph.field(clause, "rhs") for clause in graph.items(graph.field(index, "clauses"))]
        return found

    def make(self, index: int) -> ast.Expression:
        """Return the expression of a node whose operands are made."""
        graph = self.graph
        key = graph.node(index).type_key
        if key == "relay.Call":
            return self.call(index)
        if key == "relay.Var":
            return self.var(index)
        if key == "relay.Let":
            return self.let(index)
        if key == "relay.Function":
            return self.made_function(index)
        if key == "relay.Constant":
            return graph.value(index)
        if key in ("Op", "relay.Op"):
            return ast.Operator(self.text(index))
        if key in ("GlobalVar", "relay.GlobalVar"):
            return ast.Global(name_of(graph, index))
        operands = [self.done[child] for child in self.operands[index]]
        if key == "relay.Tuple":
            return ast.Tuple(operands)
        if key == "relay.TupleGetItem":
            number = graph.parsed(index, "index", graph.literal(index, "index"), "int")
            return ast.TupleGetItem(operands[0], number)
        if key == "relay.If":
            return ast.If(*operands)
        place = ast.Place(name=f"{key.removeprefix('relay.')}#{index}")
        if key == "relay.Constructor":
            return ast.Unsupported(f"constructor {name_of(graph, index)} of an ADT", place=place)
        if key == "relay.Match":
            operands[1:] = [
                self.arm(clause, operands[0], result)
                for clause, result in zip(graph.items(graph.field(index, "clauses")), operands[1:])
            ]
        return ast.Unsupported(_UNSUPPORTED[key], operands, place=place)

    def arm(self, clause: int, value: ast.Expression, result: ast.Expression) -> ast.Expression:
        """Return the result of a clause; its variables stand for the whole value, so that each has one."""
        graph, found = self.graph, []
        patterns, seen = [graph.field(clause, "lhs")], 0
        while patterns:
            pattern, seen = patterns.pop(), seen + 1
            if seen > len(graph):
                raise graph.error(clause, "has patterns without end")
            if graph.node(pattern).type_key == "relay.PatternVar":
                found.append(self.variable(graph.field(pattern, "var")))
            elif "patterns" in graph.node(pattern).attrs:
                patterns += graph.items(graph.field(pattern, "patterns"))
        return ast.Let([(var, value) for var in found], result) if found else result

    def text(self, index: int) -> str:
        found = self.graph.node(index).text
        if not found:
            raise self.graph.error(index, "has no name")
        return found

    def var(self, index: int) -> ast.Var:
        graph = self.graph
        name = name_of(graph, graph.field(index, "vid"))
        return ast.Var(name, graph.type_of(graph.field(index, "type_annotation")))

    def variable(self, index: int) -> ast.Var:
        """Return the variable that a function or let binds, made now if nobody reads it."""
        if index not in self.done:
            if self.graph.node(index).type_key != "relay.Var":
                raise self.graph.error(index, "a variable is needed here")
            self.done[index] = self.var(index)
        found = self.done[index]
        if not isinstance(found, ast.Var):
            raise self.graph.error(index, "a variable is needed here")
        return found

    def let(self, index: int) -> ast.Let:
        """Return the chain of lets that begins at a node."""
        bindings = []
        while True:
            value, body = self.operands[index]
            bindings.append((self.variable(self.graph.field(index, "var")), self.done[value]))
            if body in self.done:
                break
            index = body
        for var, bound in bindings:
            if isinstance(bound, ast.Call) and not bound.place.name.startswith("%"):
                bound.place = ast.Place(name=f"%{var.name}")
        return ast.Let(bindings, self.done[body])

    def made_function(self, index: int) -> ast.Function:
        graph = self.graph
        inferred = self.inferred(index)
        inferred_params = inferred.params if isinstance(inferred, ast.FunctionType) else ()
        params = []
        for position, item in enumerate(graph.items(graph.field(index, "params"))):
            params.append(self.variable(item))
            if params[-1].type is None:
                known = inferred_params[position] if position < len(inferred_params) else None
                params[-1].type = known or self.inferred(item)
        result = graph.type_of(graph.field(index, "ret_type"))
        if result is None and isinstance(inferred, ast.FunctionType):
            result = inferred.result
        attrs = graph.value(graph.field(index, "attrs")) if "attrs" in graph.node(index).attrs else None
        if not isinstance(attrs, dict | None):
            raise graph.error(index, "its attrs are no DictAttrs")
        names = [graph.type_of(item) for item in graph.items(graph.field(index, "type_params"))]
        return ast.Function(
            params,
            self.done[graph.field(index, "body")],
            result,
            attrs or {},
            [name.name for name in names if isinstance(name, ast.NamedType)],
        )

    def inferred(self, index: int) -> ast.Type | None:
        """Return the type that TVM had inferred for a node, None where it had not."""
        if "_checked_type_" not in self.graph.node(index).attrs:
            return None
        return self.graph.type_of(self.graph.field(index, "_checked_type_"))

    def call(self, index: int) -> ast.Call:
        function, *args = [self.done[child] for child in self.operands[index]]
        attrs = self.graph.value(self.graph.field(index, "attrs"))
        fields: dict[str, Any] = {}
        name = "call"
        if isinstance(function, ast.Operator):
            fields = self.attributes(index, function.name, attrs)
            name = function.name
        elif isinstance(function, ast.Global):
            name = "@" + function.name
        return ast.Call(function, args, fields, place=ast.Place(name=f"{name}#{index}"))

    def attributes(self, index: int, operator: str, attrs: Any) -> dict[str, Any]:
        """Return the attributes of a call of an operator, by name.

        Attributes of a type that the operator does not have would lose their
        meaning silently, so they are refused.
        """
        if attrs is None or isinstance(attrs, dict):
            return older.upgraded(operator, dict(attrs or {}))
        if not isinstance(attrs, AttrsNode):
            raise self.graph.error(index, f"the attributes of {operator} are no attributes")
        known = table.schema()["operators"].get(operator, {}).get("attrs", "")
        if known and attrs.type_key != known:
            fields = table.schema()["attributes"].get(known, {})
            if not attrs.fields or not set(attrs.fields) <= set(fields):
                raise self.graph.error(
                    index, f"{operator} has attributes {attrs.type_key}, which TVM 0.19 does not know for it"
                )
        return older.upgraded(operator, attrs.fields)
