"""Padding, and blocks of space."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
