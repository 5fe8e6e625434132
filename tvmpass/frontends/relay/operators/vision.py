"""Detection: boxes, suppression, regions."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
