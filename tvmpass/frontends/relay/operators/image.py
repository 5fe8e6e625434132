"""Images: resizing, sampling, cropping."""

from __future__ import annotations

from ..table import Table

TABLE = Table()
