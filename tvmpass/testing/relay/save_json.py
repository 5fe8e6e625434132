"""Write a Relay program as ``tvm.ir.save_json`` of TVM 0.19 did: a flat list of nodes.

For tests of the JSON reader: every field is written by its declared type, all
attributes with their defaults, shared nodes once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tvmpass.frontends.relay import ast

from .attributes import REQUIRED, Field, fields, type_key
from .metadata import blob

VERSION = "0.19.0"
_FIELDS = {"span": 0, "virtual_device_": 0, "_checked_type_": 0}


def save_json(module: ast.Module) -> str:
    """Return a program in the JSON of ``tvm.ir.save_json``."""
    writer = _Writer()
    pairs: list[int] = []
    for name, function in module.functions.items():
        pairs += [writer.made(ast.Global(name)), writer.made(function)]
    functions = writer.add("Map", data=pairs)
    root = writer.add("IRModule", functions=functions, type_definitions=writer.add("Map"), attrs=0)
    return writer.text(root)


class _Writer:
    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self._tensors: list[str] = []
        self._done: dict[ast.Expression, int] = {}

    def text(self, root: int) -> str:
        attrs = {"tvm_version": VERSION}
        document = {"root": root, "nodes": self._nodes, "b64ndarrays": self._tensors, "attrs": attrs}
        return json.dumps(document, indent=2)

    def add(self, type_key: str, *, data=None, keys=None, text=None, **attrs: Any) -> int:
        """Add a node and return its index."""
        node: dict[str, Any] = {"type_key": type_key}
        if text:
            node["repr_str"] = text
        for name, value in (("attrs", {k: str(v) for k, v in attrs.items()}), ("keys", keys), ("data", data)):
            if value:
                node[name] = value
        self._nodes.append(node)
        return len(self._nodes) - 1

    def made(self, root: ast.Expression) -> int:
        """Return the node of an expression, after those of its operands."""
        stack: list[tuple[ast.Expression, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._done:
                continue
            if ready:
                self._done[node] = self._make(node)
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in _needed(node))
        return self._done[root]

    def _make(self, node: ast.Expression) -> int:
        done = self._done
        if isinstance(node, ast.Var):
            vid = self.add("relay.Id", name_hint=self._string(node.name))
            return self.add("relay.Var", vid=vid, type_annotation=self._type(node.type), **_FIELDS)
        if isinstance(node, ast.Constant):
            self._tensors.append(base64.b64encode(blob(node.value)).decode("ascii"))
            return self._constant()
        if isinstance(node, ast.Operator):
            return self.add("Op", text=node.name)
        if isinstance(node, ast.Global):
            return self.add("GlobalVar", name_hint=self._string(node.name), **_FIELDS)
        if isinstance(node, ast.Tuple):
            return self.add("relay.Tuple", fields=self._array(done[item] for item in node.fields), **_FIELDS)
        if isinstance(node, ast.TupleGetItem):
            return self.add("relay.TupleGetItem", tuple_value=done[node.value], index=node.index, **_FIELDS)
        if isinstance(node, ast.If):
            branches = {"true_branch": done[node.then], "false_branch": done[node.otherwise]}
            return self.add("relay.If", cond=done[node.condition], **branches, **_FIELDS)
        if isinstance(node, ast.Let):
            body = done[node.body]
            for var, value in reversed(node.bindings):
                body = self.add("relay.Let", var=done[var], value=done[value], body=body, **_FIELDS)
            return body
        if isinstance(node, ast.Function):
            return self._function(node)
        if isinstance(node, ast.Call):
            args = self._array(done[arg] for arg in node.args)
            attrs = self._attributes(node)
            return self.add(
                "relay.Call", op=done[node.function], args=args, attrs=attrs, type_args=0, **_FIELDS
            )
        raise ValueError(f"{type(node).__name__} has no node here")

    def _constant(self) -> int:
        index = self.add("relay.Constant", **_FIELDS)
        self._nodes[index]["attrs"]["data"] = str(len(self._tensors) - 1)
        return index

    def _function(self, node: ast.Function) -> int:
        attrs = 0
        if node.attrs:
            values = [self._plain(value) for value in node.attrs.values()]
            attrs = self.add("DictAttrs", __dict__=self.add("Map", keys=list(node.attrs), data=values))
        return self.add(
            "relay.Function",
            params=self._array(self._done[param] for param in node.params),
            body=self._done[node.body],
            ret_type=self._type(node.result),
            type_params=self._array(()),
            attrs=attrs,
            **_FIELDS,
        )

    def _attributes(self, call: ast.Call) -> int:
        if not isinstance(call.function, ast.Operator) or not type_key(call.function.name):
            return 0
        declared = fields(call.function.name)
        values = {
            name: call.attrs.get(name, None if field.default is REQUIRED else field.default)
            for name, field in declared.items()
        }
        return self.add(
            type_key(call.function.name),
            **{name: self._field(value, declared[name]) for name, value in values.items()},
        )

    def _field(self, value: Any, field: Field) -> str | int:
        """Return a field as its declared type has it: a literal, or the index of a node."""
        if field.type in ("int", "bool"):
            return int(value or 0)
        if field.type == "double":
            return repr(float(value or 0.0))
        if field.type in ("str", "DataType"):
            return str(value or "")
        if field.type == "runtime.Object" and isinstance(value, int):
            return self.add("runtime.BoxInt", text=str(value))
        return self._plain(value)

    def _plain(self, value: Any) -> int:
        """Return the node of a plain value."""
        if value is None:
            return 0
        if isinstance(value, ast.Constant):
            return self.made(value)
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, (bool, np.bool_)):
            return self.add("IntImm", dtype="bool", span=0, value=int(value))
        if isinstance(value, (int, np.integer)):
            return self.add("IntImm", dtype="int32", span=0, value=int(value))
        if isinstance(value, float):
            return self.add("FloatImm", dtype="float32", span=0, value=repr(value))
        if isinstance(value, (list, tuple)):
            return self._array([self._plain(item) for item in value])
        raise ValueError(f"{value!r} is no plain value")

    def _string(self, text: str) -> int:
        return self.add("runtime.String", text=text)

    def _array(self, items) -> int:
        return self.add("Array", data=list(items))

    def _type(self, type_: ast.Type | None) -> int:
        if type_ is None:
            return 0
        if isinstance(type_, ast.TensorType):
            dims = [
                self.add("tir.Any", dtype="int32") if dim is None else self._plain(dim) for dim in type_.shape
            ]
            return self.add("relay.TensorType", shape=self._array(dims), dtype=type_.dtype, span=0)
        if isinstance(type_, ast.TupleType):
            return self.add(
                "TupleType", fields=self._array([self._type(item) for item in type_.fields]), span=0
            )
        if isinstance(type_, ast.FunctionType):
            params = self._array([self._type(item) for item in type_.params])
            return self.add("FuncType", arg_types=params, ret_type=self._type(type_.result), span=0)
        raise ValueError(f"{type_} has no node here")


def _needed(node: ast.Expression) -> Iterator[ast.Expression]:
    """Yield what must have a node before an expression gets one."""
    yield from node.children()
    if isinstance(node, ast.Let):
        yield from (var for var, _ in node.bindings)
    if isinstance(node, ast.Function):
        yield from node.params
