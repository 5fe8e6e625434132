"""The ordered pipeline, top to bottom: from an imported module to kernels.

canonical form -> simplify and recognise -> layout plan -> simplify again ->
fusion plan -> groups -> legalise and fuse to TIR -> schedule.  After every
stage the module is checked for well-formedness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from tvmpass import catalogue
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.engine import Sites, relax_functions, simplify
from tvmpass.core.errors import TvmpassError, last_line
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options
from tvmpass.core.plan import named_pass, plan_function, settle
from tvmpass.core.report import KernelEntry, Ledger
from tvmpass.core.rule import Rule
from tvmpass.core.site import FunctionView, op_name
from tvmpass.core.source import origin

from .branches import outline_branches
from .canonical import canonicalize
from .finite_factors import mark_finite
from .grouping import GROUP_ATTR, PACKED_ATTR, emit_groups, lower, not_emitted
from .kernel_key import kernel_key
from .latency import Latency
from .layout import plan_layout
from .pricing import KernelPricer
from .records import Records
from .schedule import TUNED, ScheduledKernel, Scheduler, is_schedulable

NOT_EMITTED = RefusalKind("not-emitted", "the kernel made at {root} is not the group that was planned")


@dataclass
class Job:
    """Everything one run of the pipeline needs; no global state."""

    target: tvm.target.Target
    options: Options
    rules: Sequence[Rule]
    ledger: Ledger
    verifier: Any = None
    dump: Path | None = None
    progress: Callable[[str], None] | None = None
    stage_ms: dict[str, float] = field(default_factory=dict)
    kernels: list[KernelEntry] = field(default_factory=list)
    scheduled: dict[str, ScheduledKernel] = field(default_factory=dict)
    unscheduled: dict[str, tirx.PrimFunc] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    """The tuning records there are; read when kernels are scheduled, not for the plan."""
    unfused: Any = None
    """The module before fusion: what the fusion rules match on."""
    fused: Any = None
    """The module after fusion, its operators not lowered yet."""
    origins: dict[str, dict[relax.Var, tuple[str, ...]]] = field(default_factory=dict)
    """Per function the source nodes of each binding: TVM's lowering drops the spans."""

    def __post_init__(self):
        self.latency = Latency(self.target, self.options)
        self.scheduler = Scheduler(self.target, self.options, self.latency)
        self.pricer = KernelPricer(self.target, self.options, self.scheduler, self.latency)
        self.sites = Sites(self.ledger)
        self._stages = 0

    def stage(self, name: str, mod, body: Callable):
        """Run one stage: dump before and after, check what it leaves, time it."""
        self._stages += 1
        if self.progress is not None:
            self.progress(name)
        self._write(mod, name, "before")
        begin = time.perf_counter()
        result = body(mod)
        self.stage_ms[name] = (time.perf_counter() - begin) * 1e3
        self._write(result, name, "after")
        try:
            relax.analysis.well_formed(result)
        except Exception as error:  # TVM reports this as several classes
            cause = last_line(error)
            raise TvmpassError(f"internal: the module is not well-formed after {name}: {cause}") from error
        return result

    def packing(self, function: tirx.PrimFunc):
        """Return how to pack a kernel's weight, None where it has none or it does not pay."""
        if not is_schedulable(function) or self.options.tile == "off":
            return None
        return catalogue.packing(classify(function), self.target)

    def verify_packing(self, site, function: tirx.PrimFunc, made):
        """Compare a kernel and its packed form on the site's weight, where results are verified."""
        return None if self.verifier is None else self.verifier.packed(site, function, made)

    def plainer(self, kernel: str, error: str) -> tirx.PrimFunc | None:
        """Return another form of a kernel whose code generation failed, and note it.

        A tuned one becomes what the library chooses, and that the fallback.
        """
        made, function = self.scheduled.get(kernel), self.unscheduled.get(kernel)
        if made is None or function is None or made.schedule == "fallback":
            return None
        tuned = made.schedule == TUNED
        again = self.scheduler.schedule(function) if tuned else self.scheduler.fallback(function)
        self.scheduled[kernel] = again
        for entry in self.kernels:
            if entry.name == kernel:
                entry.note = "; ".join(filter(None, (entry.note, f"{made.schedule}: not compiled: {error}")))
                entry.schedule, entry.predicted = again.schedule, again.estimate
                if tuned:
                    entry.record, entry.alternatives = None, again.alternatives
        return again.function

    def tuned(self, function: tirx.PrimFunc, library: ScheduledKernel) -> ScheduledKernel | str | None:
        """Return a kernel scheduled by its tuning record, why not, or None where it has none."""
        if not self.records:
            return None
        record = self.records.best(kernel_key(function, self.latency.device_class, self.options))
        if record is None:
            return None
        steps = catalogue.of_kind(self.rules, "schedule")
        made = self.scheduler.tuned(function, library, record, steps)
        why = made if isinstance(made, Refusal) else _verify_kernel(function, made, self)
        if isinstance(made, ScheduledKernel) and why is None:
            return made
        return f"tuning record {record.key[:12]} is not used: {why.code}: {why.text()}"

    def records_used(self) -> dict[str, int]:
        """Return the report's account of tuning records, as the kernels are now."""
        used = {entry.record["key"] for entry in self.kernels if entry.record is not None}
        return {"present": self.records.present, "used": len(used), "orphaned": self.records.orphaned}

    def _write(self, mod, name: str, when: str) -> None:
        if self.dump is not None:
            path = self.dump / f"{self._stages:02d}-{name}.{when}.py"
            path.write_text(mod.script(show_meta=False) + "\n", encoding="utf-8")


