"""Name an unscheduled kernel by its content, the same in every process and model.

A tuning record belongs to a *kernel key*: a hash of the kernel's canonical text,
the class of devices, the options that change its code, and TVM's version.  The
text leaves out what only names things (variables, buffers, blocks, the
function, source positions), so that equal kernels of different models share
their records.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tvm
from tvm import tirx

from tvmpass.core.options import Options

CODE_ATTRS = ("s_tir", "tirx.noalias", "tirx.is_scheduled", "tirx.is_host_func")
"""Attributes of a function that change its code; the others say where it came from."""

_CODE_OPTIONS = ("fast_math", "tile", "pipeline", "unroll", "tensorize")
"""Options under which one kernel is scheduled or compiled in another way; the thread count
is in the device class."""

_NAMES = {"ir.Var": ("span", "name"), "s_tir.SBlock": ("span", "name_hint"), "tirx.PrimFunc": ("span", "ty")}
"""Fields without meaning, per node type; of the others it is ``span`` alone.  A function's type
follows from its parameters."""

_NUMBERS = frozenset(("data_alignment", "iter_type", "kind", "ndim", "offset_factor"))
"""Fields that TVM's JSON gives as plain whole numbers; in all others one refers to a node."""


def plain_kernel(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the kernel without its name and the attributes that change no code."""
    for attr in dict(function.attrs or {}):
        if attr not in CODE_ATTRS:
            function = function.without_attr(attr)
    return function


def canonical_text(function: tirx.PrimFunc) -> str:
    """Write a PrimFunc down without its names: equal texts mean equal kernels.

    One line per distinct part, children before parents and referred to by
    number; variables are numbered as they are met, maps sorted by their keys.
    Two functions have the same text exactly where they are structurally equal
    (`tvm_ffi.structural_equal`) up to attributes that change no code.
    """
    graph = json.loads(tvm.ir.save_json(plain_kernel(function)))
    return "\n".join(_Writer(graph["nodes"]).write(graph["root_index"]))


def kernel_key(function: tirx.PrimFunc, device_class: str, options: Options) -> str:
    """Return the key under which records of an unscheduled kernel are kept: 64 hex digits."""
    settings = {name: getattr(options, name) for name in _CODE_OPTIONS}
    return _digest(canonical_text(function), device_class, json.dumps(settings), tvm.__version__)


def record_key(kernel_key: str, text: str, recipe_version: int) -> str:
    """Return the key of one record: of a kernel with one recipe or trace, ``text``."""
    return _digest(kernel_key, text, str(recipe_version))


def _digest(*parts: str) -> str:
    """Hash texts so that no two different tuples of them are mixed up."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class _Writer:
    """Turns the nodes of TVM's JSON into lines that do not depend on how parts are shared."""

    def __init__(self, nodes: list[dict[str, Any]]):
        self.nodes = nodes
        self.numbers: dict[int, int] = {}
        """Node -> number of its line; equal nodes have one line."""
        self.lines: dict[str, int] = {}
        self.variables = 0

    def write(self, root: int) -> list[str]:
        # Not recursive: a sum of a thousand terms is a thousand levels deep.
        stack = [(root, False)]
        while stack:
            index, children_done = stack.pop()
            if index in self.numbers:
                continue
            if children_done:
                line = self._line(self.nodes[index])
                self.numbers[index] = self.lines.setdefault(line, len(self.lines))
            else:
                stack.append((index, True))
                stack.extend((child, False) for child in reversed(self._children(self.nodes[index])))
        return list(self.lines)

    def _children(self, node: dict[str, Any]) -> list[int]:
        data: Any = node.get("data")
        if node["type"] == "ffi.Map":
            return [index for pair in self._pairs(data) for index in pair]
        if isinstance(data, list):
            return data
        if isinstance(data, dict):
            return [value for name, value in self._fields(node) if _refers(name, value)]
        return []

    def _line(self, node: dict[str, Any]) -> str:
        kind: str = node["type"]
        data: Any = node.get("data")
        if kind == "ffi.Map":
            shown = " ".join(f"{self.numbers[key]}:{self.numbers[value]}" for key, value in self._pairs(data))
        elif isinstance(data, list):
            shown = " ".join(str(self.numbers[index]) for index in data)
        elif isinstance(data, dict):
            parts = (
                f"{name}={self.numbers[value]}" if _refers(name, value) else f"{name}:{json.dumps(value)}"
                for name, value in self._fields(node)
            )
            shown = " ".join(parts)
        else:
            shown = json.dumps(data)
        if kind == "ir.Var":
            shown += f" variable:{self.variables}"  # two variables are never one, however alike
            self.variables += 1
        return f"{kind} {shown}"

    def _fields(self, node: dict[str, Any]) -> list[tuple[str, Any]]:
        left_out = _NAMES.get(node["type"], ("span",))
        return [(name, value) for name, value in node["data"].items() if name not in left_out]

    def _pairs(self, data: list[int]) -> list[tuple[int, int]]:
        """Return the entries of a map; what was put in first says nothing."""
        pairs = list(zip(data[::2], data[1::2]))
        return sorted(pairs, key=lambda pair: json.dumps(self.nodes[pair[0]], sort_keys=True))


def _refers(name: str, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and name not in _NUMBERS
