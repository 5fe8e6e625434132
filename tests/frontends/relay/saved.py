"""Write node-graph JSON and tensors as TVM did: what tests of their readers share."""

from __future__ import annotations

import base64
import json
import struct

import numpy as np

MAGIC = 0xDD5E40F096B4A13F
PARAMS_MAGIC = 0xF7E58D4F05049CB7
KINDS = {"i": 0, "u": 1, "f": 2}


def tensor_bytes(array: np.ndarray, **changed) -> bytes:
    """Return a tensor as TVM stores it; ``changed`` replaces fields of its header."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    code, bits = KINDS.get(array.dtype.kind, 4), array.dtype.itemsize * 8
    if array.dtype == np.bool_:
        code, bits = 1, 1
    head = {
        "magic": MAGIC,
        "rank": array.ndim,
        "code": code,
        "bits": bits,
        "lanes": 1,
        "shape": array.shape,
        "bytes": array.nbytes,
        **changed,
    }
    shape = head["shape"]
    return (
        struct.pack("<QQiii", head["magic"], 0, 1, 0, head["rank"])
        + struct.pack("<BBH", head["code"], head["bits"], head["lanes"])
        + struct.pack(f"<{len(shape)}q", *shape)
        + struct.pack("<q", head["bytes"])
        + array.tobytes()
    )


def params_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return what relay.save_param_dict returned for these arrays."""
    data = struct.pack("<QQQ", PARAMS_MAGIC, 0, len(arrays))
    for name in arrays:
        data += struct.pack("<Q", len(name.encode())) + name.encode()
    return data + struct.pack("<Q", len(arrays)) + b"".join(tensor_bytes(a) for a in arrays.values())


class Saved:
    """A graph under construction; each method adds a node and returns its index."""

    def __init__(self, version: str = "0.19.0"):
        self.nodes: list[dict] = [{"type_key": ""}]
        self.tensors: list[str] = []
        self.version = version

    def add(self, type_key: str, attrs=None, data=None, keys=None, text=None) -> int:
        node: dict = {"type_key": type_key}
        if attrs is not None:
            node["attrs"] = {name: str(value) for name, value in attrs.items()}
        for name, value in (("data", data), ("keys", keys), ("repr_str", text)):
            if value is not None:
                node[name] = value
        self.nodes.append(node)
        return len(self.nodes) - 1

    def string(self, text: str) -> int:
        return self.add("runtime.String", text=text)

    def array(self, *items: int) -> int:
        return self.add("Array", data=list(items))

    def number(self, value: int, dtype: str = "int32") -> int:
        return self.add("IntImm", {"dtype": dtype, "span": 0, "value": value})

    def tensor(self, shape, dtype: str = "float32") -> int:
        dims = self.array(*(self.add("tir.Any") if dim is None else self.number(dim) for dim in shape))
        return self.add("relay.TensorType", {"dtype": dtype, "shape": dims, "span": 0})

    def var(self, name: str, type_: int = 0) -> int:
        hint = name if self.version.startswith("0.6") else self.string(name)
        return self.add(
            "relay.Var", {"vid": self.add("relay.Id", {"name_hint": hint}), "type_annotation": type_}
        )

    def constant(self, array: np.ndarray) -> int:
        self.tensors.append(base64.b64encode(tensor_bytes(array)).decode())
        return self.add("relay.Constant", {"data": len(self.tensors) - 1, "span": 0})

    def call(self, operator: str | int, *args: int, attrs: int = 0) -> int:
        op = self.add("Op", text=operator) if isinstance(operator, str) else operator
        return self.add("relay.Call", {"op": op, "args": self.array(*args), "attrs": attrs, "type_args": 0})

    def let(self, var: int, value: int, body: int) -> int:
        return self.add("relay.Let", {"var": var, "value": value, "body": body})

    def function(self, params, body: int, result: int = 0, attrs: int = 0) -> int:
        fields = {"params": self.array(*params), "body": body, "ret_type": result, "attrs": attrs}
        return self.add("relay.Function", {**fields, "type_params": self.array()})

    def module(self, **functions: int) -> int:
        pairs: list[int] = []
        for name, function in functions.items():
            hint = name if self.version.startswith("0.6") else self.string(name)
            pairs += [self.add("GlobalVar", {"name_hint": hint}), function]
        return self.add("IRModule", {"functions": self.add("Map", data=pairs), "type_definitions": 0})

    def text(self, root: int) -> str:
        return json.dumps(
            {
                "root": root,
                "nodes": self.nodes,
                "b64ndarrays": self.tensors,
                "attrs": {"tvm_version": self.version},
            }
        )
