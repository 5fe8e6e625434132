"""Pooling: windows, global and adaptive."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
