"""The points of tuning, by letter; each is imported when its turn comes."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from .bench import Bench, Verdict


def _later(module: str) -> Callable[[Bench], Verdict]:
    def point(bench: Bench) -> Verdict:
        return importlib.import_module(f"scripts.acceptance.{module}").point(bench)

    return point


POINTS = {
    "A": (
        "det, rec and cls tuned for 15 minutes each, against untuned and ONNX Runtime",
        _later("tune_models"),
    ),
    "B": ("a tune killed ten times: nothing twice, nothing lost, as good a result", _later("tune_kill")),
    "C": ("planted candidates: memory, endless, segfault, wrong numbers", _later("tune_planted")),
    "D": ("records of another class are never used; versions of recipes", _later("tune_records")),
    "E": ("a tracker and two servers, one of them killed", _later("tune_rpc")),
    "F": ("training on the shipped records", _later("tune_train")),
    "G": ("a second tune does nothing; two tunes at once lose nothing; Ctrl-C", _later("tune_again")),
}
