"""What the tests of proposal rules share."""

from __future__ import annotations

import pytest
import tvm

from tvmpass.core.options import Options
from tvmpass.core.site import FunctionView


class Emitter:
    """Makes kernels of candidates, as a build does."""

    def candidates(self, rule, mod):
        """Return all candidates of ``rule`` in ``main``."""
        view = FunctionView(mod, "main")
        return [c for site in rule.match(view) if rule.check(site) is None for c in rule.propose(site)]

    def fused(self, mod, *candidates):
        """Return ``mod`` lowered, each of ``candidates`` one kernel."""
        from tvmpass.compile.grouping import emit_groups, lower

        return lower(emit_groups(mod, "main", candidates), tvm.target.Target("llvm"), Options())


@pytest.fixture(scope="session")
def emitter():
    return Emitter()
