"""Say a report in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from tvmpass.core.decision import OUTCOMES

from ..tables import counted, table_text
from .reading import EVERY

OUTCOME_WORDS = {
    "applied": "applied",
    "illegal": "not legal",
    "unprofitable": "not worth it",
    "superseded": "lost to a better candidate",
    "rolled_back": "rolled back",
}

REASONS = {
    "price": "no candidate was predicted to be faster than leaving it alone by the least gain asked for",
    "pruned": "the quick estimate at graph level already ruled it out, so it was not priced",
    "budget": "it was not priced because tvmpass.price_budget was used up",
    "never": "fusion was switched off (tvmpass.fusion=never)",
}

SCHEDULE_WORDS = {
    "tuned": "tuned on this kind of device",
    "library": "scheduled by the library",
    "fallback": "left as lowered",
}

CUDA_FALLBACK = "scheduled by the fallback"
"""Instead of "left as lowered": on CUDA a kernel without a recipe is still bound to threads."""

SHOWN_KERNELS = 12
SHOWN_ALTERNATIVES = 2
SHOWN_PLACES = 3


def report_text(document: dict[str, Any], full: bool = False) -> str:
    """Return the whole explanation; ``full`` lists every decision and kernel."""
    parts = [heading(document), totals(document)]
    if document["rules"]:
        parts.append(_rules_table(document))
    if full:
        parts.append("\n".join(sentence(d, document) for d in document["decisions"]))
    else:
        parts.append("\n".join(reasons(document)))
        parts.append(estimates(document))
    if document["kernels"]:
        parts.append(kernels_line(document))
        parts.append(_kernel_blocks(document, None if full else SHOWN_KERNELS))
    parts.append("\n".join(remarks(document)))
    return "\n\n".join(part for part in parts if part)


def heading(document: dict[str, Any]) -> str:
    """Name the model, the target and who built it."""
    model = f"{document['cost_model']} cost model, " if document.get("cost_model") else ""
    return (
        f"{document['model']} for {document['target']}\n"
        f"({model}tvmpass {document.get('tvmpass', '?')}, TVM {document.get('tvm', '?')})"
    )


def totals(document: dict[str, Any]) -> str:
    """Say how many sites matched and what became of them."""
    decisions = document["decisions"]
    if not decisions:
        return "No rule matched anything."
    number = Counter(d["outcome"] for d in decisions)
    outcomes = ", ".join(f"{number[key]} {word}" for key, word in OUTCOME_WORDS.items())
    return f"{counted(len(decisions), 'site')} matched a rule: {outcomes}."


def reasons(document: dict[str, Any]) -> list[str]:
    """Group what was not applied by rule and reason, most frequent first."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for decision in document["decisions"]:
        if decision["outcome"] != "applied":
            groups[_reason_key(decision, document)].append(decision)
    lines = []
    for (rule, _, _), members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        first = members[0]
        lines.append(f"{rule}, {len(members)} {OUTCOME_WORDS[first['outcome']]}: {why(first, document)}")
        lines.append(f"    at {places(members)}")
    return ["Why the others were not applied", *lines] if lines else []


def _reason_key(decision: dict, document: dict) -> tuple[str, str, str]:
    refusal, outcome = decision.get("refusal"), decision["outcome"]
    if refusal:
        detail = refusal["code"]
    elif outcome == "superseded":
        winner = _winner(decision, document)
        detail = winner["rule"] if winner else ""
    else:
        detail = (decision.get("evidence") or {}).get("reason", "")
    return decision["rule"], outcome, detail


def why(decision: dict[str, Any], document: dict[str, Any]) -> str:
    """Give the reason for an outcome other than applied."""
    refusal = decision.get("refusal")
    if refusal:
        return f"{_refusal_text(refusal)} [{refusal['code']}]"
    if decision["outcome"] == "superseded":
        winner = _winner(decision, document)
        if winner is None:
            return f"an overlapping candidate was chosen ({decision.get('by')})"
        return f"an overlapping candidate of {winner['rule']} was chosen, at {place(winner)}"
    evidence = decision.get("evidence") or {}
    reason = evidence.get("reason")
    if reason == "never" and "layout" in evidence:
        asked = evidence["layout"]
        return (
            "layouts are changed unasked only for CPU targets (tvmpass.layout=auto)"
            if asked == "auto"
            else f"another layout was not wanted (tvmpass.layout={asked})"
        )
    return REASONS.get(reason or "", "leaving it alone was predicted to be better") + _predicted(decision)


