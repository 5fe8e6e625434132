"""The report: sums, JSON types, and reading one back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tvmpass.core.decision import Decision, Estimate, RefusalKind
from tvmpass.core.report import KernelEntry, Ledger, Report, plain

WHY = RefusalKind("not-so", "{value} has shape {shape}")


def made() -> Report:
    ledger = Ledger(notes=["a note"], disabled=["b", "a"])
    ledger.met("rule", 2)
    ledger.met("idle", 0)
    estimate = Estimate("learned:x", 1.00004, 1.5, np.float32(2.25))
    details = {"estimate": estimate, "evidence": {"k": (1, 2)}}
    ledger.record(Decision("rule", "main", "s#0", ("n1", "n2"), "applied", **details))
    refusal = WHY(value="{x}", shape=[1, "n"])
    ledger.record(Decision("rule", "main", "s#1", (), "illegal", refusal=refusal))
    kernel = KernelEntry("k", "matmul", ["n1"], "fallback", [{"recipe": "r", "estimate": None}], estimate)
    return Report("llvm:x", "m", "0.1", "0.27", ledger, [kernel])


def test_json_has_the_documented_fields():
    data = made().to_json()
    assert list(data)[:5] == ["schema", "tvmpass", "tvm", "target", "model"]
    assert data["disabled"] == ["a", "b"]
    row = {"matched": 2, "applied": 1, "illegal": 1, "unprofitable": 0, "superseded": 0, "rolled_back": 0}
    assert data["rules"] == {"rule": row, "idle": dict.fromkeys(row, 0)}
    first, second = data["decisions"]
    assert first["origin"] == ["n1", "n2"]
    assert first["estimate"] == {"source": "learned:x", "low": 1.0, "mean": 1.5, "high": 2.25}
    assert second["refusal"]["message"] == "{x} has shape [1, 'n']"
    assert second["refusal"]["evidence"] == {"value": "{x}", "shape": [1, "n"]}
    assert "timings" not in data
    assert json.loads(made().dumps()) == data


def test_a_report_read_back_is_the_same():
    text = made().dumps()
    back = Report.from_json(json.loads(text))
    assert back.dumps() == text
    assert back.rules == made().rules
    assert [d.outcome for d in back.decisions] == ["applied", "illegal"]
    assert back.decisions[1].refusal.text() == "{x} has shape [1, 'n']"
    assert back.kernels[0].predicted.mean == 1.5
    back.saved = None
    assert back.dumps() == text


def test_the_sum_law_is_asserted():
    report = made()
    report.ledger.met("rule")
    with pytest.raises(AssertionError, match="rule: matched 3 sites but decided 2"):
        report.to_json()


def test_an_outcome_must_be_known():
    with pytest.raises(ValueError, match="unknown outcome"):
        Decision("r", "main", "s", (), "skipped")


def test_plain_gives_json_types():
    value = {"a": np.float32(0.123456), "b": np.int64(3), "c": (True, None), "d": float("nan")}
    value |= {"e": {2, 1}, 5: b"x"}
    assert plain(value) == {"a": 0.1235, "b": 3, "c": [True, None], "d": "nan", "e": [1, 2], "5": "b'x'"}
    assert type(plain(np.bool_(True))) is bool
