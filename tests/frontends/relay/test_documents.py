"""What the pages on Relay say is so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from running import converted

import tvmpass
from scripts.document_operators import PAGE, written

DOCS = Path(__file__).parents[3] / "docs"


def test_the_list_of_operators_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run scripts/document_operators.py"


def test_the_rule_of_the_migration_page_runs():
    text = (DOCS / "migration.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict = {}
    exec(compile(code, "migration.md", "exec"), names)  # our own page
    mod = converted("def @main(%x: Tensor[(2, 3), float32]) { multiply(%x, sigmoid(%x)) }")
    built = tvmpass.build(mod, rules=(*tvmpass.rules(), *(rule() for rule in names["RULES"])))
    assert built.report.rules["recognize-silu"]["applied"] == 1
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(built.run(x=x)[0], x / (1 + np.exp(-x)), rtol=1e-6, atol=0)


def test_rules_that_the_migration_page_names_exist():
    text = (DOCS / "migration.md").read_text(encoding="utf-8")
    table = text.partition("## Passes\n")[2].partition("## Passes of your own")[0]
    named = {
        word
        for cell in re.findall(r"^\|.*$", table, re.MULTILINE)
        for word in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", cell)
    }
    assert len(named) >= 10
    assert named <= {rule.name for rule in tvmpass.rules()}
