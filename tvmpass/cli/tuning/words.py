"""A tune's result in words and plain tables, from its JSON."""

from __future__ import annotations

from typing import Any

from ..tables import counted, table_text

SHOWN = 15
"""Kernels in the table that is printed; the page has all."""

REASONS = {
    "budget": "the budget is used up",
    "exhausted": "nothing is left to try",
    "already": "tuned already: nothing was done",
    "interrupted": "interrupted",
}


def outcome_text(document: dict[str, Any]) -> str:
    """Return the outcome as it is printed after a tune."""
    parts = [heading(document)]
    rows = kernel_rows([task for task in document["tasks"] if task["used"]])
    if rows:
        columns = ("kernel", "kind", "calls", "of the gain", "us untuned", "times as fast", "schedule")
        parts += ["", table_text(columns, rows[:SHOWN], numbers=(2, 3, 4, 5))]
        if len(rows) > SHOWN:
            parts.append(f"... and {counted(len(rows) - SHOWN, 'kernel')} more")
        parts.append("")
    parts += [*remarks(document), f"records: {document['path']}"]
    return "\n".join(parts)


def heading(document: dict[str, Any]) -> str:
    """Return what was tuned and how it ended, in one line."""
    return f"{document['model']} for {document['device_class']}: {REASONS[document['reason']]}"


def remarks(document: dict[str, Any]) -> list[str]:
    """Return what is worth knowing, a line each."""
    lines = [budget_line(document)]
    total, used = len(document["tasks"]), document["used"]
    if used:
        lines.append(
            f"{used} of {counted(total, 'kernel')} have a faster schedule; by the records they all together "
            f"take {document['kernel_ratio']:.3f} of their untuned time"
        )
    elif total:
        lines.append(
            f"none of {counted(total, 'kernel')} has a schedule faster than the library's own choice"
        )
    if document["failed"]:
        what = ", ".join(f"{number} {status}" for status, number in sorted(document["failed"].items()))
        lines.append(f"candidates that did not pass and are never used: {what}")
    if document["check"] is not None:
        lines.append(check_line(document["check"]))
    if document["fusion"]:
        lines.append(fusion_line(document["fusion"]))
    return lines + list(document["notes"])


def budget_line(document: dict[str, Any]) -> str:
    """Return how much was done, of what was asked for."""
    recorded, new = counted(document["recorded"], "candidate"), document["new"]
    if document["trials"] is not None:
        wanted = f" of {document['trials']}"
    else:
        wanted = f", {document['spent_s'] / 60:.1f} of {document['minutes']:.4g} minutes"
    return f"{recorded} on record for this model{wanted}; {new} of them new"


def fusion_line(fusion: dict[str, Any]) -> str:
    """Return what the fusion alternatives came to."""
    best = fusion["best"]
    text = (
        f"fusion alternatives: {counted(fusion['sites'], 'place')}, {fusion['measured']} of them measured now"
    )
    if fusion["measured"]:
        text += (
            f"; fusing all is fastest at {best['on']}, a part at {best['partial']}, nothing at {best['off']}"
        )
    if fusion["failed"]:
        text += f"; {counted(fusion['failed'], 'kernel')} could not be measured"
    return text


def check_line(check: dict[str, Any]) -> str:
    """Return how the whole model compares, tuned against untuned."""
    if check["ratio"] is None:
        return f"whole model: not compared ({check['reason']})"
    ratio = check["ratio"]
    if 0.995 <= ratio <= 1.005:
        verdict = "as fast as untuned"
    elif ratio < 1.0:
        verdict = f"{1 / ratio:.3f} times as fast as untuned"
    else:
        verdict = (
            f"slower than untuned, {ratio:.3f} times its time; tvmpass.tuning_logs=off builds without records"
        )
    return (
        f"whole model: {verdict} (median {check['tuned_ms']:.4g} ms tuned, {check['untuned_ms']:.4g} ms "
        f"untuned, {check['rounds']} rounds alternated)"
    )


def kernel_rows(tasks: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of name, kind, calls, share of the saving, time, speed and schedule."""
    saved = sum(task["saved_us"] for task in tasks) or 1.0
    ordered = sorted(tasks, key=lambda task: (-task["saved_us"], task["name"]))
    return [
        (
            task["name"],
            task["kind"],
            task["calls"],
            f"{task['saved_us'] / saved:.0%}",
            f"{task['candidate0_us']:.4g}",
            f"{1 / task['best_ratio']:.2f}",
            task["best"],
        )
        for task in ordered
    ]
