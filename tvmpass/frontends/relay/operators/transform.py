"""Operators that move elements: shapes, axes, slices, joins."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
