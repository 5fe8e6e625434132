"""What the converter tables are made of: attributes with defaults, and the emitter.

A family of operators is a module in `operators` with a ``TABLE``::

    TABLE = Table()

    @TABLE.operator("nn.dense")
    def dense(emit, attrs, x, weight):
        return relax.op.matmul(x, emit(relax.op.permute_dims(weight)), out_dtype=...)

A converter gets Relax expressions whose types are known: one per argument of
the Relay call, a Python tuple of them where Relay has a tuple.  It returns an
expression (bound by the caller where it is a call), or a Python tuple of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Protocol

import numpy as np

Value = Any
"""A Relax expression, or a tuple of values."""

Convert = Callable[..., Value]


class CannotConvert(Exception):
    """A converter's refusal: this call has no exact Relax form; the text says why.

    The caller turns it into an error that names the operator and its place.
    """


class Emitter(Protocol):
    """What a converter may do besides returning an expression."""

    def __call__(self, expr, name: str = "") -> Any:
        """Bind ``expr`` and return the variable; variables and constants are returned as they are."""

    def te(self, function: Callable, *args, name: str) -> Any:
        """Bind a kernel: ``function`` gets the TE tensors of ``args`` and returns one or a list.

        Of several results a Python tuple is returned.  ``name`` names the kernel
        by its computation.  For what Relax has no operator only: rules and
        layouts do not see into it.
        """

    def const(self, value, dtype: str) -> Any:
        """Return a constant of exactly this dtype."""

    def array(self, expr) -> np.ndarray | None:
        """Return the value of an expression known now, else None.

        Known are constants, bound parameters and what small operators make of them.
        """


class Table(dict[str, Convert]):
    """Converters by Relay's operator names."""

    def operator(self, *names: str) -> Callable[[Convert], Convert]:
        """Register a converter under ``names``."""

        def register(convert: Convert) -> Convert:
            for name in names:
                if name in self:
                    raise ValueError(f"two converters for {name}")
                self[name] = convert
            return convert

        return register


class Attrs(Mapping[str, Any]):
    """The attributes of one call: what it states, over Relay's defaults.

    ``attrs.axis`` and ``attrs["axis"]`` give the value; an attribute that the
    operator does not have raises `AttributeError` resp. `KeyError`.
    """

    def __init__(self, operator: str, stated: Mapping[str, Any]):
        self._operator = operator
        self._values = {**defaults(operator), **stated}
        self.stated = frozenset(stated)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"{self._operator} has no attribute {name}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def ints(self, name: str) -> list[int] | None:
        """Return a list of integers (one integer as a list of one), None where it is None.

        Raises `CannotConvert` for anything else.
        """
        value = self._values.get(name)
        if value is None:
            return None
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(item, (int, np.integer)) for item in items):
            raise CannotConvert(f"{name}={value!r} is not a list of integers")
        return [int(item) for item in items]

    def word(self, name: str) -> str | None:
        """Return a string, None where Relay has none (empty or void)."""
        value = self._values.get(name)
        return None if value in (None, "", "void") else str(value)


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """Return Relay's operators and attribute types as of TVM 0.19.

    ``operators``: name -> ``{"args": [...], "attrs": TYPE_KEY}``; ``attributes``:
    type key -> field -> ``{"type": ..., "default": ...}`` (no default: required).
    """
    return json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))


def defaults(operator: str) -> dict[str, Any]:
    """Return the default of each attribute of an operator (None where required)."""
    key = schema()["operators"].get(operator, {}).get("attrs", "")
    return {name: field.get("default") for name, field in schema()["attributes"].get(key, {}).items()}


def merged(tables: Sequence[Mapping[str, Convert]]) -> dict[str, Convert]:
    """Return one table of several; a name in two of them is an error."""
    found: dict[str, Convert] = {}
    for table in tables:
        twice = sorted(set(found) & set(table))
        if twice:
            raise ValueError(f"two converters for {', '.join(twice)}")
        found.update(table)
    return found
