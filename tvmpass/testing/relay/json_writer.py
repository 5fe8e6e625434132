"""Write a Relay program as ``tvm.ir.save_json`` of TVM 0.19 wrote it.

Every expression, type and attribute is a node of one list, and what is shared in
the program is one node; so blocks may share nodes here, which text cannot say.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tvmpass.frontends.relay import ast

from . import attributes
from .metadata import blob
from .steps import Step, run

NONE = 0
"""The index of the node that stands for nothing."""

_LITERAL = frozenset({"int", "double", "bool", "str", "DataType"})
"""Declared types of attributes that are spelled in place; others are nodes."""

Types = Mapping[ast.Expression, ast.Type]


def write_json(module: ast.Module, types: Types | None = None) -> str:
    """Return the JSON of a program; ``types`` are stated as the checked types of its values."""
    writer = _Writer(types or {})
    root = run(writer.module(module))
    document = {
        "root": root,
        "nodes": writer.nodes,
        "b64ndarrays": writer.tensors,
        "attrs": {"tvm_version": "0.19.0"},
    }
    return json.dumps(document, indent=2)


class _Writer:
    def __init__(self, types: Types):
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.tensors: list[str] = []
        self._types = types
        self._expressions: dict[ast.Expression, int] = {}
        self._kinds: dict[ast.Type, int] = {}
        self._operators: dict[str, int] = {}
        self._globals: dict[str, int] = {}
        self._device = NONE

    def module(self, module: ast.Module) -> Step:
        pairs: list[int] = []
        for name in module.functions:
            pairs.append(self._global(name))
            pairs.append((yield self._expression(module.functions[name])))
        empty = {
            name: self._node("Map")
            for name in ("type_definitions", "global_type_var_map_", "source_map", "global_infos")
        }
        names = self._node("Map", keys=list(self._globals), data=list(self._globals.values()))
        functions = self._node("Map", data=pairs)
        fields = {"functions": functions, "global_var_map_": names, "attrs": self._dictionary({}), **empty}
        return self._record("IRModule", **fields)

    # -- expressions

    def _expression(self, node: ast.Expression) -> Step:
        if node not in self._expressions:
            self._expressions[node] = yield self._written(node)
        return self._expressions[node]

    def _written(self, node: ast.Expression) -> Step:
        """Add the node of an expression; what it needs is added before."""
        if isinstance(node, ast.Var):
            name = self._record("relay.Id", name_hint=self._string(node.name))
            kind = self._kind(node.type)
            return self._value("Var", node, vid=name, type_annotation=kind)
        if isinstance(node, ast.Constant):
            self.tensors.append(base64.b64encode(blob(node.value)).decode("ascii"))
            return self._value("Constant", node, data=len(self.tensors) - 1)
        if isinstance(node, ast.Operator):
            return self._operator(node.name)
        if isinstance(node, ast.Global):
            return self._global(node.name)
        if isinstance(node, ast.Tuple):
            return self._value("Tuple", node, fields=(yield self._list(node.fields)))
        if isinstance(node, ast.TupleGetItem):
            tuple_value = yield self._expression(node.value)
            return self._value("TupleGetItem", node, tuple_value=tuple_value, index=node.index)
        if isinstance(node, ast.Call):
            return (yield self._call(node))
        if isinstance(node, ast.If):
            condition = yield self._expression(node.condition)
            then = yield self._expression(node.then)
            otherwise = yield self._expression(node.otherwise)
            return self._value("If", node, cond=condition, true_branch=then, false_branch=otherwise)
        if isinstance(node, ast.Let):
            return (yield self._lets(node))
        if isinstance(node, ast.Function):
            return (yield self._function(node))
        raise TypeError(f"{type(node).__name__} is not written")

    def _list(self, nodes: Sequence[ast.Expression]) -> Step:
        items = []
        for node in nodes:
            items.append((yield self._expression(node)))
        return self._array(items)

    def _call(self, node: ast.Call) -> Step:
        function = yield self._expression(node.function)
        args = yield self._list(node.args)
        attrs = NONE
        if isinstance(node.function, ast.Operator) and attributes.type_key(node.function.name):
            attrs = yield self._attributes(node.function.name, node.attrs)
        return self._value("Call", node, op=function, args=args, attrs=attrs, type_args=self._array([]))

    def _lets(self, node: ast.Let) -> Step:
        """Add one node per let; the last is added first, because the others lead to it."""
        pairs = []
        for variable, value in node.bindings:
            pairs.append(((yield self._expression(variable)), (yield self._expression(value))))
        body = yield self._expression(node.body)
        for variable_index, value_index in reversed(pairs):
            body = self._value("Let", node, var=variable_index, value=value_index, body=body)
        return body

    def _function(self, node: ast.Function) -> Step:
        params = yield self._list(node.params)
        body = yield self._expression(node.body)
        return self._value(
            "Function",
            node,
            params=params,
            body=body,
            ret_type=self._kind(node.result),
            type_params=self._array([]),
            attrs=self._dictionary(node.attrs),
        )

    def _value(self, key: str, node: ast.Expression, **fields: int) -> int:
        if not self._device:
            scope = self._string("")
            self._device = self._record(
                "VirtualDevice", device_type_int=-1, memory_scope=scope, target=NONE, virtual_device_id=-1
            )
        kind = self._kind(self._types.get(node))
        return self._record(
            f"relay.{key}", **fields, _checked_type_=kind, span=NONE, virtual_device_=self._device
        )

    def _operator(self, name: str) -> int:
        if name not in self._operators:
            self._operators[name] = self._node("Op", repr_str=name)
        return self._operators[name]

    def _global(self, name: str) -> int:
        if name not in self._globals:
            hint = self._string(name)
            fields = dict.fromkeys(("_checked_type_", "span", "struct_info_", "virtual_device_"), NONE)
            self._globals[name] = self._record("GlobalVar", name_hint=hint, **fields)
        return self._globals[name]

    # -- types

    def _kind(self, kind: ast.Type | None) -> int:
        if kind is None:
            return NONE
        if kind not in self._kinds:
            self._kinds[kind] = self._new_kind(kind)
        return self._kinds[kind]

    def _new_kind(self, kind: ast.Type) -> int:
        if isinstance(kind, ast.TensorType):
            shape = self._array([self._dim(dim) for dim in kind.shape])
            return self._record("relay.TensorType", dtype=kind.dtype, shape=shape, span=NONE)
        if isinstance(kind, ast.TupleType):
            return self._record(
                "TupleType", fields=self._array(list(map(self._kind, kind.fields))), span=NONE
            )
        if isinstance(kind, ast.FunctionType):
            return self._record(
                "FuncType",
                arg_types=self._array(list(map(self._kind, kind.params))),
                ret_type=self._kind(kind.result),
                type_params=self._array([]),
                type_constraints=self._array([]),
                span=NONE,
            )
        raise TypeError(f"{type(kind).__name__} is not written")

    def _dim(self, dim: int | None) -> int:
        return self._number(dim) if dim is not None else self._record("tir.Any", dtype="int32", span=NONE)

    # -- attributes

    def _attributes(self, operator: str, stated: Mapping[str, Any]) -> Step:
        values = vars(attributes.filled(operator, stated))
        fields: dict[str, Any] = {}
        for name, field in attributes.fields(operator).items():
            value = values[name]
            if field.type in _LITERAL:
                fields[name] = _literal(value)
            elif isinstance(value, ast.Constant):
                fields[name] = yield self._expression(value)
            else:
                fields[name] = self._object(value, boxed=field.type == "runtime.Object")
        return self._record(attributes.type_key(operator), **fields)

    def _object(self, value: Any, boxed: bool = False) -> int:
        if value is None:
            return NONE
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, (list, tuple)):
            return self._array([self._object(item, boxed) for item in value])
        if boxed:
            return self._node("runtime.BoxInt", repr_str=str(value))
        return self._number(value)

    def _dictionary(self, values: Mapping[str, Any]) -> int:
        entries = {key: self._object(value) for key, value in values.items()}
        if entries:
            return self._record(
                "DictAttrs", __dict__=self._node("Map", keys=list(entries), data=list(entries.values()))
            )
        return self._record("DictAttrs", __dict__=self._node("Map"))

    # -- nodes

    def _number(self, value: float) -> int:
        if isinstance(value, float):
            return self._record("FloatImm", dtype="float32", span=NONE, value=_literal(value))
        dtype = "bool" if isinstance(value, bool) else "int32"
        return self._record("IntImm", dtype=dtype, span=NONE, value=int(value))

    def _string(self, text: str) -> int:
        return self._node("runtime.String", **({"repr_str": text} if text else {}))

    def _array(self, items: list[int]) -> int:
        return self._node("Array", **({"data": items} if items else {}))

    def _record(self, type_key: str, **fields: Any) -> int:
        return self._node(type_key, attrs={name: str(value) for name, value in sorted(fields.items())})

    def _node(self, type_key: str, **rest: Any) -> int:
        self.nodes.append({"type_key": type_key, **rest})
        return len(self.nodes) - 1


def _literal(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.17g}" if isinstance(value, float) else str(value)
