"""Elementwise arithmetic, comparisons, logic and bits."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
