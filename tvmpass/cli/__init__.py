"""The command line: one file per command; TVM is imported inside the commands only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run ``tvmpass`` with ``arguments`` (those of the process) and exit."""
    try:
        from .failures import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:  # while the imports above run; later ones are handled inside
        print("tvmpass: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
