"""Convolutions, and operators that are convolutions in disguise."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
