"""Cache analyses per function; after a change keep only what still holds.

A result is about variables.  A rewritten binding keeps its variable and new
ones are unknown to an old result, so a rule may declare in ``preserves`` only
analyses whose statements about the *remaining* variables stay true: removing
dead bindings keeps types, but not liveness.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..site import FunctionView
from .alias import find_aliases
from .constants import find_constants
from .dominance import find_dominance
from .liveness import find_liveness
from .memory import plan_memory
from .purity import find_purity
from .types import find_types
from .work import find_work

KINDS: Mapping[str, Callable[[FunctionView], Any]] = MappingProxyType(
    {
        "liveness": find_liveness,
        "dominance": find_dominance,
        "purity": find_purity,
        "alias": find_aliases,
        "types": find_types,
        "constants": find_constants,
        "memory": plan_memory,
        "work": find_work,
    }
)
"""Every analysis but ``uses``, which all of them read: the `FunctionView` itself."""


class Analyses:
    """The analyses of one module as it is now."""

    def __init__(self, mod):
        self.mod = mod
        self._functions: dict[str, Any] = {}
        self._results: dict[str, dict[str, Any]] = {}

    def get(self, kind: str, function: str):
        """Return the result of ``kind`` (``uses`` or one of `KINDS`) for a function, computed once."""
        if function not in self._functions:
            self._functions[function], self._results[function] = self.mod[function], {}
        known = self._results[function]
        if kind not in known:
            if kind == "uses":
                known[kind] = FunctionView(self.mod, function)
            elif kind in KINDS:
                known[kind] = KINDS[kind](self.get("uses", function))
            else:
                raise KeyError(f"no analysis {kind!r}; there are: uses, {', '.join(KINDS)}")
        return known[kind]

    def after(self, mod, preserves: Iterable[str] = ()) -> None:
        """Go on with ``mod``; a changed function keeps only the analyses in ``preserves``."""
        if mod.same_as(self.mod):
            return
        kept = set(preserves) - {"uses"}
        present = {variable.name_hint for variable in mod.get_global_vars()}
        for name, known in list(self._results.items()):
            if name not in present:
                del self._results[name], self._functions[name]
            elif self._functions[name].same_as(mod[name]):
                if "uses" in known:  # all of it holds but the module
                    known["uses"] = copy.copy(known["uses"])
                    known["uses"].mod = mod
            else:
                self._functions[name] = mod[name]
                self._results[name] = {kind: known[kind] for kind in kept & known.keys()}
        self.mod = mod
