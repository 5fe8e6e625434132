"""Keep control characters of names and files from reaching the terminal raw."""

from __future__ import annotations

from typing import Any

_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def printable(text: str) -> str:
    """Return ``text`` with every character that does not print written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_strings(value: Any) -> Any:
    """Return a JSON document with every string, keys too, made `printable`."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable_strings(key): printable_strings(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_strings(inner) for inner in value]
    return value


def printable_json(text: str) -> str:
    """Escape in a JSON text the controls that JSON itself lets pass (DEL, C1)."""
    return text.translate(_IN_JSON)
