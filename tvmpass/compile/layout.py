"""Plan the layout of convolutions before fusion."""

from __future__ import annotations

from tvmpass.core.engine import relax_functions
from tvmpass.core.plan import named_pass


def plan_layout(mod, rules, job):
    """Let each layout rule decide its regions and rewrite them."""

    def plan_all(m):
        for rule in rules:
            job.ledger.met(rule.name, 0)
            for name in relax_functions(m):
                m = rule.plan(m, name, job)
        return m, None

    result, _ = named_pass("PlanLayout", mod, plan_all)
    return result
