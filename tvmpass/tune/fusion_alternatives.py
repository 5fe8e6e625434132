"""Measure what fusing is worth on this machine: each site of a model cut in several ways.

A site's *alternatives* are ``off`` (one kernel per operator), ``on`` (one for the
longest chain that a rule proposes) and ``partial:...`` (a shorter one and the
rest apart).  Every kernel is measured once, as the library schedules it; the time
of an alternative is the sum over its kernels.  `tvmpass train` learns from both
kinds of lines which fusions pay.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tvm import relax, tirx

from tvmpass import catalogue
from tvmpass.compile.grouping import Group, GroupFunction, group_function, lower
from tvmpass.compile.kernel_key import kernel_key
from tvmpass.compile.pipeline import Job as Pipeline
from tvmpass.compile.pricing import cut_out
from tvmpass.compile.schedule import Scheduler, canonical_kernel
from tvmpass.core.analysis.alias import VIEW_OPS
from tvmpass.core.engine import checked, matched, relax_functions
from tvmpass.core.errors import last_line
from tvmpass.core.options import Options
from tvmpass.core.rule import ProposalRule
from tvmpass.core.site import FunctionView, op_name, outputs_of

from .work import CANDIDATE0, TRAIN, Candidate, Job, Measurement, Runner, Workload

OFF, ON, PARTIAL = "off", "on", "partial:"
MAX_CANDIDATES = 4
"""Of a site's nested chains: the longest, the shortest, and some between."""

SAID = 20
"""Lines of progress, about."""


@dataclass(frozen=True)
class Cut:
    """One way of cutting bindings into kernels, by the keys of its group functions."""

    name: str
    parts: tuple[str, ...]


@dataclass
class Site:
    """The ways of cutting one place of a model; the first is ``off``."""

    cuts: list[Cut]
    kernels: dict[str, str] = field(default_factory=dict)
    """Kernel key of each part that became a kernel."""

    @property
    def complete(self) -> list[Cut]:
        """Return the cuts all of whose parts became kernels; none without ``off``."""
        found = [c for c in self.cuts if all(part in self.kernels for part in c.parts)]
        return found if len(found) > 1 and found[0].name == OFF else []

    @property
    def key(self) -> str:
        """Return what names the site in records: its operators' kernels, in order."""
        return group_key([self.kernels[part] for part in self.cuts[0].parts])


@dataclass
class Collected:
    """What `collect` did: sites measured now and before, kernels by outcome, which cut won."""

    sites: int = 0
    measured: int = 0
    known: int = 0
    kernels: int = 0
    failed: int = 0
    best: dict[str, int] = field(default_factory=lambda: {OFF: 0, "partial": 0, ON: 0})


def group_key(off: Iterable[str]) -> str:
    """Return the key of a set of alternatives, from the kernels of ``off``."""
    return hashlib.sha256(" ".join(off).encode()).hexdigest()[:16]


def cut(
    view: FunctionView, region: Sequence[relax.Var], chains: Iterable[Sequence[relax.Var]]
) -> tuple[list[Cut], dict[str, GroupFunction]]:
    """Cut ``region`` apart and, for each chain, into the chain and the rest apart.

    Returns the cuts, ``off`` first, and the group functions that they name by key.
    """
    functions: dict[str, GroupFunction] = {}

    def part(bindings: Sequence[relax.Var], name: str) -> str:
        made = group_function(view, Group(tuple(bindings), name, {}))
        functions.setdefault(made.key, made)
        return made.key

    order = list(region)
    alone = {v: part([v], "part") for v in order if not _is_free(view, v)}
    cuts = [Cut(OFF, tuple(alone.values()))]
    for bindings in chains:
        inside = set(bindings)
        rest = [key for v, key in alone.items() if v not in inside]
        name = PARTIAL + ",".join(str(order.index(v)) for v in bindings) if rest else ON
        cuts.append(Cut(name, (part(bindings, "group"), *rest)))
    return cuts, functions


