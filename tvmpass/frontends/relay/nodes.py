"""Read TVM's node-graph JSON: the metadata of Relay text, and ``tvm.ir.save_json``.

The format (TVM 0.6 to 0.19) is a flat list of nodes.  A node has a type key and
fields, which are strings; whether a field is a literal or the index of another
node depends on its declared type, for operator attributes given by
`table.schema`.  The text may come from anywhere: indices, cycles, depths and
sizes are checked, and nothing in it is evaluated.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import ast, older, table
from .errors import RelayError
from .node_values import DECODERS, LITERALS
from .tensors import ByteReader, read_tensor

_MAX_DEPTH = 64
"""Values nest this deep at most; real ones nest about five deep."""


@dataclass
class AttrsNode:
    """The attributes of a call, by the key of their type; or another node known by its key only."""

    type_key: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Node:
    """One node as it stands: nothing is resolved yet."""

    type_key: str
    attrs: dict[str, str]
    data: list[int]
    keys: list[str] | None
    text: str | None


class NodeGraph:
    """The nodes of one JSON text, decoded on demand and once each.

    ``where`` names the text in messages.  Raises `RelayError`, one line each.
    """

    def __init__(self, text: str | bytes, where: str = "metadata"):
        self.where = where
        document = _parse(text, where)
        self._nodes = document["nodes"]
        self._tensors = document.get("b64ndarrays", [])
        self._arrays: dict[int, np.ndarray] = {}
        self._checked: dict[int, Node] = {}
        self._values: dict[int, Any] = {}
        self._open: set[int] = set()
        attrs = document.get("attrs")
        self.version = str(attrs.get("tvm_version", "")) if isinstance(attrs, dict) else ""
        self.root = self._index(document.get("root"), "root")

    def __len__(self) -> int:
        return len(self._nodes)

    def error(self, index: int, message: str) -> RelayError:
        """Return the error of one node."""
        raw = self._nodes[index]
        key = raw.get("type_key", "") if isinstance(raw, dict) else ""
        return RelayError(f"{self.where}: node {index}{f' ({key})' if key else ''}: {message}")

    def node(self, index: int) -> Node:
        """Return a node, its parts checked for their form."""
        if index not in self._checked:
            self._checked[index] = self._check(index)
        return self._checked[index]

    def _check(self, index: int) -> Node:
        raw = self._nodes[index]
        if not isinstance(raw, dict):
            raise self.error(index, "is no object")
        key, attrs, data = raw.get("type_key", ""), raw.get("attrs", {}), raw.get("data", [])
        keys = raw.get("keys")
        if not isinstance(key, str):
            raise self.error(index, "its type_key is no string")
        if not isinstance(attrs, dict) or not all(isinstance(v, str) for v in attrs.values()):
            raise self.error(index, "its attrs are no object of strings")
        if not isinstance(data, list):
            raise self.error(index, "its data is no list")
        if keys is not None and not (isinstance(keys, list) and all(isinstance(k, str) for k in keys)):
            raise self.error(index, "its keys are no list of strings")
        items = [self._index(item, f"node {index}: data") for item in data]
        return Node(key, attrs, items, keys, self._text(index, raw))

    def field(self, index: int, name: str) -> int:
        """Return the index of the node that a field of a node refers to."""
        text = self.literal(index, name)
        try:
            found = int(text)
        except ValueError:
            raise self.error(index, f"{name} is {text[:40]!r}, not the number of a node") from None
        return self._index(found, f"node {index}: {name}")

    def literal(self, index: int, name: str) -> str:
        """Return a field of a node as its text."""
        attrs = self.node(index).attrs
        if name not in attrs:
            raise self.error(index, f"has no field {name}")
        return attrs[name]

    def items(self, index: int) -> list[int]:
        """Return the items of an Array node, by index; a null node has none."""
        node = self.node(index)
        if node.type_key not in ("", "Array"):
            raise self.error(index, "an Array is needed here")
        return node.data

    def entries(self, index: int) -> list[tuple[str | int, int]]:
        """Return key (a string, or a node's index) and value index of a Map node."""
        node = self.node(index)
        if node.type_key not in ("", "Map", "StrMap"):
            raise self.error(index, "a Map is needed here")
        if node.keys is not None:
            if len(node.keys) != len(node.data):
                raise self.error(index, f"has {len(node.keys)} keys for {len(node.data)} values")
            return list(zip(node.keys, node.data))
        if len(node.data) % 2:
            raise self.error(index, "has a key without a value")
        return list(zip(node.data[::2], node.data[1::2]))

    def metadata(self) -> dict[str, list]:
        """Return what ``meta[KEY][N]`` refers to: by key, a list of decoded values."""
        found: dict[str, list] = {}
        for key, index in self.entries(self.root):
            name = key if isinstance(key, str) else str(self.value(key))
            found[name] = [self.value(item) for item in self.items(index)]
        return found

    def value(self, index: int) -> Any:
        """Return the value of a node: a plain value, type, constant or `AttrsNode`.

        Strings, numbers, lists and dicts are Python's; null is None, and so is
        a dim that is not known.  A node of another kind is an `AttrsNode`
        without fields.
        """
        if index in self._values:
            return self._values[index]
        if index in self._open:
            raise self.error(index, "contains itself")
        if len(self._open) >= _MAX_DEPTH:
            raise self.error(index, f"is nested more than {_MAX_DEPTH} deep")
        self._open.add(index)
        try:
            found = self._decode(index)
        finally:
            self._open.discard(index)
        self._values[index] = found
        return found

    def type_of(self, index: int) -> ast.Type | None:
        """Return the type that a node is; None where it is left out."""
        found = self.value(index)
        if found is not None and not isinstance(found, ast.Type):
            raise self.error(index, "a type is needed here")
        return found

    def array(self, index: int) -> np.ndarray:
        """Return a stored tensor by its number."""
        if not 0 <= index < len(self._tensors):
            raise RelayError(
                f"{self.where}: refers to tensor {index}, but {len(self._tensors)} tensors are stored"
            )
        if index not in self._arrays:
            blob, what = self._tensors[index], f"tensor {index}"
            reader = ByteReader(self._base64(blob, what), self.where)
            self._arrays[index] = read_tensor(reader, what)
            if not reader.at_end():
                raise RelayError(f"{self.where}: {what} holds more bytes than its shape needs")
        return self._arrays[index]

    def _decode(self, index: int) -> Any:
        node = self.node(index)
        decode = DECODERS.get(node.type_key)
        if decode is not None:
            return decode(self, index, node)
        if node.type_key.startswith("relay.attrs."):
            return self._attributes(index, node)
        return AttrsNode(node.type_key)

    def _attributes(self, index: int, node: Node) -> AttrsNode:
        declared = table.schema()["attributes"].get(node.type_key)
        if declared is None and node.type_key not in older.FIELDS:
            return AttrsNode(node.type_key)
        fields = {}
        for name, text in node.attrs.items():
            kind = older.field_kind(node.type_key, name, self.version)
            kind = kind or (declared or {}).get(name, {}).get("type")
            if kind is None:
                raise self.error(index, f"attribute {name} is not known")
            fields[name] = self.parsed(index, name, text, kind)
        return AttrsNode(node.type_key, fields)

    def parsed(self, index: int, name: str, text: str, kind: str) -> Any:
        """Return a field's value by its declared kind; a reference is followed."""
        if kind in ("str", "runtime.String"):
            # Releases differ in whether a text stands here or refers to a node; none is a number.
            return self.value(self.field(index, name)) if text.isdecimal() else text
        literal = LITERALS.get(kind)
        if literal is None:
            return self.value(self.field(index, name))
        try:
            return literal(text)
        except ValueError:
            raise self.error(index, f"{name} is {text[:40]!r}, not {kind}") from None

    def _text(self, index: int, raw: dict) -> str | None:
        if "repr_b64" in raw:
            # Base64 of a length (8 bytes) and as many bytes.
            data = self._base64(raw["repr_b64"], f"node {index}: repr_b64")
            reader = ByteReader(data, self.where)
            (length,) = reader.numbers("Q", f"the text of node {index}")
            return bytes(reader.take(length, f"the text of node {index}")).decode("utf-8", "replace")
        text = raw.get("repr_str", raw.get("global_key"))
        if text is not None and not isinstance(text, str):
            raise self.error(index, "its text is no string")
        return text

    def _base64(self, blob: Any, what: str) -> bytes:
        if not isinstance(blob, str):
            raise RelayError(f"{self.where}: {what} is no string")
        try:
            return base64.b64decode("".join(blob.split()), validate=True)
        except (binascii.Error, ValueError):
            raise RelayError(f"{self.where}: {what} is no base64 text (damaged?)") from None

    def _index(self, index: Any, what: str) -> int:
        if not isinstance(index, int) or isinstance(index, bool):
            raise RelayError(f"{self.where}: {what} is {str(index)[:40]!r}, not the number of a node")
        if not 0 <= index < len(self._nodes):
            raise RelayError(
                f"{self.where}: {what} refers to node {index}, but there are {len(self._nodes)} nodes"
            )
        return index


def _parse(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise RelayError(f"{where}: the JSON is nested too deep for a node graph") from None
    except ValueError as error:
        raise RelayError(f"{where}: not JSON ({error})") from None
    if isinstance(document, dict) and {"arg_nodes", "heads"} <= document.keys():
        raise RelayError(
            f"{where}: the graph of a built library (of the graph executor), which has lost its operators; "
            "save the program itself with tvm.ir.save_json(mod)"
        )
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise RelayError(f"{where}: not a node graph of TVM: an object with a list 'nodes' is needed")
    if not isinstance(document.get("b64ndarrays", []), list):
        raise RelayError(f"{where}: not a node graph of TVM: 'b64ndarrays' is no list")
    return document
