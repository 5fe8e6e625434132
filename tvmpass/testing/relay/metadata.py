"""The metadata section: what does not fit into the text, as a graph of nodes in JSON."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from tvmpass.frontends.relay import ast

BLOB_MAGIC = 0xDD5E40F096B4A13F
CPU = (1, 0)
DTYPE_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4}
KEY_BOX, KEY_CONSTANT = "runtime.BoxInt", "relay.Constant"


class Metadata:
    """Collects the items of the section; each gets its reference at once."""

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}
        self._known: dict[int, tuple[Any, str]] = {}

    def constant(self, node: ast.Constant, kind: ast.Type | None = None) -> str:
        """Return the reference to a constant; the same node gets the same one."""
        if id(node) not in self._known:
            self._known[id(node)] = (node, self._add(KEY_CONSTANT, (node.value, kind)))
        return self._known[id(node)][1]

    def box(self, value: int) -> str:
        """Return a reference to a boxed integer."""
        return self._add(KEY_BOX, value)

    def attributes(self, type_key: str, values: Mapping[str, Any]) -> str:
        """Return a reference to a call's attributes, all of them with their values."""
        return self._add(type_key, dict(values))

    def _add(self, key: str, item: Any) -> str:
        items = self._items.setdefault(key, [])
        items.append(item)
        return f"meta[{key}][{len(items) - 1}]"

    def text(self) -> str:
        """Return the section; empty where nothing was collected."""
        return "#[metadata]\n" + _Graph(self._items).text() if self._items else ""


class _Graph:
    """Numbers the nodes in the order in which Relay meets them."""

    def __init__(self, items: Mapping[str, list[Any]]):
        self._nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self._blobs: list[str] = []
        self._device = 0
        node = self._node("Map", keys=list(items))
        node["data"] = [self._array(key, found) for key, found in items.items()]

    def text(self) -> str:
        document = {
            "root": 1,
            "nodes": self._nodes,
            "b64ndarrays": self._blobs,
            "attrs": {"tvm_version": "0.19.0"},
        }
        return _json(document, "")

    def _node(self, type_key: str, **rest: Any) -> dict[str, Any]:
        node = {"type_key": type_key, **rest}
        self._nodes.append(node)
        return node

    def _last(self) -> int:
        return len(self._nodes) - 1

    def _array(self, key: str, items: list[Any]) -> int:
        node = self._node("Array")
        here = self._last()
        node["data"] = [self._item(key, item) for item in items]
        return here

    def _item(self, key: str, item: Any) -> int:
        if key == KEY_BOX:
            self._node(key, repr_str=str(item))
            return self._last()
        if key == KEY_CONSTANT:
            return self._constant(*item)
        node = self._node(key)
        here = self._last()
        node["attrs"] = {name: self._field(value) for name, value in sorted(item.items())}
        return here

    def _constant(self, value: np.ndarray, kind: ast.Type | None) -> int:
        node = self._node(KEY_CONSTANT)
        here = self._last()
        if not self._device:
            self._device = self._virtual_device()
        self._blobs.append(base64.b64encode(blob(value)).decode("ascii"))
        node["attrs"] = {
            "_checked_type_": str(self._tensor_type(kind)) if isinstance(kind, ast.TensorType) else "0",
            "data": str(len(self._blobs) - 1),
            "span": "0",
            "virtual_device_": str(self._device),
        }
        return here

    def _virtual_device(self) -> int:
        node = self._node("VirtualDevice")
        here = self._last()
        self._node("runtime.String")
        node["attrs"] = {
            "device_type_int": "-1",
            "memory_scope": str(self._last()),
            "target": "0",
            "virtual_device_id": "-1",
        }
        return here

    def _tensor_type(self, kind: ast.TensorType) -> int:
        node = self._node("relay.TensorType")
        here = self._last()
        shape = self._node("Array")
        node["attrs"] = {"dtype": kind.dtype, "shape": str(self._last()), "span": "0"}
        if kind.shape:
            shape["data"] = [self._int(int(dim or 0)) for dim in kind.shape]
        return here

    def _int(self, value: int) -> int:
        self._node("IntImm", attrs={"dtype": "int32", "span": "0", "value": str(value)})
        return self._last()

    def _field(self, value: Any) -> str:
        """Spell a field: a number or a word as it is, a list as a reference to its node."""
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, (list, tuple)):
            node = self._node("Array")
            here = self._last()
            if value:
                node["data"] = [self._int(item) for item in value]
            return str(here)
        return "0" if value is None else str(value)


def blob(value: np.ndarray) -> bytes:
    """Return a tensor as Relay stores it: a header, the shape, the bytes in row-major order."""
    name = value.dtype.name
    kind = name.rstrip("0123456789")
    code, bits = (DTYPE_CODES["uint"], 1) if name == "bool" else (DTYPE_CODES[kind], value.dtype.itemsize * 8)
    data = np.ascontiguousarray(value).tobytes()
    head = struct.pack("<QQiiiBBH", BLOB_MAGIC, 0, *CPU, value.ndim, code, bits, 1)
    return head + struct.pack(f"<{value.ndim}q", *value.shape) + struct.pack("<q", len(data)) + data


def _json(value: Any, indent: str) -> str:
    """Write JSON with the line breaks of TVM: lists of numbers and single entries on one line."""
    inner = indent + "  "
    if isinstance(value, list):
        parts = [_json(item, inner) for item in value]
        if not value or isinstance(value[0], int):
            return f"[{', '.join(parts)}]"
        return f"[\n{inner}" + f", \n{inner}".join(parts) + f"\n{indent}]"
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_json(item, inner)}" for key, item in value.items()]
        if len(parts) == 1 and "type_key" not in value and isinstance(next(iter(value.values())), str):
            return "{" + parts[0] + "}"
        return f"{{\n{inner}" + f", \n{inner}".join(parts) + f"\n{indent}}}"
    return json.dumps(value)
