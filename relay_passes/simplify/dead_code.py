"""Remove bindings that nothing reads.

before: ``a = exp(x); b = tanh(a); return x``      after: ``return x``

Always pays: the work is not done at all.  Other rules leave such bindings
behind when they route readers past them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvmpass.core.analysis.purity import is_pure
from tvmpass.core.legality import IMPURE
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import REMOVED, Site, op_name


@dataclass(frozen=True)
class DeadCode(SimplifyRule):
    """Remove bindings that nothing reads."""

    refusals: ClassVar = (IMPURE,)
    preserves: ClassVar = frozenset({"types", "alias", "constants", "dominance", "purity"})

    def match(self, view):
        """Yield every binding that is read by dead bindings only.

        A ``match_cast`` is left alone: it checks a shape at run time and
        defines dims that types mention without reading the variable.
        """
        dead: set = set()
        for var in reversed(view.bindings):
            if var in view.match_casts or view.returned(var):
                continue
            if all(user in dead for user in view.users.get(var, ())):
                if is_pure(view.bindings[var]):
                    dead.add(var)
                yield Site.make(self, view, var, {var})

    def check(self, site):
        value = site.view.bindings[site.root]
        if not is_pure(value):
            return IMPURE(operator=op_name(value) or "a call")
        return None

    def rewrite(self, site):
        return REMOVED
