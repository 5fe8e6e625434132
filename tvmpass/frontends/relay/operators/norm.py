"""Normalisation, softmax and dropout."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
