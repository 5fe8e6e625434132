#!/usr/bin/env python3
"""Write the list of Relay operators into docs/relay.md, from the converter tables.

scripts/document_operators.py            write it
scripts/document_operators.py --check    exit 1 where it is not as it should be
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "relay.md"
HEADING = "## Operators\n"


def section() -> str:
    """Return the section on operators: those that convert, by family, and those that do not."""
    from tvmpass.frontends.relay.operators import FAMILIES, TABLE
    from tvmpass.frontends.relay.table import schema

    lines = [
        HEADING,
        f"{len(TABLE)} operators have a converter. This list is made by `scripts/document_operators.py`.\n",
        "| family | operators |",
        "|---|---|",
    ]
    for family in FAMILIES:
        name = family.__name__.rpartition(".")[2]
        lines.append(f"| {name} | {_words(family.TABLE)} |")
    every = schema()["operators"]
    left = _words(name for name in every if name not in TABLE)
    lines.append(f"\nOf the {len(every)} operators of TVM 0.19 these have none: {left}.")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Return the page with the section as it should be, at its end."""
    return page.partition(HEADING)[0] + section()


def _words(names) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return 0 if page == written(page) else 1
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
