"""Run one function of this package and print its result as one line of JSON.

python -m scripts.acceptance.child MODULE:FUNCTION '[ARGUMENTS]'
"""

from __future__ import annotations

import importlib
import json
import sys

from .bench import MARK


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    module, _, function = name.partition(":")
    result = getattr(importlib.import_module(f"scripts.acceptance.{module}"), function)(*arguments)
    sys.stdout.flush()
    print(MARK + json.dumps(result, default=str), flush=True)


if __name__ == "__main__":
    main()
