"""Plan layouts: of convolutions before fusion, of weights after lowering."""

from __future__ import annotations

from tvmpass.core.engine import relax_functions
from tvmpass.core.plan import named_pass


def plan_layout(mod, rules, job, name: str = "PlanLayout"):
    """Let each layout rule decide for every function and rewrite it, as the pass ``name``."""

    def plan_all(m):
        for rule in rules:
            job.ledger.met(rule.name, 0)
            for function in relax_functions(m):
                m = rule.plan(m, function, job)
        return m, None

    result, _ = named_pass(name, mod, plan_all)
    return result
