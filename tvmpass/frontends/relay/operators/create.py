"""Operators that make tensors of their attributes, or of shapes."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
