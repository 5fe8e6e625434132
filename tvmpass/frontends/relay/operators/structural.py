"""Operators that say where or how to compute, not what: they leave their operand."""

from __future__ import annotations

from ..table import Table

TABLE = Table()


@TABLE.operator(
    "annotation.cast_hint",
    "annotation.checkpoint",
    "annotation.compiler_begin",
    "annotation.compiler_end",
    "annotation.stop_fusion",
    "copy",
    "debug",
    "device_copy",
    "on_device",
)
def leave(emit, attrs, value):
    """Leave the operand, a tensor or a tuple."""
    return value
