"""The account of one build: decisions, kernels, records, and what was verified."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .decision import OUTCOMES, Decision, Estimate, Refusal, RefusalKind

SCHEMA = 1


@dataclass
class Ledger:
    """Collects decisions and proves that each matched site got exactly one."""

    matched: dict[str, int] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def met(self, rule: str, count: int = 1) -> None:
        """Count sites that ``rule`` matched for the first time."""
        self.matched[rule] = self.matched.get(rule, 0) + count

    def record(self, decision: Decision) -> Decision:
        self.decisions.append(decision)
        return decision

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return per rule ``matched`` and one count per outcome."""
        table = {name: {"matched": n, **dict.fromkeys(OUTCOMES, 0)} for name, n in self.matched.items()}
        for decision in self.decisions:
            table[decision.rule][decision.outcome] += 1
        return table

    def assert_sum(self) -> None:
        """Raise AssertionError unless matched equals the sum of the outcomes, per rule."""
        for name, row in self.counts().items():
            total = sum(row[outcome] for outcome in OUTCOMES)
            if total != row["matched"]:
                raise AssertionError(f"{name}: matched {row['matched']} sites but decided {total}")


@dataclass
class KernelEntry:
    """One compiled kernel as the report shows it."""

    name: str
    kind: str
    origin: list[str]
    schedule: str
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    predicted: Estimate | None = None
    calls: int = 1
    code_bytes: int | None = None
    cuda: dict[str, Any] | None = None
    note: str | None = None
    symbol: str | None = None
    """The function's name in the library, made from its content."""
    record: dict[str, Any] | None = None
    """The tuning record it was scheduled by: ``key``, ``recipe``, ``trace``, and both times in µs."""


@dataclass
class Report:
    """What `tvmpass.optimize` and `tvmpass.build` did, and why."""

    target: str
    model: str
    tvmpass_version: str
    tvm_version: str
    ledger: Ledger = field(default_factory=Ledger)
    kernels: list[KernelEntry] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=lambda: {"present": 0, "used": 0, "orphaned": 0})
    verify: dict[str, Any] = field(
        default_factory=lambda: {"level": "structure", "checked": 0, "not_checked": 0}
    )
    timings: dict[str, Any] | None = None
    cost_model: str = "analytic"
    saved: dict[str, Any] | None = None
    """The JSON this report was read from, if it was."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """Return a report that shows ``data``, as an artifact carries it."""
        ledger = Ledger(
            matched={name: row["matched"] for name, row in data["rules"].items()},
            decisions=[_read_decision(d) for d in data["decisions"]],
            disabled=list(data["disabled"]),
            notes=list(data["notes"]),
        )
        return cls(
            data["target"],
            data["model"],
            data["tvmpass"],
            data["tvm"],
            ledger=ledger,
            kernels=[_read_kernel(k) for k in data["kernels"]],
            records=dict(data["records"]),
            verify=dict(data["verify"]),
            timings=data.get("timings"),
            cost_model=data["cost_model"],
            saved=dict(data),
        )

    @property
    def rules(self) -> dict[str, dict[str, int]]:
        return self.ledger.counts()

    @property
    def decisions(self) -> list[Decision]:
        return self.ledger.decisions

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data; wall-clock times only in ``timings``."""
        if self.saved is not None:
            return dict(self.saved)
        self.ledger.assert_sum()
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "tvmpass": self.tvmpass_version,
            "tvm": self.tvm_version,
            "target": self.target,
            "model": self.model,
            "cost_model": self.cost_model,
            "notes": list(self.ledger.notes),
            "disabled": sorted(self.ledger.disabled),
            "rules": self.rules,
            "decisions": [_decision(d) for d in self.decisions],
            "kernels": [_kernel(k) for k in self.kernels],
            "records": dict(self.records),
            "verify": dict(self.verify),
        }
        if self.timings is not None:
            data["timings"] = self.timings
        return plain(data)

    def dumps(self) -> str:
        """Return the report as JSON text; equal builds give equal bytes."""
        return json.dumps(self.to_json(), indent=1, sort_keys=False, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """Reduce to JSON types; floats to 4 significant digits after the point."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return round(value, 4) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return estimate.to_json()


def _decision(decision: Decision) -> dict[str, Any]:
    refusal = decision.refusal
    data = {
        "rule": decision.rule,
        "function": decision.function,
        "site": decision.site,
        "origin": list(decision.origin),
        "outcome": decision.outcome,
        "by": decision.by,
        "refusal": None
        if refusal is None
        else {"code": refusal.code, "message": refusal.text(), "evidence": dict(refusal.evidence)},
        "estimate": _estimate(decision.estimate),
    }
    if decision.evidence:
        data["evidence"] = dict(decision.evidence)
    return data


def _read_estimate(data: Mapping[str, Any] | None) -> Estimate | None:
    return None if data is None else Estimate(data["source"], data["low"], data["mean"], data["high"])


def _read_decision(data: Mapping[str, Any]) -> Decision:
    refusal = data["refusal"]
    if refusal is not None:  # the message was rendered already; braces in it are its own
        message = str(refusal["message"]).replace("{", "{{").replace("}", "}}")
        refusal = Refusal(RefusalKind(refusal["code"], message), dict(refusal["evidence"]))
    return Decision(
        rule=data["rule"],
        function=data["function"],
        site=data["site"],
        origin=tuple(data["origin"]),
        outcome=data["outcome"],
        by=data["by"],
        refusal=refusal,
        estimate=_read_estimate(data["estimate"]),
        evidence=dict(data.get("evidence", {})),
    )


def _read_kernel(data: Mapping[str, Any]) -> KernelEntry:
    fields = {name: value for name, value in data.items() if name != "predicted_us"}
    return KernelEntry(**fields, predicted=_read_estimate(data["predicted_us"]))


def _kernel(kernel: KernelEntry) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "symbol": kernel.symbol,
        "kind": kernel.kind,
        "origin": kernel.origin,
        "calls": kernel.calls,
        "schedule": kernel.schedule,
        "record": kernel.record,
        "note": kernel.note,
        "alternatives": kernel.alternatives,
        "predicted_us": _estimate(kernel.predicted),
        "code_bytes": kernel.code_bytes,
        "cuda": kernel.cuda,
    }