def run_pipeline(mod, job: Job):
    """Return the module with every kernel scheduled; decisions and kernels go to ``job``."""
    simplify_rules = catalogue.of_kind(job.rules, "simplify")
    proposal_rules = catalogue.of_kind(job.rules, "proposal")
    layout_rules, fusion_rules, packing_rules = (
        [r for r in proposal_rules if r.plans == plan] for plan in ("layout", "fusion", "packing")
    )

    # A branch as a function of its own is simplified, fused and scheduled like any other.
    mod = job.stage("canonical", mod, lambda m: canonicalize(outline_branches(m)))
    mod = job.stage("simplify", mod, lambda m: simplify(m, simplify_rules, job.sites, job.verifier))
    if layout_rules:
        mod = job.stage("layout", mod, lambda m: plan_layout(m, layout_rules, job))
        mod = job.stage("simplify-again", mod, lambda m: simplify(m, simplify_rules, job.sites, job.verifier))
    job.unfused = mod
    mod = job.stage("fusion", mod, lambda m: fuse(m, fusion_rules, job))
    job.fused = mod
    job.origins = {name: _origins(mod, name) for name in relax_functions(mod)}
    mod = job.stage("lower", mod, lambda m: as_views(lower(m, job.target, job.options)))
    if packing_rules:
        mod = job.stage("pack", mod, lambda m: plan_layout(m, packing_rules, job, "PlanPacking"))
    return job.stage("schedule", mod, lambda m: schedule_kernels(mark_finite(m), job))


def as_views(mod):
    """Make reshapes views again, before a schedule hides that they only copy."""
    mod = relax.transform.RewriteDataflowReshape()(mod)
    return relax.transform.DeadCodeElimination()(mod)


def fuse(mod, rules, job: Job):
    """Plan the fusion of every function, emit what was chosen, record why."""
    for rule in rules:
        job.ledger.met(rule.name, 0)

    def plan_all(m):
        for name in relax_functions(m):
            view = FunctionView(m, name)
            plan = plan_function(view, rules, job.pricer, job.options, job.sites)
            faults = _verify_candidates(plan, job)
            m = _emit(m, view, [c for c in plan.chosen if id(c) not in faults], faults)
            settle(plan, job.sites, job.options, faults)
        return m, None

    result, _ = named_pass("PlanFusion", mod, plan_all)
    for failure in job.pricer.failures:
        job.ledger.note(f"a group has no price, it could not be lowered: {failure}")
    return result


def _emit(mod, view: FunctionView, chosen, faults: dict[int, Any]):
    """Emit the chosen groups; one that did not become what was planned goes to ``faults``."""
    while True:
        result = emit_groups(mod, view.name, chosen)
        lost = not_emitted(result, view.name, view, chosen)
        if not lost:
            return result
        faults.update({id(c): NOT_EMITTED(root=c.root.name) for c in lost})
        chosen = [c for c in chosen if id(c) not in faults]


