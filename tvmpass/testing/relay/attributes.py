"""What Relay declares of each operator's attributes, read from the schema's data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

REQUIRED = object()
"""The default of an attribute that has none."""


@dataclass(frozen=True)
class Field:
    """One attribute: its declared type and its default."""

    type: str
    default: Any


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    path = files("tvmpass.frontends.relay").joinpath("schema.json")
    return json.loads(path.read_text(encoding="utf-8"))


def type_key(operator: str) -> str:
    """Return the name of the operator's attribute type; empty where it has no attributes."""
    return _data()["operators"].get(operator, {}).get("attrs", "")


def fields(operator: str) -> dict[str, Field]:
    """Return the attributes of an operator in the order in which Relay prints them."""
    declared = _data()["attributes"].get(type_key(operator), {})
    return {name: Field(entry["type"], entry.get("default", REQUIRED)) for name, entry in declared.items()}


def filled(operator: str, stated: Mapping[str, Any]) -> SimpleNamespace:
    """Return what a call states over the defaults; a required one that is not stated is None."""
    known = {
        name: None if field.default is REQUIRED else field.default for name, field in fields(operator).items()
    }
    return SimpleNamespace(**{**known, **stated})
