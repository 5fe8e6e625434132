"""Quantised operators: integer arithmetic, bit for bit."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
