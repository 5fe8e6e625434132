"""Tell which format a model file has: by its content, where the name leaves it open."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ONNX, RELAY, RELAY_JSON, RELAX_JSON, TORCH = "onnx", "relay", "relay-json", "relax-json", "torch"
RELAY_FORMATS = (RELAY, RELAY_JSON)

_HEAD = 1 << 16
_BLANK = re.compile(r"(?:\s|\ufeff|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_RELAY = re.compile(r"#\s*\[\s*(?:version|metadata)|v0\.0\.\d|def\s+@|fn\s*\(|free_var\b|@main\s*=")
_RELAX = re.compile(r'"root_index"\s*:')


def model_format(model: Any) -> str:
    """Return the format of a model: a path, the text of a Relay program, or an object (ONNX).

    Names that end in ``.onnx``, ``.relay`` and ``.pt2`` say it; ``.json`` is
    Relay's or Relax's by its content; of any other name the content decides, and
    what begins like none of these is taken for ONNX.
    """
    if not isinstance(model, (str, os.PathLike)):
        return ONNX
    if is_text(model):
        return _of_text(str(model)[:_HEAD]) or RELAY
    suffix = Path(model).suffix.lower()
    if suffix in (".onnx", ".pt2"):
        return ONNX if suffix == ".onnx" else TORCH
    found = _of_text(_head(model))
    if found is None:
        return {".json": RELAY_JSON, ".relay": RELAY}.get(suffix, ONNX)
    return found


def is_text(model: Any) -> bool:
    """Tell whether a string is a program itself, not the path of one."""
    return isinstance(model, str) and ("\n" in model or bool(_RELAY.match(model.lstrip())))


def _head(path: str | os.PathLike) -> str:
    """Return the beginning of a file; what cannot be read is reported by its reader."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""


def _of_text(head: str) -> str | None:
    begin = _BLANK.match(head).end()  # type: ignore[union-attr]  # it matches the empty text
    if head.startswith("{", begin):
        return RELAX_JSON if _RELAX.search(head) else RELAY_JSON
    return RELAY if _RELAY.match(head, begin) else None
