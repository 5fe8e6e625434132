"""Price candidates: lower them as the build does, schedule, predict.

Two stages: candidates that graph-level reasoning already rules out are
*pruned*; of the rest, at most ``tvmpass.price_budget`` distinct ones per
module are lowered.  Everything is memoised by what the kernel is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvmpass.core.analysis.alias import VIEW_OPS
from tvmpass.core.decision import Estimate
from tvmpass.core.errors import last_line
from tvmpass.core.options import Options
from tvmpass.core.plan import Price
from tvmpass.core.site import Candidate, FunctionView, op_name

from .grouping import Group, GroupFunction, group_function, lower
from .latency import Latency, add
from .schedule import ScheduledKernel, Scheduler

MAX_PREFIXES = 3
"""Of a site's nested candidates, how many are lowered; see `_worth_lowering`."""


@dataclass
class _Lowered:
    """The kernels that one group function became."""

    kernels: list[ScheduledKernel]

    @property
    def estimate(self) -> Estimate:
        return add([k.estimate for k in self.kernels])


class KernelPricer:
    """The `Pricer` of a real build."""

    def __init__(self, target: tvm.target.Target, options: Options, scheduler: Scheduler, latency: Latency):
        self.target, self.options = target, options
        self.scheduler, self.latency = scheduler, latency
        self.failures: list[str] = []
        self._lowered: dict[str, _Lowered | None] = {}
        self._candidates: dict[int, tuple[Candidate, str]] = {}
        # By value, not by variable: a variable keeps its name when it is given a new value.
        self._parts: dict[Any, str] = {}
        self._over_budget: set[str] = set()
        self._spent = 0

    def prepare(self, view: FunctionView, candidates: Sequence[Candidate]) -> None:
        """Lower all distinct candidates and parts not priced yet, in one batch."""
        wanted: dict[str, GroupFunction] = {}
        by_site: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            by_site.setdefault(id(candidate.site), []).append(candidate)
        for group in by_site.values():
            for candidate in _worth_lowering(group):
                self._want(view, candidate, wanted)
        self._lower(wanted)

    def estimate(self, view: FunctionView, candidate: Candidate) -> Price | str:
        """Return the price of a prepared candidate, else ``pruned`` or ``budget``."""
        if id(candidate) not in self._candidates:
            return "pruned"
        key = self._candidates[id(candidate)][1]
        if key in self._over_budget:
            return "budget"
        fused = self._lowered.get(key)
        values = [view.bindings[v] for v in candidate.bindings if not _free(view, v)]
        parts = _all_lowered(self._lowered.get(self._parts[value]) for value in values)
        if fused is None or parts is None:
            return "pruned"  # why is in `failures`
        together = add([part.estimate for part in parts])
        group = self.latency.group(
            [k.features for k in fused.kernels],
            [k.features for part in parts for k in part.kernels],
            together.mean,
            [k.kernel.kind for k in fused.kernels],
        )
        price = Price(together, group, kept=max((p.estimate.mean for p in parts), default=0.0))
        if not price.unresolved:
            return price
        apart = [self.latency.analytic([k.features for k in part.kernels]) for part in parts]
        whole = self.latency.analytic([k.features for k in fused.kernels])
        return Price(add(apart), whole, kept=max(estimate.mean for estimate in apart))

    def apart(self, view: FunctionView) -> Estimate | None:
        """Return the time of a function whose every call is a kernel of its own.

        None where a call is no operator or cannot be lowered.  For choices that
        come before fusion and change the operators themselves, like layout.
        """
        wanted: dict[str, GroupFunction] = {}
        keys: list[str] = []
        for var, value in view.bindings.items():
            if not isinstance(value, relax.Call) or _free(view, var):
                continue
            if op_name(value) is None:
                return None
            part = group_function(view, Group((var,), "part", {}))
            keys.append(part.key)
            if part.key not in self._lowered:
                wanted.setdefault(part.key, part)
        self._lower(wanted)
        parts = _all_lowered(self._lowered[key] for key in keys)
        return None if parts is None else add([part.estimate for part in parts])

    def spend(self) -> bool:
        """Take one from the budget of lowered candidates; False where it is used up."""
        if self._spent >= self.options.price_budget:
            return False
        self._spent += 1
        return True

    def _want(self, view: FunctionView, candidate: Candidate, wanted: dict[str, GroupFunction]) -> None:
        made = group_function(view, Group.of(candidate))
        # The candidate is kept alive with its key, so that its id stays its own.
        self._candidates[id(candidate)] = (candidate, made.key)
        if made.key not in self._lowered and made.key not in wanted:
            if not self.spend():
                self._over_budget.add(made.key)
                return
            wanted[made.key] = made
        for var in candidate.bindings:
            value = view.bindings[var]
            if not _free(view, var) and value not in self._parts:
                part = group_function(view, Group((var,), "part", {}))
                self._parts[value] = part.key
                if part.key not in self._lowered:
                    wanted.setdefault(part.key, part)

    def _lower(self, wanted: dict[str, GroupFunction]) -> None:
        if not wanted:
            return
        try:
            self._lowered.update(self._lower_batch(wanted))
        except Exception as error:  # one group that cannot be lowered must not lose the others
            if len(wanted) == 1:
                self._lowered[next(iter(wanted))] = None
                self.failures.append(last_line(error))
                return
            items = list(wanted.items())
            half = len(items) // 2
            self._lower(dict(items[:half]))
            self._lower(dict(items[half:]))

    def _lower_batch(self, wanted: dict[str, GroupFunction]) -> dict[str, _Lowered]:
        mod, names = cut_out(wanted)
        mod = lower(mod, self.target, self.options)
        result = {}
        for key, name in names.items():
            function = mod[name]
            if not isinstance(function, tirx.PrimFunc):
                raise TypeError(f"{name} was not lowered to a kernel")
            result[key] = _Lowered([self.scheduler.schedule(function)])
        return result


