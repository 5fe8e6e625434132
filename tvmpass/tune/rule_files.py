"""What a ``--rules`` file says about tuning: recipes to try. Loading one runs its code."""

from __future__ import annotations

import functools
import itertools
import runpy
from typing import Any

import tvm

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.kernels import Kernel
from tvmpass.core.options import Options

FUNCTION = "recipes"

MAX_RECIPES = 1000
"""Texts that one file may give for one kernel."""


def recipes_of(path: str, kernel: Kernel, target: tvm.target.Target, options: Options) -> list[str]:
    """Return the recipe texts that the file's ``recipes(kernel, target, options)`` gives.

    A file without such a function gives none.  Raises `TvmpassError` naming the
    file for one that fails, or that returns something else than texts.
    """
    function = _function(path)
    if function is None:
        return []
    try:
        found = list(itertools.islice(function(kernel, target, options) or (), MAX_RECIPES + 1))
    except (Exception, SystemExit) as error:  # other people's code
        raise TvmpassError(f"--rules {path}: {FUNCTION}(): {type(error).__name__}: {error}") from error
    if len(found) > MAX_RECIPES:
        raise UsageError(f"--rules {path}: {FUNCTION}() gives more than {MAX_RECIPES} recipes for one kernel")
    texts = [str(item).strip() for item in found]
    odd = [i for i, t in zip(found, texts) if not t or isinstance(i, (bytes, int, float))]
    if odd:
        raise UsageError(f"--rules {path}: {FUNCTION}() must give recipe texts, not {odd[0]!r:.80}")
    return texts


@functools.lru_cache(maxsize=16)
def _function(path: str) -> Any:
    try:
        namespace = runpy.run_path(path, run_name="tvmpass_rules")
    except (Exception, SystemExit) as error:  # as above
        raise TvmpassError(f"--rules {path}: {type(error).__name__}: {error}") from error
    function = namespace.get(FUNCTION)
    if function is not None and not callable(function):
        raise UsageError(f"--rules {path}: {FUNCTION} is not a function")
    return function
