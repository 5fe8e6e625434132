"""The outcome of a tune in words and as a page, from its figures alone."""

from __future__ import annotations

import pytest

from tvmpass.cli.tuning import words
from tvmpass.cli.tuning.page import page
from tvmpass.cli.tuning.watch import Lines
from tvmpass.tune.progress import Progress, clock
from tvmpass.tune.result import ModelCheck, TaskResult, TuneResult


def task(name: str, ratio: float = 1.0, **more) -> TaskResult:
    best = None if ratio == 1.0 else "tile-matmul{m=6}"
    fields = {"calls": 2, "candidate0_us": 10.0, "measured": True, "tried": 3, "failed": {}, "spent_s": 4.0}
    return TaskResult(
        kernel_key=name * 64,
        name=name,
        kind="matmul",
        origin=["<b>node</b>"],
        candidate0="tile-matmul{m=4}",
        best_ratio=ratio,
        best=best,
        **{**fields, **more},
    )


def result(*tasks: TaskResult, **more) -> TuneResult:
    fields = {
        "reason": "budget",
        "trials": 20,
        "minutes": None,
        "recorded": 20,
        "new": 5,
        "spent_s": 30.0,
        "elapsed_s": 9.0,
    }
    return TuneResult(
        model="m.onnx",
        target="llvm",
        device_class="x86-64-v3-t1",
        path="logs/x.tuned.jsonl",
        tasks=list(tasks),
        **{**fields, **more},
    )


def test_the_table_lists_what_gained_most_first():
    text = words.outcome_text(result(task("a", 0.9), task("b"), task("c", 0.5)).to_json())
    rows = [line for line in text.splitlines() if "tile-matmul{m=6}" in line]
    assert [row.split()[0] for row in rows] == ["c", "a"]
    assert rows[0].split()[3:6] == ["83%", "10", "2.00"]
    assert "20 candidates on record for this model of 20; 5 of them new" in text
    assert "2 of 3 kernels have a faster schedule; by the records they all together take 0.800" in text


def test_nothing_gained_is_said_plainly():
    text = words.outcome_text(result(task("a"), minutes=1.0, trials=None).to_json())
    assert "none of 1 kernel has a schedule faster than the library's own choice" in text
    assert "0.5 of 1 minutes" in text


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            ModelCheck(1.0, 2.0, 0.5, 11, 0.0),
            "2.000 times as fast as untuned (median 1 ms tuned, 2 ms untuned",
        ),
        (ModelCheck(2.0, 2.0, 1.003, 11, 0.0), "as fast as untuned"),
        (ModelCheck(2.2, 2.0, 1.1, 11, 0.0), "slower than untuned, 1.100 times its time"),
        (ModelCheck(reason="no compiler"), "not compared (no compiler)"),
    ],
)
def test_how_the_whole_model_compares(check, said):
    text = words.outcome_text(result(task("a", 0.9), check=check).to_json())
    assert "whole model: " + said in text


def test_failures_and_fusions_are_told():
    fusion = {"sites": 3, "measured": 2, "known": 1, "kernels": 9, "failed": 1}
    fusion["best"] = {"on": 1, "partial": 1, "off": 0}
    lines = words.remarks(result(task("a", failed={"crash": 2, "wrong": 1}), fusion=fusion).to_json())
    assert "candidates that did not pass and are never used: 2 crash, 1 wrong" in lines
    (line,) = [line for line in lines if line.startswith("fusion")]
    assert line == (
        "fusion alternatives: 3 places, 2 of them measured now; fusing all is fastest at 1, a part at 1, "
        "nothing at 0; 1 kernel could not be measured"
    )


def test_the_page_escapes_names_and_holds_every_kernel():
    text = page(result(task("a", 0.9), task("b", measured=False)).to_json())
    assert "<b>node</b>" not in text and "&lt;b&gt;node&lt;/b&gt;" in text
    assert "(predicted)" in text and text.count("<tr>") == 3


def test_lines_are_few_but_none_of_an_improvement_is_left_out(capsys):
    lines = Lines()
    lines(Progress("stage", "planning the model"))
    for number in range(20):
        lines(Progress("measured", "r", recorded=number))
    lines(
        Progress("better", "r\x1b[31m", recorded=20, trials=40, eta_s=300.0, kernel="k", best=2.0, gain=1.25)
    )
    lines(Progress("alive", ""))
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 2 and shown[0].endswith("planning the model")
    assert "20/40 candidates, kernels 1.250x, 5 min left; kernel 0/0 k: 2.00x by r\\x1b[31m" in shown[1]


def test_times_are_short():
    assert [clock(s) for s in (3.2, 99.0, 420.0, 12_000.0)] == ["3 s", "99 s", "7 min", "3 h 20 min"]