def cut_out(functions: dict[str, GroupFunction]):
    """Return a module that calls each group function once, and key -> function name."""
    mod = tvm.IRModule()
    names, params, bindings, results = {}, [], [], []
    for i, (key, made) in enumerate(functions.items()):
        name = f"k{i}_{made.name}"
        variable = tvm.ir.GlobalVar(name)
        relax.expr._update_type(variable, made.function.ty)
        mod[variable] = made.function
        names[key] = name
        fresh = relax.utils.copy_with_new_vars(made.function)
        own = [relax.Var(f"p{i}_{j}", p.ty) for j, p in enumerate(fresh.params)]
        params.extend(own)
        call = relax.Call(variable, own, None, [], None, fresh.ret_ty)
        out = relax.Var(f"r{i}", fresh.ret_ty)
        bindings.append(relax.VarBinding(out, call))
        results.append(out)
    body = relax.SeqExpr([relax.BindingBlock(bindings)], relax.Tuple(results))
    main = relax.Function(params, body, relax.TupleType([r.ty for r in results]))
    mod["main"] = main.with_attr("global_symbol", "main")
    return relax.transform.Normalize()(mod), names


def _all_lowered(parts: Iterable[_Lowered | None]) -> list[_Lowered] | None:
    """Return the parts, or None where one of them could not be lowered."""
    found = []
    for part in parts:
        if part is None:
            return None
        found.append(part)
    return found


def _worth_lowering(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Keep a site's longest candidates and its shortest; the ones between are pruned.

    Each longer prefix saves one more pass over the same data; where the longest
    does not pay, its neighbours and the shortest show whether any does.
    """
    if len(candidates) <= MAX_PREFIXES:
        return list(candidates)
    return [*candidates[: MAX_PREFIXES - 1], candidates[-1]]


def _free(view: FunctionView, var) -> bool:
    value = view.bindings[var]
    return op_name(value) in VIEW_OPS or isinstance(value, relax.TupleGetItem)
