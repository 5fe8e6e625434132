"""Passes for Apache TVM, written as rules, judged before use, explained after.

The public surface; everything is imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tvmpass.compat import check_installed
from tvmpass.registration import register_when_tvm_is_there
from tvmpass.version import VERSION as __version__

check_installed()
register_when_tvm_is_there()

_HOMES = {
    "PassContext": "tvmpass.compile.context",
    "Artifact": "tvmpass.compile.artifact",
    "load_artifact": "tvmpass.compile.artifact",
    "load": "tvmpass.compile.build",
    "build": "tvmpass.compile.build",
    "optimize": "tvmpass.compile.build",
    "rules": "tvmpass.catalogue",
    "pipeline": "tvmpass.compile.passes",
    "apply_recipe": "tvmpass.compile.passes",
    "TvmpassError": "tvmpass.core.errors",
    "UsageError": "tvmpass.core.errors",
    "Report": "tvmpass.core.report",
    "SimplifyRule": "tvmpass.core.rule",
    "ProposalRule": "tvmpass.core.rule",
    "ScheduleRule": "tvmpass.core.rule",
    "RefusalKind": "tvmpass.core.decision",
}

__all__ = [*_HOMES, "tune", "__version__"]

if TYPE_CHECKING:
    from tvmpass import tune
    from tvmpass.catalogue import rules
    from tvmpass.compile.artifact import Artifact, load_artifact
    from tvmpass.compile.build import build, load, optimize
    from tvmpass.compile.context import PassContext
    from tvmpass.compile.passes import apply_recipe, pipeline
    from tvmpass.core.decision import RefusalKind
    from tvmpass.core.errors import TvmpassError, UsageError
    from tvmpass.core.report import Report
    from tvmpass.core.rule import ProposalRule, ScheduleRule, SimplifyRule


def __getattr__(name: str):
    if name == "tune":  # the package itself can be called: see there
        return importlib.import_module("tvmpass.tune")
    if name not in _HOMES:
        raise AttributeError(f"module 'tvmpass' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES, "tune"})
