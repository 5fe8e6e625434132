"""Compare two reports: decisions, kernels and predicted time."""

from __future__ import annotations

from typing import Any

from .words import OUTCOME_WORDS, mean_of, place

SHOWN = 40


def compare(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what changed from ``old`` to ``new`` as JSON-able data.

    Decisions are paired by rule, function and site; kernels by name.
    """
    before, after = _by_site(old), _by_site(new)
    changed = [
        {"rule": key[0], "function": key[1], "site": key[2], "at": place(after[key]),
         "old": before[key]["outcome"], "new": after[key]["outcome"]}
        for key in after
        if key in before and before[key]["outcome"] != after[key]["outcome"]
    ]  # fmt: skip
    old_kernels = {k["name"]: k for k in old["kernels"]}
    new_kernels = {k["name"]: k for k in new["kernels"]}
    rescheduled = [
        {"name": name, "old": _schedule(old_kernels[name]), "new": _schedule(kernel)}
        for name, kernel in new_kernels.items()
        if name in old_kernels and _schedule(old_kernels[name]) != _schedule(kernel)
    ]
    return {
        "schema": 1,
        "same_target": old["target"] == new["target"],
        "decisions": {
            "changed": changed,
            "gone": [_brief(before[key]) for key in before if key not in after],
            "new": [_brief(after[key]) for key in after if key not in before],
        },
        "kernels": {
            "rescheduled": rescheduled,
            "gone": [name for name in old_kernels if name not in new_kernels],
            "new": [name for name in new_kernels if name not in old_kernels],
        },
        "predicted_us": {"old": _predicted(old), "new": _predicted(new)},
    }


def _schedule(kernel: dict[str, Any]) -> str:
    """Return a kernel's schedule; of a tuned one also by which record."""
    record = kernel.get("record")
    if not record:
        return kernel["schedule"]
    return f"{kernel['schedule']}:{record.get('recipe') or 'trace ' + str(record.get('key'))[:12]}"


def compare_text(change: dict[str, Any]) -> str:
    """Say a comparison in words."""
    decisions, kernels = change["decisions"], change["kernels"]
    lines = []
    if not change["same_target"]:
        lines.append("The two reports are for different targets.")
    old, new = change["predicted_us"]["old"], change["predicted_us"]["new"]
    if old and new:
        lines.append(f"Predicted time: {old:.4g} us before, {new:.4g} us now ({old / new:.3f}x).")
    lines += _section(
        "decided otherwise",
        [
            f"{d['rule']} at {d['at']}: {OUTCOME_WORDS[d['old']]} before, {OUTCOME_WORDS[d['new']]} now"
            for d in decisions["changed"]
        ],
    )
    lines += _section("sites no longer met", [_brief_text(d) for d in decisions["gone"]])
    lines += _section("sites met for the first time", [_brief_text(d) for d in decisions["new"]])
    lines += _section(
        "kernels scheduled otherwise",
        [f"{k['name']}: {k['old']} before, {k['new']} now" for k in kernels["rescheduled"]],
    )
    lines += _section("kernels gone", kernels["gone"])
    lines += _section("new kernels", kernels["new"])
    if not lines or lines == [line for line in lines if line.startswith("Predicted")]:
        lines.append("No decision and no kernel differs.")
    return "\n".join(lines)


def _section(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    hidden = [f"  … and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [f"{len(items)} {title}:", *(f"  {item}" for item in items[:SHOWN]), *hidden]


def _by_site(document: dict) -> dict[tuple[str, str, str], dict]:
    return {(d["rule"], d["function"], d["site"]): d for d in document["decisions"]}


def _brief(decision: dict) -> dict:
    keys = ("rule", "function", "site", "outcome")
    return {**{key: decision[key] for key in keys}, "at": place(decision)}


def _brief_text(decision: dict) -> str:
    return f"{decision['rule']} at {decision['at']}: {OUTCOME_WORDS[decision['outcome']]}"


def _predicted(document: dict) -> float | None:
    means = [(mean_of(k.get("predicted_us")), k.get("calls", 1)) for k in document["kernels"]]
    known = [mean * calls for mean, calls in means if mean is not None]
    return round(sum(known), 4) if known else None
