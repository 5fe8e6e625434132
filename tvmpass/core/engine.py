"""Run simplify rules to a fixed point: match, check, rewrite, verify, record.

Nothing is edited before its match is decided: one sweep of a rule collects
all its sites, decides each, and installs the accepted ones together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import relax

from .analysis import Analyses
from .decision import ALWAYS, Decision, Refusal, RefusalKind
from .errors import TvmpassError, last_line
from .rebuild import normalize, replace_values, tidy
from .report import Ledger
from .rule import ProposalRule, SimplifyRule
from .site import REMOVED, FunctionView, Site

MAX_SWEEPS = 64

TYPE_CHANGED = RefusalKind("type-changed", "the rewrite has type {after}, the site has {before}")
ILL_FORMED = RefusalKind("ill-formed", "the module is not well-formed after the rewrite: {error}")
REWRITE_FAILED = RefusalKind("rewrite-failed", "the rule's rewrite raised {error}")
NUMERIC = RefusalKind("wrong-result", "the rewrite changes results on {inputs}: {difference}")


class Verifier(Protocol):
    """Compares a cut-out before and after; see `tvmpass.compile.verify_numeric`."""

    def rewrite(self, site: Site, after: Any) -> Refusal | None:
        """Return None where ``after`` computes what ``site`` did, else why not."""


@dataclass
class Sites:
    """Remembers decided sites, so that one met again unchanged is not counted twice."""

    ledger: Ledger
    fresh: dict[tuple[str, str], int] = field(default_factory=dict)
    kept: dict[tuple[str, str], int] = field(default_factory=dict)
    pending: dict[tuple[str, str], list[tuple[Site, Site]]] = field(default_factory=dict)

    def undecided(self, sites: Iterable[Site]) -> list[Site]:
        """Return the sites not decided before."""
        skip = dict(self.kept)
        result = []
        for site in sites:
            key = (site.rule.name, site.digest)
            if skip.get(key, 0):
                skip[key] -= 1
            else:
                result.append(site)
        return result

    def count(self, site: Site) -> None:
        """Count ``site`` as matched and tell it apart from equal ones."""
        key = (site.rule.name, site.digest)
        site.ordinal = self.fresh.get(key, 0)
        self.fresh[key] = site.ordinal + 1
        self.ledger.met(site.rule.name)

    def decide(self, site: Site, outcome: str, **details) -> Decision:
        """Record the one decision of ``site``; sites that stay are remembered."""
        if outcome not in ("applied", "superseded"):
            key = (site.rule.name, site.digest)
            self.kept[key] = self.kept.get(key, 0) + 1
        return self.ledger.record(
            Decision(site.rule.name, site.view.name, site.id, site.origin, outcome, **details)
        )

    def settle_pending(self, rule: str, function: str, met_again: Iterable[Site]) -> None:
        """Decide the sites that overlapped an accepted one and are no longer there."""
        again: dict[str, int] = {}
        for site in met_again:
            again[site.digest] = again.get(site.digest, 0) + 1
        for site, winner in self.pending.pop((rule, function), ()):
            if again.get(site.digest, 0):
                again[site.digest] -= 1
                continue
            self.count(site)
            self.decide(site, "superseded", by=winner.id)


def relax_functions(mod) -> list[str]:
    """Return the names of the functions that graph rules work on, sorted, main first."""
    names = [
        gv.name_hint
        for gv, f in mod.functions_items()
        if isinstance(f, relax.Function)
        and not (f.attrs and "Primitive" in f.attrs)
        and isinstance(f.body, relax.SeqExpr)
    ]
    return sorted(names, key=lambda n: (n != "main", n))


def simplify(
    mod, rules: Sequence[SimplifyRule], sites: Sites | None = None, verifier: Verifier | None = None
):
    """Apply ``rules`` in tuple order, again and again until none applies.

    Every rule runs as a TVM pass under its class name, so that instruments see
    one entry per rule.  Returns the new module; decisions go to the ledger of
    ``sites``, which also remembers sites from an earlier call.
    """
    sites, analyses = sites or Sites(Ledger()), Analyses(mod)
    for rule in rules:
        sites.ledger.met(rule.name, 0)
    for _ in range(MAX_SWEEPS):
        changed = False
        for rule in rules:
            settle = partial(_settle, rule=rule, sites=sites, analyses=analyses, verifier=verifier)
            mod, applied = run_as_pass(rule, mod, settle, skipped=False)
            changed |= applied
        if not changed:
            return mod
    names = ", ".join(r.name for r in rules)
    raise TvmpassError(f"rules {names} reach no fixed point in {MAX_SWEEPS} rounds")


def run_rule(rule: SimplifyRule, mod, verifier: Verifier | None = None):
    """Run one rule to its fixed point; return ``(module, decisions)``. For tests and authors."""
    sites = Sites(Ledger())
    mod = simplify(mod, (rule,), sites, verifier)
    sites.ledger.assert_sum()
    return mod, sites.ledger.decisions


def run_as_pass(rule, mod, body, skipped: Any = None):
    """Run ``body(mod) -> (mod, info)`` inside a TVM pass named after the rule's class.

    Where an instrument skips the pass, the info is ``skipped``.  An exception is
    carried around TVM's FFI, not through it, so that its class and traceback
    survive.
    """
    box: dict[str, Any] = {}

    def transform(m, _context):
        try:
            result, box["info"] = body(m)
            return result
        except BaseException as error:  # an interrupt too: re-raised below with its own class
            box["error"] = error
            return m

    named = tvm.transform.module_pass(transform, opt_level=0, name=type(rule).__name__)
    result = named(mod)
    if "error" in box:
        raise box["error"]
    return result, box.get("info", skipped)


def _settle(mod, rule, sites: Sites, analyses: Analyses, verifier):
    """Sweep one rule over all functions until it applies nowhere."""
    ever = False
    analyses.after(mod)
    for name in relax_functions(mod):
        for _ in range(MAX_SWEEPS):
            mod, applied, waiting = _sweep(mod, name, rule, sites, analyses, verifier)
            analyses.after(mod, rule.preserves)
            ever |= applied
            if not applied and not waiting:
                break
        else:
            raise TvmpassError(f"{rule.name} reaches no fixed point in {MAX_SWEEPS} sweeps of {name}")
    return mod, ever


def _sweep(mod, name: str, rule: SimplifyRule, sites: Sites, analyses: Analyses, verifier):
    if isinstance(rule, ProposalRule):
        raise TypeError(f"{rule.name} is a proposal rule: the planner runs it, not simplify()")
    view = analyses.get("uses", name)
    accepted: list[tuple[Site, list, Any]] = []
    waiting: list[tuple[Site, Site]] = []
    roots: dict[Any, Site] = {}
    taken: dict[Any, Site] = {}
    fresh = sites.undecided(matched(rule, view))
    sites.settle_pending(rule.name, name, fresh)
    for site in fresh:
        winner = taken.get(site.root) or next((roots[v] for v in site.bindings if v in roots), None)
        if winner is not None:  # decided in the next sweep, on what the winner leaves
            waiting.append((site, winner))
            continue
        sites.count(site)
        refusal = checked(rule, site)
        if refusal is not None:
            sites.decide(site, "illegal", refusal=refusal)
            continue
        made = _rewrite(mod, rule, site, verifier)
        if isinstance(made, Refusal):
            sites.decide(site, "rolled_back", refusal=made)
            continue
        accepted.append((site, *made))
        roots[site.root] = site
        for var in site.bindings:
            taken.setdefault(var, site)
    sites.pending[rule.name, name] = waiting
    return *_install(mod, view, rule, accepted, sites), bool(waiting)


@contextlib.contextmanager
def blaming(rule: SimplifyRule, method: str) -> Iterator[None]:
    """Turn what a rule's ``method`` raises into one line that names the rule."""
    try:
        yield
    except TvmpassError:
        raise
    except (Exception, SystemExit) as error:  # an interrupt stays one
        cause = f"{type(error).__name__}: {last_line(error)}"
        raise TvmpassError(f"rule {rule.name}: {method} raised {cause}") from error


