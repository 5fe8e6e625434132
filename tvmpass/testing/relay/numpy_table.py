"""The interpreter's operators by name; each is a plain function on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Attributes = SimpleNamespace
Operation = Callable[..., Any]

TABLE: dict[str, Operation] = {}
"""Operator name -> ``function(attributes, *arguments)``; a tuple argument is a Python tuple."""


def operator(*names: str) -> Callable[[Operation], Operation]:
    """Enter a function under names."""

    def enter(function: Operation) -> Operation:
        for name in names:
            if name in TABLE:
                raise ValueError(f"two functions for {name}")
            TABLE[name] = function
        return function

    return enter
