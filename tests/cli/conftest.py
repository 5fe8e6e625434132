"""A small report written by hand, with one decision of every outcome."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

ESTIMATE = {"source": "learned:cpu-1", "low": 10.5, "mean": 12.25, "high": 14.0}


def _decision(rule, site, origin, outcome, **more):
    base = {
        "rule": rule,
        "function": "main",
        "site": site,
        "origin": origin,
        "outcome": outcome,
        "by": None,
        "refusal": None,
        "estimate": None,
    }
    return {**base, **more}


REPORT = {
    "schema": 1,
    "tvmpass": "0.1.0",
    "tvm": "0.27.0.post1",
    "target": "llvm (x86-64-v3)",
    "model": "two_convs.onnx",
    "cost_model": "learned:cpu-1",
    "notes": ["built with the defaults"],
    "disabled": ["fuse-softmax"],
    "rules": {
        "fold-batch-norm-into-conv": {
            "matched": 2,
            "applied": 1,
            "illegal": 1,
            "unprofitable": 0,
            "superseded": 0,
            "rolled_back": 0,
        },
        "grow-epilogue": {
            "matched": 3,
            "applied": 1,
            "illegal": 0,
            "unprofitable": 1,
            "superseded": 0,
            "rolled_back": 1,
        },
        "fuse-elementwise-chain": {
            "matched": 1,
            "applied": 0,
            "illegal": 0,
            "unprofitable": 0,
            "superseded": 1,
            "rolled_back": 0,
        },
    },
    "decisions": [
        _decision(
            "fold-batch-norm-into-conv",
            "aa#0",
            ["Conv_0", "BatchNorm_1"],
            "applied",
            estimate={"source": "always", "low": 0, "mean": 0, "high": 0},
        ),
        _decision(
            "fold-batch-norm-into-conv",
            "bb#0",
            ["Conv_2", "BatchNorm_3"],
            "illegal",
            refusal={
                "code": "value-escapes",
                "message": "lv3 is also read by relax.add",
                "evidence": {"value": "lv3", "readers": ["relax.add"]},
            },
        ),
        _decision(
            "grow-epilogue", "cc#0", ["Conv_0", "Add_4", "Relu_5", "Mul_6"], "applied", estimate=ESTIMATE
        ),
        _decision(
            "grow-epilogue",
            "dd#0",
            ["Conv_2", "Add_7"],
            "unprofitable",
            estimate={"source": "analytic", "low": 5, "mean": 5, "high": 5},
            evidence={"reason": "price"},
        ),
        _decision(
            "grow-epilogue",
            "ee#0",
            ["Conv_8"],
            "rolled_back",
            refusal={"code": "wrong-values", "message": "", "evidence": {"error": 0.5}},
        ),
        _decision("fuse-elementwise-chain", "ff#0", ["Add_4", "<b>&Relu_5"], "superseded", by="cc#0"),
    ],
    "kernels": [
        {
            "name": "conv_add_relu",
            "kind": "conv",
            "origin": ["Conv_0", "Add_4", "Relu_5", "Mul_6"],
            "calls": 2,
            "schedule": "library:tile-conv{w=6,c=16} vectorize-inner",
            "note": None,
            "alternatives": [{"recipe": "tile-conv{w=4,c=16}", "estimate": ESTIMATE}],
            "predicted_us": ESTIMATE,
            "code_bytes": 2048,
            "cuda": None,
        },
        {
            "name": "softmax",
            "kind": "norm-softmax",
            "origin": ["Softmax_9"],
            "calls": 1,
            "schedule": "fallback",
            "note": "no recipe applies",
            "alternatives": [],
            "predicted_us": None,
            "code_bytes": None,
            "cuda": None,
        },
    ],
    "records": {"present": 4, "used": 1, "orphaned": 0},
    "verify": {"level": "structure", "checked": 6, "not_checked": 0},
}


@pytest.fixture
def report():
    return copy.deepcopy(REPORT)


@pytest.fixture
def report_file(tmp_path, report):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    return path


@pytest.fixture
def tvmpass():
    """Run the command line in a process of its own."""

    def run(*arguments, **options):
        return subprocess.run(
            [sys.executable, "-m", "tvmpass", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )

    return run