def matched(rule: SimplifyRule, view: FunctionView) -> list[Site]:
    """Return the sites that ``rule`` matches; a faulty rule is a `TvmpassError`."""
    with blaming(rule, "match"):
        found = list(rule.match(view))
    wrong = next((site for site in found if not isinstance(site, Site)), None)
    if wrong is not None:
        raise TvmpassError(f"rule {rule.name}: match gave {wrong!r}; give sites")
    return found


def checked(rule: SimplifyRule, site: Site) -> Refusal | None:
    """Return what ``rule.check`` answers; a faulty rule is a `TvmpassError`."""
    with blaming(rule, "check"):
        answer = rule.check(site)
    if answer is not None and not isinstance(answer, Refusal):
        raise TvmpassError(f"rule {rule.name}: check returned {answer!r}; return None or a Refusal")
    return answer


def _rewrite(mod, rule, site: Site, verifier) -> tuple[list, Any] | Refusal:
    """Make the new value and verify it; a fault becomes a Refusal."""
    try:
        value = rule.rewrite(site)
        if value is REMOVED:
            return [], REMOVED
        if not isinstance(value, relax.Expr):
            raise TypeError(f"it returned {type(value).__name__}, not an expression")
        inner, value = normalize(mod, value, site.origin, site.view.in_dataflow(site.root))
    except TvmpassError:
        raise
    except (Exception, SystemExit) as error:  # an author's mistake must not lose the build
        return REWRITE_FAILED(error=f"{type(error).__name__}: {last_line(error)}")
    if not tvm_ffi.structural_equal(value.ty, site.root.ty):
        return TYPE_CHANGED(before=str(site.root.ty), after=str(value.ty))
    refusal = rule.verify(site, value)
    if refusal is None and verifier is not None:
        refusal = verifier.rewrite(site, (inner, value))
    return refusal if refusal is not None else (inner, value)


def _install(mod, view: FunctionView, rule, accepted, sites: Sites):
    """Put the accepted rewrites in; drop those that leave the module ill-formed."""
    if not accepted:
        return mod, False
    result = _try_install(mod, view, accepted)
    if isinstance(result, Exception) and len(accepted) > 1:
        changed = False
        for item in accepted:
            fresh = FunctionView(mod, view.name)
            if item[0].root not in fresh.bindings:
                sites.decide(item[0], "rolled_back", refusal=ILL_FORMED(error=last_line(result)))
                continue
            mod, applied = _install(mod, fresh, rule, [item], sites)
            changed |= applied
        return mod, changed
    if isinstance(result, Exception):
        site = accepted[0][0]
        sites.decide(site, "rolled_back", refusal=ILL_FORMED(error=last_line(result)))
        return mod, False
    for site, _, _ in accepted:
        sites.decide(site, "applied", estimate=ALWAYS)
    return result, True


def _try_install(mod, view: FunctionView, accepted):
    new = {site.root: (inner, value) for site, inner, value in accepted}
    orphans = {var for site, _, _ in accepted for var in site.bindings}
    function = replace_values(view, new, orphans)
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result.update_func(mod.get_global_var(view.name), function)
    try:
        result = tidy(result)
        relax.analysis.well_formed(result)
    except Exception as error:  # TVM reports ill-formed modules as several classes
        return error
    return result