def _is_free(view: FunctionView, var: relax.Var) -> bool:
    return op_name(view.bindings[var]) in VIEW_OPS


def chains_of(view: FunctionView, rule: ProposalRule) -> list[list[tuple[relax.Var, ...]]]:
    """Return per site of ``rule`` the chains that it would make one kernel, longest first."""
    found = []
    for site in matched(rule, view):
        if checked(rule, site) is not None:
            continue
        chains: dict[tuple[relax.Var, ...], None] = {}
        for candidate in rule.propose(site):
            if candidate.replacement is None and len(outputs_of(view, candidate.bindings)) == 1:
                chains.setdefault(candidate.bindings)
        if chains:
            found.append(sorted(chains, key=len, reverse=True))
    return found


def few(chains: Sequence[Any], between: Callable[[int], Iterable[int]] | None = None) -> list[Any]:
    """Return at most `MAX_CANDIDATES` of ``chains``: the first, the last, some between.

    ``between(count)`` gives the positions kept of the ``count`` between them, by
    default spread evenly.
    """
    inner = list(chains[1:-1])
    room = MAX_CANDIDATES - 2
    if len(inner) <= room:
        return list(chains)
    if between is None:
        kept: Iterable[int] = [(i + 1) * len(inner) // (room + 1) for i in range(room)]
    else:
        kept = between(len(inner))
    return [chains[0], *(inner[i] for i in kept), chains[-1]]


def lower_parts(
    functions: Mapping[str, GroupFunction],
    target: Any,
    options: Options,
    failed: Callable[[Exception], None] = lambda error: None,
) -> dict[str, tirx.PrimFunc]:
    """Lower group functions together, by key; where that fails, halve to find the culprit.

    ``failed`` is told of each that cannot be lowered.
    """
    if not functions:
        return {}
    try:
        mod, names = cut_out(dict(functions))
        mod = lower(mod, target, options)
        return {key: mod[name] for key, name in names.items() if isinstance(mod[name], tirx.PrimFunc)}
    except Exception as error:  # whatever one group raises must not lose the others
        if len(functions) == 1:
            failed(error)
            return {}
        items = list(functions.items())
        half = len(items) // 2
        parts = (dict(items[:half]), dict(items[half:]))
        return {k: f for part in parts for k, f in lower_parts(part, target, options, failed).items()}


def find_sites(
    pipeline: Pipeline, notes: Callable[[str], None]
) -> tuple[list[Site], dict[str, tirx.PrimFunc]]:
    """Return the distinct fusion sites of a planned model and the kernels of their parts, by part."""
    rules = [r for r in catalogue.of_kind(pipeline.rules, "proposal") if r.plans == "fusion"]
    found: dict[tuple[Cut, ...], Site] = {}
    functions: dict[str, GroupFunction] = {}
    for name in relax_functions(pipeline.unfused):
        view = FunctionView(pipeline.unfused, name)
        for rule in rules:
            for chains in chains_of(view, rule):
                cuts, made = cut(view, chains[0], few(chains))
                if len(cuts[0].parts) > 1:
                    functions.update(made)
                    found.setdefault(tuple(cuts), Site(cuts))
    lowered = lower_parts(
        functions, pipeline.target, pipeline.options, lambda error: notes(f"not lowered: {last_line(error)}")
    )
    return list(found.values()), lowered


def workload_of(function: tirx.PrimFunc, scheduler: Scheduler, device_class: str) -> Workload:
    """Return the workload of an unscheduled kernel; candidate 0 is the scheduler's choice."""
    plain = canonical_kernel(function)
    made = scheduler.schedule(function)
    recipe = made.schedule.removeprefix("library:") if made.schedule.startswith("library:") else None
    kind = made.kernel.kind
    return Workload(
        kernel_key=kernel_key(plain, device_class, scheduler.options),
        kind=kind,
        function=plain,
        target=scheduler.target,
        options=scheduler.options,
        device_class=device_class,
        recipe_version=catalogue.recipe_version(kind, scheduler.target.kind.name),
        candidate0=Candidate(recipe=recipe, role=CANDIDATE0),
    )


def collect(
    pipeline: Pipeline,
    runner: Runner,
    device_class: str,
    known: Iterable[str],
    write_kernel: Callable[[Workload, Candidate, Measurement], None],
    write: Callable[[dict[str, Any]], None],
    say: Callable[[str], None] = lambda line: None,
) -> Collected:
    """Measure the fusion alternatives of a planned model; write lines as sites are complete.

    ``known`` are the keys of the sites that have lines already.  ``write_kernel``
    gets every measured kernel with role ``train``, ``write`` the lines of a site's
    alternatives.  Raises what ``runner`` raises.
    """
    sites, lowered = find_sites(pipeline, say)
    workloads: dict[str, Workload] = {}
    of_part: dict[str, str] = {}
    for part, function in lowered.items():
        workload = workload_of(function, pipeline.scheduler, device_class)
        of_part[part] = workload.kernel_key
        workloads.setdefault(workload.kernel_key, workload)
    for site in sites:
        site.kernels = {part: of_part[part] for c in site.cuts for part in c.parts if part in of_part}
    usable = list({site.key: site for site in sites if site.complete}.values())
    known = set(known)
    due = [site for site in usable if site.key not in known]
    result = Collected(sites=len(usable), known=len(usable) - len(due))
    pending = Counter[str]()
    readers: dict[str, list[Site]] = {}
    missing: dict[str, set[str]] = {}
    for site in due:
        missing[site.key] = {site.kernels[part] for c in site.complete for part in c.parts}
        for key in missing[site.key]:
            readers.setdefault(key, []).append(site)
            pending[key] += 1
    times: dict[str, float] = {}
    jobs = [
        Job(workloads[key], Candidate(recipe=workloads[key].candidate0.recipe, role=TRAIN)) for key in readers
    ]

    def done(job: Job, measurement: Measurement) -> None:
        key = job.workload.kernel_key
        result.kernels += 1
        if measurement.status == "ok" and measurement.median_us is not None:
            times[key] = measurement.median_us
        else:
            result.failed += 1
        write_kernel(job.workload, job.candidate, measurement)
        for site in readers[key]:
            missing[site.key].discard(key)
            if not missing[site.key]:
                _write_site(site, times, result, write)
        if result.kernels % max(1, len(jobs) // SAID) == 0:
            say(f"fusion alternatives: {result.kernels} of {len(jobs)} kernels, {result.measured} sites")

    runner.measure(jobs, done)
    return result


def _write_site(
    site: Site, times: Mapping[str, float], result: Collected, write: Callable[[dict[str, Any]], None]
) -> None:
    """Write the alternatives whose kernels all have a time, if ``off`` and another do."""
    totals: list[tuple[Cut, list[str], float]] = []
    for c in site.complete:
        keys = [site.kernels[part] for part in c.parts]
        if all(key in times for key in keys):
            totals.append((c, keys, sum(times[key] for key in keys)))
    if len(totals) < 2 or totals[0][0].name != OFF:
        return
    for c, keys, total in totals:
        write(alternative_line(site.key, c.name, keys, total))
    result.measured += 1
    best = min(totals, key=lambda item: item[2])[0].name
    result.best["partial" if best.startswith(PARTIAL) else best] += 1


def alternative_line(key: str, name: str, kernel_keys: Sequence[str], median_us: float) -> dict[str, Any]:
    """Return the line of one alternative, times summed over its kernels in µs."""
    return {
        "group_key": key,
        "alternative": name,
        "kernel_keys": list(kernel_keys),
        "median_us": float(f"{median_us:.5g}"),
    }


def as_json(collected: Collected) -> dict[str, Any]:
    """Return what a tune's result says of it."""
    return asdict(collected)
