"""What a ``--rules`` file says about tuning: recipes to try. Loading one runs its code."""

from __future__ import annotations

import functools
import runpy
from typing import Any

import tvm

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.kernels import Kernel
from tvmpass.core.options import Options

FUNCTION = "recipes"


def recipes_of(path: str, kernel: Kernel, target: tvm.target.Target, options: Options) -> list[str]:
    """Return the recipe texts that the file's ``recipes(kernel, target, options)`` gives.

    A file without such a function gives none.  Raises `TvmpassError` naming the
    file for one that fails, or that returns something else than texts.
    """
    function = _function(path)
    if function is None:
        return []
    try:
        found = list(function(kernel, target, options) or ())
    except Exception as error:  # other people's code
        raise TvmpassError(f"--rules {path}: {FUNCTION}(): {type(error).__name__}: {error}") from error
    texts = [str(item).strip() for item in found]
    if not all(texts) or any(isinstance(item, (bytes, int, float)) for item in found):
        raise UsageError(f"--rules {path}: {FUNCTION}() must give recipe texts, not {found!r:.80}")
    return texts


@functools.lru_cache(maxsize=16)
def _function(path: str) -> Any:
    try:
        namespace = runpy.run_path(path, run_name="tvmpass_rules")
    except Exception as error:  # as above
        raise TvmpassError(f"--rules {path}: {type(error).__name__}: {error}") from error
    function = namespace.get(FUNCTION)
    if function is not None and not callable(function):
        raise UsageError(f"--rules {path}: {FUNCTION} is not a function")
    return function
