"""Print a Relay program as TVM 0.19 printed it.

A value that is used twice, or stands where a statement may stand before it, gets
a number and a line of its own; the last value of a scope and the value of a let
are written in place.  Numbers run through the whole program, in the order in
which the users of the values are reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tvmpass.frontends.relay import ast

from . import attributes, spelling
from .metadata import Metadata
from .steps import Step, run

HEADER = '#[version = "0.0.5"]\n'

IN_METADATA = frozenset(
    {"cumprod", "cumsum", "nn.dilate", "scatter_elements", "scatter_nd", "strided_set", "trilu", "unique"}
)
"""Operators registered without an attribute type: theirs are a reference to the metadata."""

_LEAVES = (ast.Global, ast.Constant, ast.Operator, ast.Var)
_COMMENTED = (ast.Constant, ast.Call, ast.Var, ast.Function, ast.Tuple, ast.TupleGetItem)

Types = Mapping[ast.Expression, ast.Type]


def print_module(module: ast.Module, types: Types | None = None) -> str:
    """Return the text of a program, with its metadata.

    With ``types`` every value that is in it carries its type as a comment, at
    its first occurrence.  Scalars keep six digits, as in Relay.
    """
    printer = _Printer(types or {})
    texts = [printer.function(name, module.functions[name]) for name in sorted(module.functions)]
    metadata = printer.metadata.text()
    return HEADER + "\n".join(texts) + (f"\n{metadata}" if metadata else "")


class _Printer:
    """The state of one print: names given, and the lines of each open scope."""

    def __init__(self, types: Types):
        self.metadata = Metadata()
        self._types = types
        self._texts: dict[ast.Expression, str] = {}
        self._users: Counter[ast.Expression] = Counter()
        self._numbered: set[ast.Expression] = set()
        self._commented: set[ast.Expression] = set()
        self._scopes: list[list[str]] = []
        self._names: dict[str, int] = {}
        self._count = 0

    def function(self, name: str, function: ast.Function) -> str:
        """Return the definition of a global function."""
        self._users = _count_users(function)
        return run(self._function(f"def @{name}", function)) + "\n"

    # -- scopes and values

    def _scope(self, node: ast.Expression) -> Step:
        self._scopes.append([])
        last = yield self._value(node, inline=True)
        return "".join(self._scopes.pop()) + last

    def _block(self, node: ast.Expression) -> Step:
        text = yield self._scope(node)
        return "{" + _indented("\n" + text) + "\n}"

    def _value(self, node: ast.Expression, inline: bool = False) -> Step:
        """Return how a value is written where it is used; its own line goes before that."""
        inline = isinstance(node, _LEAVES) or (inline and self._users[node] <= 1)
        text = yield self._expanded(node)
        if isinstance(node, ast.Let) and not inline:
            text = "(" + _indented("\n" + text) + "\n)"
        text += self._comment(node)
        if isinstance(node, ast.Var):
            return self._texts[node]
        if inline:
            self._texts[node] = text
            return text
        if node in self._numbered:
            return self._texts[node]
        self._numbered.add(node)
        name = f"%{self._count}"
        self._count += 1
        self._texts[node] = name
        self._scopes[-1].append(f"{name} = {text};\n")
        return name

    def _expanded(self, root: ast.Expression) -> Step:
        """Write all that ``root`` needs, operands first, then ``root`` itself."""
        stack: list[tuple[ast.Expression, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._texts:
                continue
            if not ready and isinstance(node, (ast.Call, ast.Tuple, ast.TupleGetItem)):
                stack.append((node, True))
                operands = [child for child in node.children() if child not in self._texts]
                stack.extend((child, False) for child in reversed(operands))
                continue
            text = yield self._written(node)
            self._texts.setdefault(node, text)
        return self._texts[root]

    def _written(self, node: ast.Expression) -> Step:
        """Write one node; its operands are written or have their numbers."""
        if isinstance(node, ast.Var):
            return self._declared(node)
        if isinstance(node, ast.Constant):
            return spelling.scalar(node.value) or self.metadata.constant(node, self._types.get(node))
        if isinstance(node, ast.Operator):
            return node.name
        if isinstance(node, ast.Global):
            return f"@{node.name}"
        if isinstance(node, ast.Tuple):
            items = yield self._values(node.fields)
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        if isinstance(node, ast.TupleGetItem):
            return f"{(yield self._value(node.value))}.{node.index}"
        if isinstance(node, ast.Call):
            return (yield self._call(node))
        if isinstance(node, ast.If):
            condition = yield self._value(node.condition)
            then = yield self._block(node.then)
            otherwise = yield self._block(node.otherwise)
            return f"if ({condition}) {then} else {otherwise}"
        if isinstance(node, ast.Let):
            return (yield self._lets(node))
        if isinstance(node, ast.Function):
            return (yield self._function("fn ", node))
        raise TypeError(f"{type(node).__name__} is not printed")

    def _values(self, nodes: Iterable[ast.Expression]) -> Step:
        texts = []
        for node in nodes:
            texts.append((yield self._value(node)))
        return texts

    def _call(self, node: ast.Call) -> Step:
        items = yield self._values(node.args)
        if isinstance(node.function, ast.Operator):
            items += self._attributes(node.function.name, node.attrs)
        function = yield self._value(node.function)
        return f"{function}({', '.join(items)})"

    def _lets(self, node: ast.Let) -> Step:
        """Write a chain of lets; what a value needs stands before its own let."""
        opened = 0
        last: ast.Expression = node
        while isinstance(last, ast.Let) and (last is node or self._users[last] <= 1):
            for variable, value in last.bindings:
                declared = self._declared(variable)
                text = yield self._value(value, inline=True)
                self._scopes.append([f"let {declared} = {text};\n"])
                opened += 1
            last = last.body
        end = yield self._scope(last)
        chain = ["".join(lines) for lines in self._scopes[len(self._scopes) - opened :]]
        del self._scopes[len(self._scopes) - opened :]
        return "".join(chain) + end

    def _function(self, head: str, function: ast.Function) -> Step:
        params = [self._declared(param) for param in function.params]
        params += [f"{key}={self._attribute(value)}" for key, value in function.attrs.items()]
        result = f"-> {spelling.type_text(function.result)} " if function.result is not None else ""
        body = yield self._block(function.body)
        return f"{head}({', '.join(params)}) {result}{body}"

    # -- names and comments

    def _declared(self, variable: ast.Var) -> str:
        """Give a variable its name, and return it with its type."""
        name = variable.name
        if not (name[:1].isascii() and name[:1].isalpha()):
            name = "v" + name
        name = self._unique(name)
        self._texts[variable] = f"%{name}"
        kind = "" if variable.type is None else f": {spelling.type_text(variable.type)}"
        return f"%{name}{kind}{self._comment(variable)}"

    def _unique(self, name: str) -> str:
        found = name
        while found in self._names:
            self._names[name] += 1
            found = f"{name}{self._names[name]}"
        self._names[found] = 0
        return found

    def _comment(self, node: ast.Expression) -> str:
        if node in self._commented or not isinstance(node, _COMMENTED) or node not in self._types:
            return ""
        self._commented.add(node)
        return f" /* ty={spelling.type_text(self._types[node])} */"

    # -- attributes

    def _attributes(self, operator: str, stated: Mapping[str, Any]) -> list[str]:
        declared = attributes.fields(operator)
        unknown = set(stated) - set(declared)
        if unknown:
            raise ValueError(f"{operator} has no attribute {', '.join(sorted(unknown))}")
        values = vars(attributes.filled(operator, stated))
        if operator in IN_METADATA:
            return [self.metadata.attributes(attributes.type_key(operator), values)]
        texts = []
        for name, field in declared.items():
            if field.default is attributes.REQUIRED or values[name] != field.default:
                texts.append(f"{name}={self._attribute(values[name], field.type)}")
        return texts

    def _attribute(self, value: Any, kind: str = "") -> str:
        if value is None:
            return "None"
        if kind == "runtime.Object":
            if isinstance(value, list):
                return f"[{', '.join(map(self.metadata.box, value))}]"
            return self.metadata.box(value)
        if isinstance(value, ast.Constant):
            return self.metadata.constant(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._attribute, value))}]"
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, float) or kind == "double":
            return f"{float(value):g}f"
        return str(value)


def _count_users(root: ast.Expression) -> Counter[ast.Expression]:
    """Count by how many edges each node is reached."""
    users: Counter[ast.Expression] = Counter()
    stack = [root]
    while stack:
        for child in stack.pop().children():
            users[child] += 1
            if users[child] == 1:
                stack.append(child)
    return users


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
