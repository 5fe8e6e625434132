"""Checks of attribute values by the types that Relay declares.

Text can state anything; a converter that takes ``int(axis)`` would read 0.5 as
0, where Relay refuses the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .parse_stream import cut
from .parse_types import is_dtype
from .table import CannotConvert, schema

_FLOAT_LISTS = frozenset(["sizes", "ratios", "steps", "offsets", "variances", "scales", "roi"])
"""Fields of type Array that hold floats; all others hold integers."""

_POSITIVE = frozenset(
    ["strides", "dilation", "dilations", "kernel_size", "pool_size", "block_size", "block_shape"]
    + ["groups", "num_groups", "deformable_groups"]
)
"""Windows, steps and counts: of another size, kernels would read beyond their tensors."""

_SLICES = ("strided_slice", "strided_set", "dyn.strided_slice")
"""Operators whose strides may be negative."""

_LARGEST = float(np.finfo("float32").max)

_NO_DTYPES = ("", "void", "handle")


def check_values(operator: str, stated: Mapping[str, Any]) -> None:
    """Raise `CannotConvert` where a stated attribute is not what Relay declares."""
    declared = schema()["attributes"].get(schema()["operators"].get(operator, {}).get("attrs", ""), {})
    if "pool_size" in declared and stated.get("pool_size") is None:
        raise CannotConvert("pool_size is not stated")
    for name, value in stated.items():
        if name not in declared:
            continue
        kind = declared[name]["type"]
        known = _CHECKS.get(kind)
        if known is not None and not known[1](name, value):
            raise CannotConvert(f"{name}={cut(repr(value))} is not {known[0]}")
        if name in _POSITIVE and operator not in _SLICES and any(part < 1 for part in _numbers(value)):
            raise CannotConvert(f"{name}={cut(repr(value))} is not positive")
        # These are added to a float32: infinity and NaN make no sense of it.
        if name in ("epsilon", "eps") and isinstance(value, float) and not abs(value) < _LARGEST:
            raise CannotConvert(f"{name}={value!r} does not fit float32")


def _numbers(value: Any) -> list[Any]:
    """Return the numbers of a list, or the one number."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if _is_number(item)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _is_list(name: str, value: Any) -> bool:
    """Say whether a value is a list of numbers, of lists of them, or one number."""
    rest = [(value, 0)]
    while rest:
        item, depth = rest.pop()
        if isinstance(item, (list, tuple)):
            rest += [(part, depth + 1) for part in item]
        elif not (item is None or _is_integer(item) or (name in _FLOAT_LISTS and _is_number(item))):
            return False
        if depth > 2:
            return False
    return True


_CHECKS: dict[str, tuple[str, Callable[[str, Any], bool]]] = {
    "int": ("an integer", lambda name, value: _is_integer(value)),
    "IntImm": ("an integer", lambda name, value: value is None or _is_integer(value)),
    "double": ("a number", lambda name, value: _is_number(value)),
    "bool": ("True or False", lambda name, value: _is_integer(value) and value in (0, 1)),
    "str": ("a string", lambda name, value: value is None or isinstance(value, str)),
    "runtime.String": ("a string", lambda name, value: value is None or isinstance(value, str)),
    "DataType": (
        "a dtype",
        lambda name, value: (
            value is None or (isinstance(value, str) and (value in _NO_DTYPES or is_dtype(value)))
        ),
    ),
    "Array": ("a list of integers", _is_list),
    "runtime.Object": ("a number or a list of integers", _is_list),
}
"""Declared type -> what is needed, and whether an attribute's value is that."""
