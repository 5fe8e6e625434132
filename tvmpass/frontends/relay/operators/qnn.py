"""Quantised operators: integer arithmetic, bit for bit."""

from __future__ import annotations

from ..table import merged
from . import qnn_arithmetic, qnn_contractions, qnn_lookup, qnn_quantize

TABLE = merged([qnn_quantize.TABLE, qnn_contractions.TABLE, qnn_arithmetic.TABLE, qnn_lookup.TABLE])
