"""Checks of an operator's call before its converter runs, and what to call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tvmpass.core.errors import nearest

from . import older
from .ast import Place
from .attribute_types import check_values
from .operators import structural
from .table import CannotConvert, Value, defaults, schema
from .types import flat

_TVM_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
_LONGEST = 300


def operator_name(name: str, place: Place, number: int) -> str:
    """Return what to call the value of a call that the program does not name."""
    return f"{name}@{place.line}" if place.line else f"{name}#{number}"


def one_line(error: Exception) -> str:
    """Return the last line of an error, without TVM's print of operator objects."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = _TVM_OPERATOR.sub(r"\1", lines[-1] if lines else type(error).__name__)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def check_call(name: str, args: Sequence[Value], attrs: Mapping[str, Any]) -> None:
    """Raise `CannotConvert` for a wrong number of arguments or a wrong attribute."""
    operator = schema()["operators"].get(name)
    if operator is None:
        return
    takes = older.ARGUMENTS.get(name, operator["args"])
    if not len(takes) - older.OPTIONAL.get(name, 0) <= len(args) <= len(takes):
        words = f"{len(takes)} arguments ({', '.join(takes)})" if takes else "no arguments"
        raise CannotConvert(f"takes {words}, {len(args)} given")
    for index, arg in enumerate(args if name not in structural.TABLE else ()):
        if any(not hasattr(leaf, "ty") for leaf in flat(arg)):
            raise CannotConvert(f"argument {takes[index]} is a function")
    known = {**defaults(name), **older.FIELDS.get(operator["attrs"], {}), **older.UNDECLARED.get(name, {})}
    for attribute in attrs:
        if attribute not in known:
            has = ", ".join(known) or "none"
            raise CannotConvert(f"has no attribute {attribute!r}{nearest(attribute, known)}; it has: {has}")
    check_values(name, attrs)
