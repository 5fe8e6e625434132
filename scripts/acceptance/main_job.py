"""The points of the main job, by letter."""

from __future__ import annotations

from . import (
    bad_input,
    clean_clone,
    core_claim,
    corpus,
    explain_page,
    launches,
    ocr,
    options,
    planted,
    repeat,
    stock_faults,
)

POINTS = {
    "A": ("a clean clone: both commands of the README, and the wheel", clean_clone.point),
    "B": ("three OCR models: right, fast, quickly built", ocr.point),
    "C": ("the corpus under numeric verification, beside stock TVM", corpus.point),
    "D": ("the same build twice: equal reports; the sum law", repeat.point),
    "E": ("the faults of stock TVM do not show", stock_faults.point),
    "F": ("bad input: one line, the exit code, nothing half-written", bad_input.point),
    "G": ("the fusion decision is the best of the alternatives", core_claim.point),
    "H": ("kernel launches against ONNX Runtime's graph", launches.point),
    "I": ("options: disabled rules, levels, stock contexts, open dims", options.point),
    "J": ("a rule with a planted fault is rolled back", planted.point),
    "K": ("explain in words and as a page in a real browser", explain_page.point),
}