def sentence(decision: dict[str, Any], document: dict[str, Any]) -> str:
    """Say one decision in one line."""
    head = f"{decision['rule']} at {place(decision)}: {OUTCOME_WORDS[decision['outcome']]}"
    if decision["outcome"] == "applied":
        return head + _predicted(decision)
    return f"{head}: {why(decision, document)}"


def place(decision: dict[str, Any]) -> str:
    """Name a site: its source nodes, or function and site where it has none."""
    if decision["origin"]:
        return some(decision["origin"])
    return f"{decision['function']}:{decision['site']}"


def places(decisions: list[dict[str, Any]]) -> str:
    return "; ".join(place(d) for d in decisions[:SHOWN_PLACES]) + _more(len(decisions) - SHOWN_PLACES)


def some(names: list[str]) -> str:
    """List a few names and how many more there are."""
    return ", ".join(names[:SHOWN_PLACES]) + _more(len(names) - SHOWN_PLACES)


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


def _refusal_text(refusal: dict[str, Any]) -> str:
    if refusal.get("message"):
        return refusal["message"]
    evidence = ", ".join(f"{key} {value}" for key, value in refusal.get("evidence", {}).items())
    return refusal["code"].replace("-", " ") + (f" ({evidence})" if evidence else "")


def _winner(decision: dict, document: dict) -> dict | None:
    for other in document.get(EVERY, document["decisions"]):
        if other["site"] == decision.get("by"):
            return other
    return None


def _predicted(decision: dict) -> str:
    estimate = decision.get("estimate")
    if not estimate or estimate["source"] == "always":
        return ""
    return f" (predicted {span(estimate)} us, {estimate['source']})"


def span(estimate: dict[str, Any] | float | None) -> str:
    """Print an estimate in microseconds: ``12.3`` or ``12.3 [11, 14]``."""
    if estimate is None:
        return "-"
    if not isinstance(estimate, dict):
        return f"{estimate:.4g}"
    low, mean, high = estimate["low"], estimate["mean"], estimate["high"]
    if low == mean == high:
        return f"{mean:.4g}"
    return f"{mean:.4g} [{low:.4g}, {high:.4g}]"


def mean_of(estimate: dict[str, Any] | float | None) -> float | None:
    return estimate["mean"] if isinstance(estimate, dict) else estimate


def estimates(document: dict[str, Any]) -> str:
    """Say where the estimates behind the decisions came from."""
    sources = Counter(d["estimate"]["source"] for d in document["decisions"] if d.get("estimate"))
    sources.pop("always", None)
    if not sources:
        return ""
    shares = ", ".join(f"{number} {source}" for source, number in sorted(sources.items()))
    return f"Estimates behind the decisions came from: {shares}."


def kernels_line(document: dict[str, Any]) -> str:
    """Say how many kernels there are and what they are predicted to cost."""
    kernels = document["kernels"]
    calls = sum(k.get("calls", 1) for k in kernels)
    costs = [(mean_of(k.get("predicted_us")), k.get("calls", 1)) for k in kernels]
    known = [mean * number for mean, number in costs if mean is not None]
    kinds = Counter(k["schedule"].partition(":")[0] for k in kernels)
    how = ", ".join(f"{number} {_scheduled(kind, document)}" for kind, number in sorted(kinds.items()))
    total = f", predicted {sum(known):.4g} us in all" if known else ""
    head = f"{counted(len(kernels), 'kernel')}, called {counted(calls, 'time')} in one run{total}"
    return f"{head}; schedules: {how}."


def _scheduled(how: str, document: dict) -> str:
    if how == "fallback" and document["target"].startswith("cuda"):
        return CUDA_FALLBACK
    return SCHEDULE_WORDS.get(how, how)


def resources(kernel: dict[str, Any]) -> list[str]:
    """Say what a kernel takes of each CUDA architecture that it was compiled for, one line each."""
    return [f"{arch}: {_taken(found)}" for arch, found in (kernel.get("cuda") or {}).items()]


def _taken(found: dict[str, Any]) -> str:
    static, dynamic = found["static_shared_bytes"], found["dynamic_shared_bytes"]
    shared = f"{static + dynamic} bytes shared"
    if dynamic:
        shared += f" ({dynamic} of them dynamic)" if static else " (dynamic)"
    spills = f"spills {found['spill_bytes']} bytes" if found["spill_bytes"] else "no spills"
    return f"{found['registers']} registers, {shared}, {spills}, occupancy {found['occupancy']:.0%}"


