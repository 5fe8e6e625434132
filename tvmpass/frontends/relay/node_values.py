"""How each kind of node in TVM's node-graph JSON becomes a Python value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import ast, older

if TYPE_CHECKING:
    from .nodes import Node, NodeGraph


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else bool(int(text))


def _int64(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("out of range")
    return value


def dtype_name(text: str) -> str:
    """Return a dtype in today's spelling: bool, and an empty text where there is none."""
    return {"uint1": "bool", "handle": "", "void": ""}.get(text, text)


LITERALS: dict[str, Callable[[str], Any]] = {
    "int": _int64,
    "double": float,
    "bool": _boolean,
    "DataType": dtype_name,
}
"""Field types whose value stands in the field itself; every other refers to a node."""


def _string(graph: NodeGraph, index: int, node: Node) -> str:
    return node.text if node.text is not None else node.attrs.get("value", "")


def _string_imm(graph: NodeGraph, index: int, node: Node) -> Any:
    return graph.parsed(index, "value", graph.literal(index, "value"), "str")


def _integer(graph: NodeGraph, index: int, node: Node) -> Any:
    value = graph.parsed(index, "value", graph.literal(index, "value"), "int")
    return bool(value) if node.attrs.get("dtype") in ("bool", "uint1") else value


def _floating(graph: NodeGraph, index: int, node: Node) -> Any:
    return graph.parsed(index, "value", graph.literal(index, "value"), "double")


def _boxed(kind: str) -> Callable[[NodeGraph, int, Node], Any]:
    def decode(graph: NodeGraph, index: int, node: Node) -> Any:
        text = node.text if node.text is not None else graph.literal(index, "value")
        return graph.parsed(index, "value", text, kind)

    return decode


def _list(graph: NodeGraph, index: int, node: Node) -> list:
    return [graph.value(item) for item in node.data]


def _map(graph: NodeGraph, index: int, node: Node) -> dict:
    found = {}
    for key, item in graph.entries(index):
        name = key if isinstance(key, str) else graph.value(key)
        if not isinstance(name, str | int):
            raise graph.error(index, "its keys are neither strings nor numbers")
        found[name] = graph.value(item)
    return found


def _dict_attrs(graph: NodeGraph, index: int, node: Node) -> dict:
    found = graph.value(graph.field(index, "__dict__")) if "__dict__" in node.attrs else {}
    if not isinstance(found, dict | None):
        raise graph.error(index, "its __dict__ is no Map")
    return found or {}


def _constant(graph: NodeGraph, index: int, node: Node) -> ast.Constant:
    number = graph.parsed(index, "data", graph.literal(index, "data"), "int")
    return ast.Constant(graph.array(number))


def _tensor_type(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    shape = graph.value(graph.field(index, "shape"))
    if not isinstance(shape, list):
        raise graph.error(index, "its shape is no Array")
    # Anything but a number (any, a variable, an expression) is a dim that is not known here.
    dims = tuple(dim if isinstance(dim, int) and dim >= 0 else None for dim in shape)
    return ast.TensorType(dims, dtype_name(graph.literal(index, "dtype")))


def _primitive_type(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    return ast.TensorType((), dtype_name(graph.literal(index, "dtype")))


def _types(graph: NodeGraph, index: int, name: str) -> tuple:
    found = graph.value(graph.field(index, name))
    if not isinstance(found, list):
        raise graph.error(index, f"{name} is no Array of types")
    return tuple(graph.type_of(item) for item in graph.items(graph.field(index, name)))


def _tuple_type(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    return ast.TupleType(_types(graph, index, "fields"))


def _function_type(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    result = graph.type_of(graph.field(index, "ret_type"))
    return ast.FunctionType(_types(graph, index, "arg_types"), result)


def _type_name(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    if "name_hint" not in node.attrs:  # 0.6 refers to a variable
        return ast.NamedType(graph.literal(graph.field(index, "var"), "name"))
    return ast.NamedType(name_of(graph, index))


def _type_call(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    function = graph.type_of(graph.field(index, "func"))
    name = function.name if isinstance(function, ast.NamedType) else "?"
    return ast.NamedType(name, _types(graph, index, "args"))


def _reference_type(graph: NodeGraph, index: int, node: Node) -> ast.Type:
    return ast.NamedType("ref", (graph.type_of(graph.field(index, "value")),))


def _nothing(graph: NodeGraph, index: int, node: Node) -> None:
    return None


def name_of(graph: NodeGraph, index: int) -> str:
    """Return a node's ``name_hint``: the index of a string, in 0.6 the string itself."""
    text = graph.literal(index, "name_hint")
    if older.release(graph.version) == (0, 6) or not text.isdecimal():
        return text
    found = graph.value(graph.field(index, "name_hint"))
    if not isinstance(found, str):
        raise graph.error(index, "its name_hint is no string")
    return found


DECODERS: dict[str, Callable[[NodeGraph, int, Node], Any]] = {
    "": _nothing,
    "runtime.String": _string,
    "tir.StringImm": _string_imm,
    "StringImm": _string_imm,
    "IntImm": _integer,
    "FloatImm": _floating,
    "runtime.BoxInt": _boxed("int"),
    "runtime.BoxFloat": _boxed("double"),
    "runtime.BoxBool": _boxed("bool"),
    "Array": _list,
    "Map": _map,
    "StrMap": _map,
    "DictAttrs": _dict_attrs,
    "relay.Constant": _constant,
    "relay.TensorType": _tensor_type,
    "PrimType": _primitive_type,
    "TupleType": _tuple_type,
    "FuncType": _function_type,
    "IncompleteType": _nothing,
    "TypeVar": _type_name,
    "GlobalTypeVar": _type_name,
    "TypeCall": _type_call,
    "relay.RefType": _reference_type,
    "tir.Any": _nothing,
    "Any": _nothing,
    # Up to 0.6 types were Relay's own.
    "relay.TupleType": _tuple_type,
    "relay.FuncType": _function_type,
    "relay.IncompleteType": _nothing,
    "relay.TypeVar": _type_name,
    "relay.GlobalTypeVar": _type_name,
    "relay.TypeCall": _type_call,
}
