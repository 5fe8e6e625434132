"""Choose among legal candidates: what to fuse, and what to leave alone.

Proposal rules only say what is possible.  The planner gathers every legal
candidate of a function, has each distinct one priced once, and picks the set
of non-overlapping candidates that saves the most time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .decision import Estimate, Refusal, RefusalKind
from .engine import Sites, blaming, checked, matched, run_as_pass
from .errors import TvmpassError
from .options import Options
from .rule import ProposalRule
from .site import Candidate, FunctionView, Site, same_shape, shape_of

BEAM_WIDTH = 512
"""States kept per step; below it the search is exact dynamic programming."""

CONTAINED = "contained"
"""Stands for the price of a candidate that lies inside a paying one; see `_price`."""

NO_CANDIDATE = RefusalKind("no-legal-candidate", "no legal candidate at {root}")


@dataclass(frozen=True)
class Price:
    """Time of a candidate's parts built one by one, and of the candidate, in µs.

    Both include the launch cost of their kernels.  ``kept`` is the mean of the
    costliest part: work that is done in either case.
    """

    parts: Estimate
    group: Estimate
    kept: float = 0.0

    @property
    def gain(self) -> float:
        return self.parts.mean - self.group.mean

    @property
    def unresolved(self) -> bool:
        """Return True where the estimate says nothing about what fusing changes.

        Its spread is more than half of all that could be saved, and the parts lie
        within it: the case of a bias after a convolution of milliseconds.
        """
        spread, changes = self.group.high - self.group.mean, self.parts.mean - self.kept
        return 2 * spread > changes and self.group.low < self.parts.mean < self.group.high

    def eligible(self, min_speedup: float) -> bool:
        """Return True where even the pessimistic estimate beats the parts.

        The ratio is taken over what fusing changes. Over the whole, a bias after a
        convolution of milliseconds could never reach it, though fusing it is sure
        to save a pass over memory.
        """
        return self.parts.mean - self.kept >= min_speedup * (self.group.high - self.kept)


class Pricer(Protocol):
    """Says what candidates cost; `tvmpass.compile.pricing` lowers and predicts."""

    def prepare(self, view: FunctionView, candidates: Sequence[Candidate]) -> None:
        """Price many candidates together; optional work before `estimate`."""

    def estimate(self, view: FunctionView, candidate: Candidate) -> Price | str:
        """Return the price, or why there is none: ``pruned`` or ``budget``."""


@dataclass
class Proposal:
    """A site, its candidates (longest first), and their prices."""

    site: Site
    candidates: list[Candidate]
    prices: list[Price | str] = field(default_factory=list)
    chosen: Candidate | None = None

    def price_of(self, candidate: Candidate) -> Price | None:
        for known, price in zip(self.candidates, self.prices):
            if known is candidate and isinstance(price, Price):
                return price
        return None


@dataclass
class Plan:
    """The chosen candidates of one function and all proposals they came from."""

    view: FunctionView
    proposals: list[Proposal]
    exact: bool = True

    @property
    def chosen(self) -> list[Candidate]:
        return [p.chosen for p in self.proposals if p.chosen is not None]


def plan_function(
    view: FunctionView,
    rules: Sequence[ProposalRule],
    pricer: Pricer,
    options: Options,
    sites: Sites,
) -> Plan:
    """Gather, price and choose for one function; refusals are recorded at once.

    Decisions about sites with candidates are recorded by `settle`, after the
    chosen ones were emitted and verified.
    """
    proposals: list[Proposal] = []
    for rule in rules:
        _, found = run_as_pass(rule, view.mod, lambda m, r=rule: (m, _gather(view, r, sites)), [])
        proposals.extend(found)
    proposals.sort(key=lambda p: min(view.order[v] for c in p.candidates for v in c.bindings))
    plan = Plan(view, proposals)
    if options.fusion == "never":
        for proposal in proposals:
            proposal.prices = ["never"] * len(proposal.candidates)
        return plan
    if options.fusion == "always":
        _choose_always(proposals)
        return plan
    _price(view, proposals, pricer, options)
    plan.exact = _choose_best(proposals, options.min_speedup)
    if not plan.exact:
        text = f"{view.name}: fusion plan kept {BEAM_WIDTH} states a step, it may not be the best one"
        sites.ledger.note(text)
    return plan


def _gather(view: FunctionView, rule: ProposalRule, sites: Sites) -> list[Proposal]:
    found = []
    for site in sites.undecided(matched(rule, view)):
        sites.count(site)
        refusal = checked(rule, site)
        candidates = [] if refusal is not None else _proposed(view, rule, site)
        if not candidates:
            sites.decide(site, "illegal", refusal=refusal or NO_CANDIDATE(root=site.root.name))
            continue
        found.append(Proposal(site, candidates))
    return found


def _proposed(view: FunctionView, rule: ProposalRule, site: Site) -> list[Candidate]:
    """Return the candidates that ``rule`` proposes; a faulty rule is a `TvmpassError`."""
    with blaming(rule, "propose"):
        candidates = list(rule.propose(site))
    for candidate in candidates:
        if not isinstance(candidate, Candidate):
            raise TvmpassError(f"rule {rule.name}: propose gave {candidate!r}; give candidates")
        if not candidate.bindings or any(var not in view.order for var in candidate.bindings):
            raise TvmpassError(
                f"rule {rule.name}: propose gave a candidate that is not made of bindings of {view.name}"
            )
    return candidates


def _price(view: FunctionView, proposals: Sequence[Proposal], pricer: Pricer, options: Options) -> None:
    """Price the candidates; those inside one that surely does better need no price.

    A candidate whose members all have the root's shape computes every element
    once, as its parts do: where it pays, no part of it can pay more, so the
    candidates strictly inside it are ``contained``.  All others are priced, and
    so are those inside one that another paying candidate may take bindings from.
    """
    every = [c for p in proposals for c in p.candidates]
    sets = {id(c): frozenset(c.bindings) for c in every}
    holders = [c for c in every if len(c.bindings) > 1 and _same_shapes(c)]
    inside: dict[int, list[Candidate]] = {}
    by_binding: dict = {}
    for holder in holders:
        for var in holder.bindings:
            by_binding.setdefault(var, []).append(holder)
    for candidate in every:
        near = by_binding.get(candidate.bindings[0], ())
        inside[id(candidate)] = [h for h in near if sets[id(candidate)] < sets[id(h)]]
    outer = [c for c in every if not inside[id(c)]]
    pricer.prepare(view, outer)
    prices: dict[int, Price | str] = {id(c): pricer.estimate(view, c) for c in outer}

    def pays(candidate: Candidate) -> bool:
        price = prices.get(id(candidate))
        return isinstance(price, Price) and price.eligible(options.min_speedup) and price.gain > 0

    paying = {id(c): sets[id(c)] for c in outer if pays(c)}
    takers: dict = {}
    for key, members in paying.items():
        for var in members:
            takers.setdefault(var, set()).add(key)
    contested = {key for key, members in paying.items() if any(len(takers[var]) > 1 for var in members)}

    def sure(holder: Candidate) -> bool:
        return id(holder) in paying and id(holder) not in contested

    rest = [c for c in every if inside[id(c)] and not any(sure(h) for h in inside[id(c)])]
    pricer.prepare(view, rest)
    prices.update({id(c): pricer.estimate(view, c) for c in rest})
    for proposal in proposals:
        proposal.prices = [prices.get(id(c), CONTAINED) for c in proposal.candidates]


def _same_shapes(candidate: Candidate) -> bool:
    shape = shape_of(candidate.root)
    return all(same_shape(shape_of(v), shape) for v in candidate.bindings)


def _choose_always(proposals: Sequence[Proposal]) -> None:
    """Take the longest legal candidate of each site in binding order."""
    taken: set = set()
    for proposal in proposals:
        for candidate in proposal.candidates:
            if taken.isdisjoint(candidate.bindings):
                proposal.chosen = candidate
                taken.update(candidate.bindings)
                break
        proposal.prices = ["always"] * len(proposal.candidates)


def _choose_best(proposals: Sequence[Proposal], min_speedup: float) -> bool:
    """Pick the non-overlapping eligible candidates of the greatest total gain.

    Walks the sites in program order; a state is the set of taken bindings that
    a later candidate could still want.  Returns whether the search was exact.
    """
    eligible = [
        [
            (c, p.gain)
            for c, p in zip(prop.candidates, prop.prices)
            if isinstance(p, Price) and p.eligible(min_speedup) and p.gain > 0
        ]
        for prop in proposals
    ]
    wanted_later: list[frozenset] = [frozenset()] * (len(proposals) + 1)
    for i in range(len(proposals) - 1, -1, -1):
        wanted_later[i] = wanted_later[i + 1].union(*(c.bindings for c, _ in eligible[i]))
    # state -> (gain, choices as a linked list of (site index, candidate index))
    states: dict[frozenset, tuple[float, tuple]] = {frozenset(): (0.0, ())}
    exact = True
    for i, options in enumerate(eligible):
        after: dict[frozenset, tuple[float, tuple]] = {}
        for taken, (gain, path) in states.items():
            _keep(after, taken & wanted_later[i + 1], gain, path)
            for k, (candidate, extra) in enumerate(options):
                if taken.isdisjoint(candidate.bindings):
                    state = (taken | set(candidate.bindings)) & wanted_later[i + 1]
                    _keep(after, state, gain + extra, (path, (i, k)))
        if len(after) > BEAM_WIDTH:
            exact = False
            best = sorted(after.items(), key=lambda item: -item[1][0])[:BEAM_WIDTH]
            after = dict(best)
        states = after
    _, path = max(states.values(), key=lambda item: item[0])
    while path:
        path, (i, k) = path
        proposals[i].chosen = eligible[i][k][0]
    return exact


def _keep(states: dict, state: frozenset, gain: float, path: tuple) -> None:
    # Strictly better only: among equal plans the first found stays, so runs repeat.
    if state not in states or gain > states[state][0] + 1e-9:
        states[state] = (gain, path)


def settle(plan: Plan, sites: Sites, options: Options, rolled_back: dict[int, Refusal] | None = None) -> None:
    """Record the decision of every site of a plan, after it was emitted and verified.

    ``rolled_back`` maps ``id(candidate)`` to why its emission did not stand.
    """
    rolled_back = rolled_back or {}
    # A chosen candidate that was rolled back afterwards did win over what it overlaps.
    owner = {var: p.site for p in plan.proposals if p.chosen is not None for var in p.chosen.bindings}
    for proposal in plan.proposals:
        site, chosen = proposal.site, proposal.chosen
        if chosen is not None:
            price = proposal.price_of(chosen)
            evidence: dict[str, Any] = {
                "candidate": chosen.label,
                "alternatives": _alternatives(proposal, chosen),
            }
            if price is not None:
                evidence["parts_us"] = price.parts.mean
            fault = rolled_back.get(id(chosen))
            sites.decide(
                site,
                "applied" if fault is None else "rolled_back",
                refusal=fault,
                estimate=price.group if price else None,
                evidence=evidence,
            )
            continue
        _settle_loser(proposal, sites, options, owner)


def _settle_loser(proposal: Proposal, sites: Sites, options: Options, owner: dict) -> None:
    site = proposal.site
    pairs = list(zip(proposal.candidates, proposal.prices))
    could = [
        c
        for c, p in pairs
        if p in ("always", CONTAINED) or (isinstance(p, Price) and p.eligible(options.min_speedup))
    ]
    for candidate in could:
        winner = next((owner[v] for v in candidate.bindings if v in owner), None)
        if winner is not None:
            price = proposal.price_of(candidate)
            sites.decide(
                site,
                "superseded",
                by=winner.id,
                estimate=price.group if price else None,
                evidence={"candidate": candidate.label},
            )
            return
    priced = [(c, p) for c, p in pairs if isinstance(p, Price)]
    if priced:
        candidate, price = max(priced, key=lambda cp: cp[1].gain)
        evidence = {"reason": "price", "candidate": candidate.label, "parts_us": price.parts.mean}
        sites.decide(site, "unprofitable", estimate=price.group, evidence=evidence)
    else:
        found = {"pruned" if p == CONTAINED else p for _, p in pairs if isinstance(p, str)}
        sites.decide(site, "unprofitable", evidence={"reason": min(found, default="price")})


def _alternatives(proposal: Proposal, chosen: Candidate) -> list[dict[str, Any]]:
    """Return the other candidates of the site with their estimates, for the report."""
    rows = []
    for candidate, price in zip(proposal.candidates, proposal.prices):
        if candidate is chosen:
            continue
        row: dict[str, Any] = dict.fromkeys(("candidate", "mean_us", "parts_us", "reason"))
        row["candidate"] = candidate.label
        if isinstance(price, Price):
            row |= {"mean_us": price.group.mean, "parts_us": price.parts.mean}
        else:
            row["reason"] = price
        rows.append(row)
    return rows


def named_pass(name: str, mod, body: Callable):
    """Run ``body`` as a TVM pass called ``name`` (``PlanFusion``, ``PlanLayout``)."""
    stand_in = type(name, (), {})()
    return run_as_pass(stand_in, mod, body)
