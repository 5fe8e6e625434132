"""Operators that say where or how to compute, not what: they leave their operand."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
