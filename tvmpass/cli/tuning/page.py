"""Render a tune's result as one HTML page that needs no network."""

from __future__ import annotations

from typing import Any

from . import words


def page(document: dict[str, Any]) -> str:
    """Return the page: the outcome, and a table of kernels to filter and sort."""
    from tvmpass.cli.pages import template

    tasks = document["tasks"]
    cost = sum(task["cost_us"] for task in tasks) or 1.0
    return template("tvmpass.cli.tuning", "summary.html.j2").render(
        model=document["model"],
        heading=words.heading(document),
        remarks=words.remarks(document),
        path=document["path"],
        kernels=[_kernel(task, cost) for task in tasks],
    )


def _kernel(task: dict[str, Any], cost: float) -> dict[str, Any]:
    failed = ", ".join(f"{number} {status}" for status, number in sorted(task["failed"].items()))
    return {
        **task,
        "share": task["cost_us"] / cost,
        "left": task["best_ratio"] * task["cost_us"] / cost,
        "times": 1 / task["best_ratio"],
        "failures": failed,
    }
