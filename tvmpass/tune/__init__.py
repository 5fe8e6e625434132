"""Measured tuning: candidates, runners, records; ``tvmpass.tune(...)`` runs a session.

The name is a function of the public surface and this package at once: Python
sets ``tvmpass.tune`` to the package when any of it is imported, so the package
can be called.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallableModule(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any):
        """Tune ``mod`` for ``target``; see `tvmpass.tune.session.tune`."""
        from tvmpass.tune.session import tune

        return tune(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
