"""Render a report as one HTML page that needs no network."""

from __future__ import annotations

from typing import Any

from tvmpass.core.decision import OUTCOMES

from . import words


def page(document: dict[str, Any]) -> str:
    """Return the page: totals, rules, and tables of decisions and kernels to filter."""
    from tvmpass.cli.pages import template

    return template("tvmpass.cli.explaining", "report.html.j2").render(
        model=document["model"],
        heading=words.heading(document),
        totals=words.totals(document),
        estimates=words.estimates(document),
        kernels_line=words.kernels_line(document) if document["kernels"] else "",
        remarks=words.remarks(document),
        outcomes=OUTCOMES,
        outcome_words=words.OUTCOME_WORDS,
        rules=document["rules"],
        decisions=[_decision(d, document) for d in document["decisions"]],
        kernels=[_kernel(k) for k in words.by_cost(document["kernels"])],
        has_cuda=any(k.get("cuda") for k in document["kernels"]),
    )


def _decision(decision: dict, document: dict) -> dict[str, Any]:
    estimate = decision.get("estimate") or {"source": ""}
    shown = estimate["source"] not in ("", "always")
    return {
        "rule": decision["rule"],
        "function": decision["function"],
        "site": decision["site"],
        "origin": decision["origin"],
        "outcome": decision["outcome"],
        "why": "" if decision["outcome"] == "applied" else words.why(decision, document),
        "predicted": words.span(estimate) if shown else "",
        "mean": estimate["mean"] if shown else "",
        "source": estimate["source"],
    }


def _kernel(kernel: dict) -> dict[str, Any]:
    mean = words.mean_of(kernel.get("predicted_us"))
    return {
        "name": kernel["name"],
        "kind": kernel["kind"],
        "calls": kernel.get("calls", 1),
        "predicted": words.span(kernel.get("predicted_us")),
        "mean": "" if mean is None else mean,
        "schedule": kernel["schedule"],
        "note": words.by_record(kernel["record"]) if kernel.get("record") else kernel.get("note") or "",
        "alternatives": [
            {"recipe": a["recipe"], "predicted": words.span(a.get("estimate"))}
            for a in kernel.get("alternatives", ())
        ],
        "bytes": kernel.get("code_bytes"),
        "cuda": words.resources(kernel),
        "occupancy": min((found["occupancy"] for found in (kernel.get("cuda") or {}).values()), default=""),
        "origin": kernel["origin"],
    }