def on_devices(document: dict[str, Any]) -> list[str]:
    """Sum up a CUDA build: per architecture its kernels, and which of them spill registers."""
    by_arch: dict[str, list[dict]] = defaultdict(list)
    for kernel in document["kernels"]:
        for arch, found in (kernel.get("cuda") or {}).items():
            by_arch[arch].append({"name": kernel["name"], **found})
    lines = []
    for arch, rows in by_arch.items():
        spilling = [row["name"] for row in rows if row["spill_bytes"]]
        least = min(row["occupancy"] for row in rows)
        text = f"{some(spilling)} spill registers" if spilling else "no kernel spills registers"
        most = max(row["registers"] for row in rows)
        lines.append(f"On {arch}: {text}; at most {most} registers, least occupancy {least:.0%}.")
    return lines


def by_record(record: dict[str, Any]) -> str:
    """Say which tuning record a kernel was scheduled by, and what it gained when measured."""
    how = "a MetaSchedule trace" if record.get("trace") else record.get("recipe") or "the fallback"
    text = f"by record {str(record.get('key'))[:12]}: {how}"
    own, other = record.get("median_us"), record.get("candidate0_us")
    if isinstance(own, (int, float)) and isinstance(other, (int, float)):
        text += f"; {own:.4g} us where the library's choice took {other:.4g}"
    return text


def _source(estimate: Any) -> str:
    return str(estimate.get("source", "")) if isinstance(estimate, dict) else ""


def by_cost(kernels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels, the costliest first."""
    return sorted(kernels, key=lambda k: -((mean_of(k.get("predicted_us")) or 0.0) * k.get("calls", 1)))


def remarks(document: dict[str, Any]) -> list[str]:
    """Give records, verification, disabled rules and notes, one line each."""
    records, verify = document["records"], document["verify"]
    lines = [
        "Tuning records: "
        + ", ".join(f"{records.get(key, 0)} {key}" for key in ("present", "used", "orphaned"))
        + ".",
        f"Verified to the level {verify.get('level', '?')}: {verify.get('checked', 0)} checked, "
        f"{verify.get('not_checked', 0)} not checked.",
        *on_devices(document),
    ]
    if document.get("disabled"):
        lines.append("Disabled rules: " + ", ".join(document["disabled"]) + ".")
    lines += [f"Note: {note}" for note in document.get("notes", ())]
    return lines


def _rules_table(document: dict) -> str:
    columns = ("matched", *OUTCOMES)
    met = {name: row for name, row in document["rules"].items() if row["matched"]}
    rows = [(name, *(row.get(c, 0) for c in columns)) for name, row in met.items()]
    text = table_text(("rule", *(c.replace("_", " ") for c in columns)), rows, numbers=range(1, 7))
    idle = [name for name in document["rules"] if name not in met]
    return text + (f"\nMatched nothing: {', '.join(idle)}." if idle else "")


def _kernel_blocks(document: dict, limit: int | None) -> str:
    """List the kernels, the costliest first, each with its schedule and alternatives."""
    ordered = by_cost(document["kernels"])
    lines = []
    for kernel in ordered[:limit]:
        calls = kernel.get("calls", 1)
        times = "" if calls == 1 else f", {calls} calls"
        cost = kernel.get("predicted_us")
        verb = "measured" if _source(cost) == "measured" else "predicted"
        predicted = f", {verb} {span(cost)} us a call" if cost is not None else ""
        lines.append(f"{kernel['name']}: {kernel['kind']}{times}{predicted}")
        lines.append(f"    from {some(kernel['origin'])}" if kernel["origin"] else "    from no source node")
        how, _, recipe = kernel["schedule"].partition(":")
        lines.append(f"    {_scheduled(how, document)}{': ' + recipe if recipe else ''}")
        if kernel.get("record"):
            lines.append(f"    {by_record(kernel['record'])}")
        if kernel.get("note"):
            lines.append(f"    note: {kernel['note']}")
        lines += [f"    {line}" for line in resources(kernel)]
        others = kernel.get("alternatives", ())
        shown = others if limit is None else others[:SHOWN_ALTERNATIVES]
        for other in shown:
            estimate = other.get("estimate")
            predicted = f" ({span(estimate)} us)" if estimate is not None else ""
            lines.append(f"    instead of {other['recipe']}{predicted}")
        if len(others) > len(shown):
            lines.append(f"    and of {counted(len(others) - len(shown), 'more recipe')}")
    if any(kernel.get("alternatives") for kernel in ordered[:limit]):
        lines.append(
            "The library's first recipe that fits is built, unless a tuning record beat it; "
            "times of others are for comparison."
        )
    hidden = len(ordered) - len(ordered[:limit])
    if hidden:
        verb = "is" if hidden == 1 else "are"
        lines.append(f"{counted(hidden, 'cheaper kernel')} {verb} not shown; -v shows all.")
    return "\n".join(lines)
