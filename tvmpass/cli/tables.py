"""Plain tables: aligned by spaces, nothing wrapped or cut, so that they can be searched."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def counted(number: int, noun: str) -> str:
    """Return ``1 kernel`` or ``3 kernels``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table_text(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Collection[int] = ()
) -> str:
    """Lay out a table; the columns whose positions are in ``numbers`` are set to the right."""
    cells = [tuple(str(cell) for cell in row) for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