def _verify_candidates(plan, job: Job) -> dict[int, Any]:
    if job.verifier is None:
        return {}
    faults = {}
    for candidate in plan.chosen:
        refusal = job.verifier.candidate(plan.view, candidate)
        if refusal is not None:
            faults[id(candidate)] = refusal
    return faults


def _origins(mod, name: str) -> dict[relax.Var, tuple[str, ...]]:
    """Map binding variables to their source nodes, for after the spans are gone.

    Lowering keeps the variables; their names need not differ.
    """
    return {
        binding.var: origin(binding.value)
        for block in mod[name].body.blocks
        for binding in block.bindings
        if origin(binding.value)
    }


def schedule_kernels(mod, job: Job):
    """Schedule every PrimFunc and list the kernels in call order."""
    steps = catalogue.of_kind(job.rules, "schedule")
    job.records = Records.of(job.options, job.target, job.latency.device_class, steps)
    for problem in job.records.problems:
        job.ledger.note(problem)
    calls = _kernel_calls(mod, job.origins)
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    order = list(calls) + sorted(
        gv.name_hint
        for gv, f in mod.functions_items()
        if isinstance(f, tirx.PrimFunc) and gv.name_hint not in calls
    )
    for name in order:
        function = mod[name]
        if not isinstance(function, tirx.PrimFunc):
            continue
        made, notes = _scheduled(function, job)
        job.scheduled[name], job.unscheduled[name] = made, function
        scheduled = made.function
        if function.attrs:
            scheduled = scheduled.with_attrs({**dict(scheduled.attrs or {}), **dict(function.attrs)})
        result.update_func(mod.get_global_var(name), scheduled)
        if name in calls:
            sources = calls[name]
            if made.alternatives and job.pricer.spend():
                job.scheduler.price_alternative(function, made)
            job.kernels.append(
                KernelEntry(
                    name=name,
                    kind=made.kernel.kind,
                    origin=list(dict.fromkeys(n for source in sources for n in source)),
                    schedule=made.schedule,
                    alternatives=made.alternatives,
                    predicted=made.estimate,
                    calls=len(sources),
                    note="; ".join(notes) or None,
                    record=_record_entry(made),
                )
            )
    return result


def _scheduled(function: tirx.PrimFunc, job: Job) -> tuple[ScheduledKernel, list[str]]:
    """Schedule a kernel by its record, else by the library's choice, else by the fallback."""
    made = job.scheduler.schedule(function)
    notes = []
    tuned = job.tuned(function, made)
    if isinstance(tuned, ScheduledKernel):
        return tuned, []
    if tuned is not None:
        notes.append(tuned)
    notes += [made.note] if made.note else []
    notes += [f"{recipe}: {refusal.code}" for recipe, refusal in made.refused]
    wrong = _verify_kernel(function, made, job)
    if wrong is not None:
        notes.append(f"{made.schedule}: {wrong.text()}")
        made = job.scheduler.fallback(function)
    return made, notes


def _record_entry(made: ScheduledKernel) -> dict[str, Any] | None:
    record = made.record
    if record is None:
        return None
    return {
        "key": record.key,
        "recipe": record.recipe,
        "trace": record.trace is not None,
        "median_us": record.median_us,
        "candidate0_us": record.candidate0_us,
    }


def _verify_kernel(function: tirx.PrimFunc, made: ScheduledKernel, job: Job):
    """Compare a single operator's kernel with its unscheduled form.

    On the CPU groups were compared as such, and kernels with packed weights on
    their weights; but all that with the library's schedules.
    """
    if job.verifier is None:
        return None
    if not job.verifier.kernels_apart and made.schedule != TUNED:
        compared = function.attrs and (GROUP_ATTR in function.attrs or PACKED_ATTR in function.attrs)
        if compared or made.schedule == "fallback":
            return None
    return job.verifier.kernel(function, made.function)


def _kernel_calls(mod, origins) -> dict[str, list[tuple[str, ...]]]:
    """Return kernel name -> source nodes of each call site, in program order."""
    calls: dict[str, list[tuple[str, ...]]] = {}
    for name in relax_functions(mod):
        known = origins.get(name, {})
        for block in mod[name].body.blocks:
            for binding in block.bindings:
                value = binding.value
                if op_name(value) == "relax.call_tir":
                    sources = origin(value) or known.get(binding.var, ())
                    calls.setdefault(value.args[0].name_hint, []).append(sources)
    return calls
